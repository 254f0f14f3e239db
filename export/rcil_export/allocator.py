"""Freed memory: kept for the process, or returned to the system."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""Of glibc's `mallopt`."""


def keep_freed_memory() -> None:
    """Let glibc keep large buffers that are freed, for the next ones.

    Checking a large network frees and takes hundreds of megabytes many times over. By default each goes back to the
    system and comes back as empty pages, which took a sixth of an export's time. Without glibc nothing is done.
    """
    mallopt = _glibc("mallopt")
    if mallopt is None:
        return
    for option, size in ((M_MMAP_THRESHOLD, 2**30), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 2**26)):
        mallopt(option, size)


def give_back_memory() -> None:
    """Return what is free to the system, also between blocks that are in use; without glibc nothing is done."""
    trim = _glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _glibc(function: str) -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), function)
    except (OSError, AttributeError):
        return None
    return found

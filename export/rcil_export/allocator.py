"""Memory that is given back to the process instead of the system."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""Of glibc's `mallopt`."""


def keep_freed_memory() -> None:
    """Let glibc keep large buffers that are freed, for the next ones.

    Checking a large network frees and takes hundreds of megabytes many times over. By default each goes back to the
    system and comes back as empty pages, which took a sixth of an export's time. Without glibc nothing is done.
    """
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for option, size in ((M_MMAP_THRESHOLD, 2**30), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 2**26)):
        mallopt(option, size)

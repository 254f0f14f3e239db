"""How a command uses the CPU: how long its idle threads spin, and what happens to freed memory.

Commands call `tune_process` before they import torch, because OpenMP reads the environment when it is loaded.
`import rcil` changes nothing. This module does not import torch. `tools/bench/spinning.py` and `docs/speed.md` have the
measurements.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

WAITING = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}
"""Environment variables of GNU's and of LLVM's OpenMP: loops, and milliseconds, that a thread spins before it sleeps.

The defaults are 300,000 loops (some milliseconds) and 200 ms. On a busy machine that takes the core away from the
thread that has the work. A spin this short still covers the gap between two operators.
"""
POLICY = "OMP_WAIT_POLICY"
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""Options of glibc's `mallopt`."""


def tune_process() -> None:
    """Apply both settings to this process and to those that it starts; variables that the user has set win."""
    limit_spinning()
    keep_freed_memory()


def limit_spinning() -> None:
    """Let idle OpenMP threads sleep soon, unless the environment already says how they wait."""
    if not any(name in os.environ for name in (POLICY, *WAITING)):
        os.environ.update(WAITING)


def keep_freed_memory() -> None:
    """Let glibc keep large buffers that are freed, for the next ones; does nothing without glibc.

    By default each buffer goes back to the system and comes back as empty pages, which the system has to clear. A
    training step allocates several gigabytes in this way.
    """
    mallopt = _glibc("mallopt")
    if mallopt is None:
        return
    for option, size in ((M_MMAP_THRESHOLD, 2**30), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 2**26)):
        mallopt(option, size)


def give_back_memory() -> None:
    """Return freed memory to the system, also between blocks that are in use; does nothing without glibc."""
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

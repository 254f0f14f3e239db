"""Priorities of the threads and processes of a pipeline."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

NICE = 3
"""Niceness of the decode and write threads, relative to inference.

On Linux, 3 halves their share of a busy core. At 15 they got a thirtieth, also next to other programs, and inference
waited for them.
"""


def yield_to_inference() -> None:
    """Lower the priority of this thread, because a model on the CPU is as slow as the slowest of its threads.

    Only Linux has per-thread priorities; elsewhere `setpriority` affects the whole process, so nothing is done.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + NICE))

"""Time and memory of an export: its stages, and what glibc does with freed memory."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rcil.core.log import StageRecord, stage

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""Options of glibc's `mallopt`."""


@contextmanager
def part(name: str) -> Iterator[None]:
    """A stage of an export; memory that it freed is returned to the system, so that peaks do not add up."""
    with stage(name):
        yield
    give_back_memory()


def stages_document(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """JSON-ready, in the order of execution; the numbers of a stage include those of its inner stages."""
    return [
        {
            "name": record.name,
            "seconds": round(record.seconds, 3),
            "processor_seconds": round(record.processor_seconds, 3),
            "peak_bytes": record.peak_bytes,
        }
        for record in records
    ]


def stages_text(records: Sequence[StageRecord]) -> str:
    """A short table: seconds, processor seconds and peak memory; inner stages are indented."""
    names = ["  " * record.name.count(" / ") + record.name.split(" / ")[-1] for record in records]
    width = max([17, *map(len, names)])
    lines = [f"{'Where the time went':{width + 2}}  {'seconds':>9}  {'processor':>9}  {'peak GiB':>8}"]
    for name, record in zip(names, records, strict=True):
        peak = "" if record.peak_bytes is None else f"{record.peak_bytes / 2**30:.2f}"
        lines.append(f"  {name:{width}}  {record.seconds:>9.1f}  {record.processor_seconds:>9.1f}  {peak:>8}")
    return "\n".join(lines)


def keep_freed_memory() -> None:
    """Let glibc keep large freed buffers for the next ones; nothing is done without glibc.

    Checking a large network allocates and frees hundreds of megabytes many times. By default each buffer goes back to
    the system and comes back as empty pages, which took a sixth of an export's time.
    """
    mallopt = _glibc("mallopt")
    if mallopt is None:
        return
    for option, size in ((M_MMAP_THRESHOLD, 2**30), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 2**26)):
        mallopt(option, size)


def give_back_memory() -> None:
    """Return free memory to the system, also that between used blocks; nothing is done without glibc."""
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

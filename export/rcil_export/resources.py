"""Time and memory of the stages of an export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rcil.core.log import StageRecord, stage
from rcil.hardware.cpu import give_back_memory


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

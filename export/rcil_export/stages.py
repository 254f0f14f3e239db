"""The stages of an export: what each took, as a table and for report.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rcil.core.log import StageRecord, stage
from rcil.hardware.cpu import give_back_memory


@contextmanager
def part(name: str) -> Iterator[None]:
    """A stage of an export; what it freed goes back to the system, so that the peaks of stages do not add up."""
    with stage(name):
        yield
    give_back_memory()


def stages_document(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """JSON-ready, in the order of execution; a stage counts what the stages inside it took."""
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
    rows = [(_indented(record.name), *_numbers(record)) for record in records]
    names = max([17, *(len(row[0]) for row in rows)])
    head = f"{'Where the time went':{names + 2}}  {'seconds':>9}  {'processor':>9}  {'peak GiB':>8}"
    return "\n".join([head, *(f"  {name:{names}}  {wall:>9}  {cpu:>9}  {peak:>8}" for name, wall, cpu, peak in rows)])


def _indented(name: str) -> str:
    *outer, own = name.split(" / ")
    return "  " * len(outer) + own


def _numbers(record: StageRecord) -> tuple[str, str, str]:
    peak = "" if record.peak_bytes is None else f"{record.peak_bytes / 2**30:.2f}"
    return f"{record.seconds:.1f}", f"{record.processor_seconds:.1f}", peak

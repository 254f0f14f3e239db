"""What a run reports: the logger `rcil` (-v makes it verbose, -q silences it), callbacks, dry runs and timed stages."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

log = logging.getLogger("rcil")
Notify = Callable[[str], None]
"""Receives notices for the user, one line at a time; see `rcil.cli.console.make_notifier`."""
Progress = Callable[[int, int], None]
"""Receives the number of finished items and their total."""
STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
"""Written to `clear_refs`, this resets the peak to the current size."""


def is_quiet() -> bool:
    """Whether only results and errors are shown."""
    return not log.isEnabledFor(logging.WARNING)


@dataclass(frozen=True)
class DryRun:
    """What a run would read, write and need; `--dry-run` reports it after all checks.

    Keys are files or subjects; values are remarks and may be empty.
    """

    reads: Mapping[str, str]
    writes: Mapping[str, str]
    needs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StageRecord:
    """Time and memory of one stage."""

    name: str
    """Includes the names of the enclosing stages: `checks / outputs`."""
    seconds: float
    processor_seconds: float
    """CPU time of this process and of its children, which does not depend on the load of the machine."""
    peak_bytes: int | None
    """Largest resident memory of this process during the stage; None without /proc."""


@dataclass
class Stages:
    """Stages in the order in which they began; those that have not ended, or that failed, are left out."""

    _records: list[StageRecord | None] = field(default_factory=list)
    _open: list[_OpenStage] = field(default_factory=list)

    @property
    def records(self) -> list[StageRecord]:
        """The stages that have ended."""
        return [record for record in self._records if record is not None]

    @contextlib.contextmanager
    def record(self, name: str) -> Iterator[None]:
        """Measure the block as a stage inside those that are open."""
        self._see_peak()
        stage = _OpenStage(" / ".join([*(outer.name for outer in self._open[-1:]), name]))
        self._open.append(stage)
        self._records.append(None)
        at, start, processor = len(self._records) - 1, time.perf_counter(), _processor_seconds()
        try:
            yield
            self._see_peak()
            self._records[at] = StageRecord(
                stage.name, time.perf_counter() - start, _processor_seconds() - processor, stage.peak
            )
        finally:
            self._open.pop()

    def _see_peak(self) -> None:
        """Update the peak of all open stages."""
        peak = take_peak()
        if peak is None:
            return
        for stage in self._open:
            stage.peak = max(stage.peak or 0, peak)


@dataclass
class _OpenStage:
    name: str
    peak: int | None = None


_recording: ContextVar[Stages | None] = ContextVar("recording", default=None)


@contextlib.contextmanager
def recorded_stages() -> Iterator[Stages]:
    """Record every `stage` inside the block in this thread, including nested ones."""
    stages = Stages()
    token = _recording.set(stages)
    try:
        yield stages
    finally:
        _recording.reset(token)


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Log how long the block took, and record it inside `recorded_stages`."""
    start, stages = time.perf_counter(), _recording.get()
    with stages.record(name) if stages is not None else contextlib.nullcontext():
        yield
    log.info("%s: %.2f s", name, time.perf_counter() - start)


def _processor_seconds() -> float:
    return sum(os.times()[:4])


@contextlib.contextmanager
def listening(level: int) -> Iterator[None]:
    """Send messages from `level` on to standard error inside the block, then restore the logger for library users."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(level)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]


def resident_bytes(field: Literal["VmRSS", "VmHWM"]) -> int:
    """Resident memory of this process, current (`VmRSS`) or peak (`VmHWM`), in bytes. Raises OSError without /proc."""
    line = next(line for line in STATUS.read_text(encoding="ascii").splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def take_peak() -> int | None:
    """Peak resident memory in bytes since the last call; None where it cannot be read or reset.

    This also resets `ru_maxrss` of `getrusage`.
    """
    try:
        peak = resident_bytes("VmHWM")
        CLEAR_REFS.write_text(RESET_PEAK, encoding="ascii")
    except OSError:
        return None
    return peak

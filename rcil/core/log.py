"""The logger `rcil`, which -v makes verbose and -q silences."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field

from rcil.core.resident import take_peak

log = logging.getLogger("rcil")
Notify = Callable[[str], None]
"""Receives notices for the user, one line at a time; see `rcil.cli.console.make_notifier`."""
Progress = Callable[[int, int], None]
"""Receives the number of finished items and their total."""


def is_quiet() -> bool:
    """Whether only results and errors are shown."""
    return not log.isEnabledFor(logging.WARNING)


@dataclass(frozen=True)
class StageRecord:
    """What one stage took."""

    name: str
    """With the stages around it: `checks / outputs`."""
    seconds: float
    processor_seconds: float
    """Of this process and of those that it started, so that a busy machine does not count."""
    peak_bytes: int | None
    """Largest resident memory of this process during the stage; None where the system does not tell."""


@dataclass
class Stages:
    """Stages in the order in which they began; those that have not ended, or that failed, are left out."""

    _records: list[StageRecord | None] = field(default_factory=list)
    _open: list[_OpenStage] = field(default_factory=list)

    @property
    def records(self) -> list[StageRecord]:
        """All that have ended."""
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
        """Tell all open stages the peak since the last look."""
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
    """Keep what every `stage` inside the block took, in this thread, also those of inner ones."""
    stages = Stages()
    token = _recording.set(stages)
    try:
        yield stages
    finally:
        _recording.reset(token)


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Log how long the block took, and keep it where stages are recorded."""
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

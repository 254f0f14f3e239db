"""Keeps the receipt of a run up to date, and records how the run ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rcil.core.errors import RcilError
from rcil_serve.stream.frames import Counts, SourceError, SourceInfo, Stages
from rcil_serve.stream.outputs.movie import DiskFullError
from rcil_serve.stream.outputs.receipt import Receipt, Status
from rcil_serve.stream.shutdown import brief_message
from rcil_serve.stream.sources import Source

SECONDS = 2.0
"""Seconds between two updates of the receipt during a run."""


@dataclass(frozen=True)
class Progress:
    """Progress of a run."""

    info: SourceInfo
    counts: Counts
    seconds: float


Show = Callable[[Progress], None]


class Recorder:
    """Records the progress and the end of one run.

    Args:
        receipt: The receipt to update.
        source: The source of the run.
        stages: Durations of the pipeline's stages.
        outputs: Files that are written, by name.
        show: Called with the progress at every tick.
    """

    def __init__(
        self, receipt: Receipt, source: Source, stages: Stages, outputs: dict[str, Path], show: Show = lambda _: None
    ) -> None:
        self._receipt, self._source, self._stages = receipt, source, stages
        self._outputs, self._show = outputs, show
        self._begun = self._written = time.monotonic()

    def tick(self) -> None:
        """Show the progress, and update the receipt every `SECONDS`."""
        self._show(Progress(self._source.info, replace(self._source.counts), time.monotonic() - self._begun))
        if time.monotonic() - self._written > SECONDS:
            self._written = time.monotonic()
            with contextlib.suppress(RcilError):
                self.write("running")

    def write(self, status: Status, error: str | None = None) -> dict[str, Any]:
        """Write the receipt and return its content."""
        return self._receipt.write(status, self._source.counts, self._stages, self._outputs, error)

    def check_frames(self) -> None:
        """Raise if the source delivered no frames."""
        if not self._source.counts.written:
            raise SourceError(f"{self._source.info.name} delivered no frames", "Check --start, --end and --stride.")

    def failed(self, error: BaseException) -> BaseException:
        """Record a failure in the receipt, and return the error to raise."""
        if isinstance(error, DiskFullError):
            error = error.with_estimate(self._source.info.frames)
        with contextlib.suppress(RcilError):  # the disk may be full
            self.write("failed", brief_message(error))
        return error

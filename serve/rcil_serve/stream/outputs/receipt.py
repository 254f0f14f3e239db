"""The receipt of a run: inputs, outputs and lost frames, updated while the run is in progress."""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rcil import __version__
from rcil.core.documents import write_json
from rcil.core.errors import RcilError
from rcil.core.files import sha256_of
from rcil_serve.runtime.backends import Backend
from rcil_serve.stream.frames import Counts, Source, SourceError, SourceInfo, Stages
from rcil_serve.stream.outputs.movie import DiskFullError
from rcil_serve.stream.shutdown import brief_message

Status = Literal["running", "done", "interrupted", "failed"]
WHOLE = ("done", "interrupted")
"""Statuses after which all outputs exist. After a failure, files with their names may be from an earlier run."""
MAX_HASHED_BYTES = 2**30
"""Size limit for hashing; larger files are described by their size only."""
UPDATE_SECONDS = 2.0
"""Seconds between two updates of the receipt during a run."""


@dataclass(frozen=True)
class Progress:
    """Progress of a run."""

    info: SourceInfo
    counts: Counts
    seconds: float


Show = Callable[[Progress], None]


class Receipt:
    """The receipt of a run as a JSON file. It is kept up to date, and it records how the run ended.

    Args:
        path: The file.
        backend: The model.
        source: The opened source.
        source_text: The source as the user typed it; a file is described by its size and hash.
        options: Options of the run, JSON-ready.
        stages: Durations of the pipeline's stages.
        outputs: Files that are written, by name.
        show: Called with the progress at every tick.
        extra: Returns further JSON-ready sections whenever the receipt is written.
    """

    def __init__(
        self,
        path: Path,
        backend: Backend,
        source: Source,
        source_text: str,
        options: dict[str, Any],
        stages: Stages,
        outputs: dict[str, Path],
        *,
        show: Show = lambda progress: None,
        extra: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._path, self._source, self._stages, self._outputs = path, source, stages, outputs
        self._show, self._extra = show, extra
        self._begun = datetime.now(UTC)
        self._started = self._written = time.monotonic()  # the wall clock may be adjusted during a run
        info = source.info
        self._fixed: dict[str, Any] = {
            "rcil": __version__,
            "machine": platform.machine(),
            "model": describe_model(backend),
            "source": {
                "name": info.name,
                **_file_facts(Path(source_text)),
                "size": list(info.size),
                "rate": round(float(info.rate), 6) if info.timed else None,
                "live": info.live,
                "aspect": f"{info.aspect.numerator}:{info.aspect.denominator}",
                "sound": bool(info.tracks),
                "tracks": [track.summary for track in info.tracks],
            },
            "options": options,
        }

    def tick(self) -> None:
        """Show the progress, and update the file every `UPDATE_SECONDS`."""
        now = time.monotonic()
        self._show(Progress(self._source.info, replace(self._source.counts), now - self._started))
        if now - self._written > UPDATE_SECONDS:
            self._written = now
            with contextlib.suppress(RcilError):
                self.write("running")

    def write(self, status: Status, error: str | None = None) -> dict[str, Any]:
        """Write the current state and return it."""
        seconds, counts = time.monotonic() - self._started, self._source.counts
        document = {
            "status": status,
            "error": error,
            "begun": self._begun.isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "frames_a_second": round(counts.written / seconds, 3) if seconds else None,
            **self._fixed,
            "frames": asdict(counts),
            "stages": self._stages.as_document(),
            "outputs": {
                name: {"path": str(path), **(_file_facts(path) if status in WHOLE else {})}
                for name, path in self._outputs.items()
            },
            **self._extra(),
        }
        write_json(self._path, document)
        return document

    def check_frames(self) -> None:
        """Raise if the source delivered no frames."""
        if not self._source.counts.written:
            raise SourceError(f"{self._source.info.name} delivered no frames", "Check --start, --end and --stride.")

    def failed(self, error: BaseException) -> BaseException:
        """Record a failure, and return the error to raise."""
        if isinstance(error, DiskFullError):
            error = error.with_estimate(self._source.info.frames)
        with contextlib.suppress(RcilError):  # the disk may be full
            self.write("failed", brief_message(error))
        return error


def describe_model(backend: Backend) -> dict[str, Any]:
    """Description of a model for receipts and events."""
    return {
        "file": backend.name,
        "sha256": backend.sha256,
        "step": backend.metadata.step,
        "classes": [c.name for c in backend.metadata.classes],
        "precision": backend.interface.precision,
        "device": backend.device,
    }


def summarize_model(backend: Backend) -> str:
    """One-line summary of a model for messages: `step 1, 3 classes, CPU`."""
    return f"step {backend.metadata.step}, {len(backend.metadata.classes)} classes, {backend.device}"


def _file_facts(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    size = path.stat().st_size
    return {"bytes": size, "sha256": sha256_of(path) if size <= MAX_HASHED_BYTES else None}

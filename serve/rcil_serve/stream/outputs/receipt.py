"""The receipt of a run: inputs, outputs and lost frames, updated while the run is in progress."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rcil import __version__
from rcil.core.documents import write_json
from rcil.core.files import sha256_of
from rcil_serve.runtime.backends import Backend
from rcil_serve.stream.frames import Counts, SourceInfo, Stages

Status = Literal["running", "done", "interrupted", "failed"]
WHOLE = ("done", "interrupted")
"""Statuses after which all outputs exist. After a failure, files with their names may be from an earlier run."""
MAX_HASHED_BYTES = 2**30
"""Size limit for hashing; larger files are described by their size only."""


class Receipt:
    """The receipt as a JSON file.

    Args:
        path: The file.
        backend: The model.
        info: Description of the source.
        source: The source as the user typed it; a file is described by its size and hash.
        options: Options of the run, JSON-ready.
        extra: Returns further JSON-ready sections whenever the receipt is written.
    """

    def __init__(
        self,
        path: Path,
        backend: Backend,
        info: SourceInfo,
        source: str,
        options: dict[str, Any],
        extra: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.path, self._extra = path, extra
        self._begun, self._started = datetime.now(UTC), time.monotonic()
        self._fixed: dict[str, Any] = {
            "rcil": __version__,
            "machine": platform.machine(),
            "model": describe_model(backend),
            "source": {
                "name": info.name,
                **_file_facts(Path(source)),
                "size": list(info.size),
                "rate": round(float(info.rate), 6),
                "live": info.live,
                "sound": info.sound is not None,
            },
            "options": options,
        }

    def write(
        self, status: Status, counts: Counts, stages: Stages, outputs: dict[str, Path], error: str | None = None
    ) -> dict[str, Any]:
        """Write the current state and return it."""
        seconds = time.monotonic() - self._started  # the wall clock may be adjusted during a run
        document = {
            "status": status,
            "error": error,
            "begun": self._begun.isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "frames_a_second": round(counts.written / seconds, 3) if seconds else None,
            **self._fixed,
            "frames": asdict(counts),
            "stages": stages.as_document(),
            "outputs": {
                name: {"path": str(path), **(_file_facts(path) if status in WHOLE else {})}
                for name, path in outputs.items()
            },
            **self._extra(),
        }
        write_json(self.path, document)
        return document


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

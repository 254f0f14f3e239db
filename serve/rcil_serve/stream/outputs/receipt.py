"""The receipt of a run: what went in, what came out, what was lost; kept up to date while it runs."""

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
from rcil_serve.runtime.backends.protocol import Backend
from rcil_serve.stream.frames import Counts, SourceInfo, Stages

Status = Literal["running", "done", "interrupted", "failed"]
WHOLE = ("done", "interrupted")
"""After these all outputs are there; after a failure what stands at their names may be of an earlier run."""
MAX_HASHED_BYTES = 2**30
"""Bytes of a file whose hash is taken; larger ones are described by their size."""


class Receipt:
    """A JSON file.

    Args:
        path: The file.
        backend: The model that runs.
        info: Of the source.
        source: The source as the user typed it; a file is described by its size and hash.
        options: As the user set them, JSON-ready.
        extra: Gives further sections whenever the receipt is written, JSON-ready.
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
        """Write how things stand, and return it."""
        seconds = time.monotonic() - self._started  # the clock on the wall may be set meanwhile
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
    """What a receipt says about a model."""
    return {
        "file": backend.name,
        "sha256": backend.sha256,
        "step": backend.metadata.step,
        "classes": [c.name for c in backend.metadata.classes],
        "precision": backend.interface.precision,
        "device": backend.device,
    }


def _file_facts(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    size = path.stat().st_size
    return {"bytes": size, "sha256": sha256_of(path) if size <= MAX_HASHED_BYTES else None}

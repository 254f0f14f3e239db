"""A TensorRT engine as a backend."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rcil_export.description import parse_description
from rcil_export.engine.run import EngineRunner
from rcil_serve.backends.protocol import Outputs, outputs_of


class EngineBackend:
    """An engine on the first GPU, through Polygraphy's runner; calls take turns, as it has one stream."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._lock = threading.Lock()
        runner = EngineRunner(path)
        self.metadata, self.interface = parse_description(runner.sidecar.metadata, path)
        self.sha256 = runner.sidecar.engine_sha256
        self.device = f"GPU ({runner.sidecar.flavour} TensorRT {runner.sidecar.version})"
        self._runner: EngineRunner | None = runner.__enter__()

    def run(self, batch: NDArray[Any]) -> Outputs:
        """See `Backend.run`."""
        with self._lock:
            assert self._runner is not None, "the engine is closed"
            return outputs_of(self._runner.run(batch), self.name)

    def close(self) -> None:
        """See `Backend.close`."""
        with self._lock:
            if self._runner is not None:
                self._runner.__exit__(None, None, None)
                self._runner = None

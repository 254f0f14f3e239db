"""A TensorRT engine as a backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rcil.core.errors import RunError
from rcil_export.engine.runner import EngineRunner
from rcil_export.graph.description import parse_description
from rcil_serve.runtime.backends import Outputs, outputs_of


class EngineBackend:
    """A TensorRT engine on a GPU. Up to two calls run concurrently; further calls wait.

    Args:
        path: The engine, with its sidecar next to it.
        device: CUDA device index.
    """

    def __init__(self, path: Path, device: int = 0) -> None:
        self.name = str(path)
        runner = EngineRunner(path, device)
        self.metadata, self.interface = parse_description(runner.sidecar.metadata, path)
        self.sha256 = runner.sidecar.engine_sha256
        self.device = f"GPU ({runner.sidecar.flavour} TensorRT {runner.sidecar.version})"
        self._runner: EngineRunner | None = runner.__enter__()

    def run(self, batch: NDArray[Any]) -> Outputs:
        """See `Backend.run`."""
        runner = self._runner
        if runner is None:
            raise RunError(f"{self.name} is closed", "Open it again.")
        return outputs_of(runner.run(batch), self.name)

    def close(self) -> None:
        """See `Backend.close`."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.__exit__(None, None, None)

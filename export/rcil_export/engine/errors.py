"""The errors of building and running engines."""

from __future__ import annotations

from rcil.core.errors import RcilError


class EngineError(RcilError):
    """TensorRT rejects a graph, or an engine does not match its sidecar."""

    exit_code = 11


class NoGpuError(RcilError):
    """This machine has no NVIDIA GPU with a driver, and one is needed."""

    exit_code = 10

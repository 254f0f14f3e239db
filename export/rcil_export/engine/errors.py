"""What can go wrong with engines."""

from __future__ import annotations

from rcil.core.errors import RcilError


class EngineError(RcilError):
    """TensorRT refused a graph, or an engine is not what its sidecar says."""

    exit_code = 11


class NoGpuError(RcilError):
    """An NVIDIA GPU with its driver is needed, and none is here."""

    exit_code = 10

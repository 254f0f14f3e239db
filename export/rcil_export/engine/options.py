"""What to build."""

from __future__ import annotations

from dataclasses import dataclass

from rcil_export.engine.flavour import FlavourChoice
from rcil_export.interface import Precision
from rcil_export.shapes import InputShape


@dataclass(frozen=True)
class EngineOptions:
    """The choices of one build."""

    precision: Precision = "fp32"
    """What the ONNX file is in. It is read back from the parsed network; a difference is an error."""
    flavour: FlavourChoice = "auto"
    gpus: tuple[str, ...] = ()
    """Compute capabilities such as `sm86`. None: all that TensorRT-RTX knows from Ampere (sm80) on, or the GPU that the
    classic TensorRT runs on."""
    profile: InputShape | None = None
    """The range of sizes, for an ONNX file that leaves them open."""
    timing_cache: bool = True
    """Keep what classic TensorRT measures in the user's cache folder, so that the next build takes less time. Without
    it a build depends on nothing but its inputs."""

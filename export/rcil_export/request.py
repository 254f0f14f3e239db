"""What an export is asked for, with all defaults. Neither torch nor onnx is imported, so `--help` is fast."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rcil.core.documents import comma_separated
from rcil.core.errors import ConfigError, did_you_mean
from rcil_export.delivery.folder import Signing
from rcil_export.engine.flavour import FlavourChoice
from rcil_export.graph.interface import GraphInterface
from rcil_export.triton.serving import Serving

Target = Literal["onnx", "engine"]
TARGETS: tuple[Target, ...] = ("onnx", "engine")
AUTO = "auto"
"""The default of `--target`: an ONNX file, and an engine where one can be built; see `choose_targets`."""
MAX_CHECK_IMAGES = 64
"""Images that `rcil-export check` compares on by default."""


@dataclass(frozen=True)
class Request:
    """One export of a checkpoint."""

    model: Path
    output: Path
    interface: GraphInterface
    targets: tuple[Target, ...] = ("onnx",)
    targets_reason: str = ""
    """Why an engine is built or not, if nobody asked for either; see `choose_targets`."""
    flavour: FlavourChoice = "auto"
    gpus: tuple[str, ...] = ()
    timing_cache: bool = True
    """See `EngineOptions.timing_cache`."""
    calibrate: Path | None = None
    calibration: Literal["percentile", "entropy"] = "percentile"
    """How int8 chooses the ranges of values."""
    vnni: Literal["auto", "yes", "no"] | None = None
    """Whether the CPU that will run an int8 graph has VNNI; None: as this machine."""
    images: Path | None = None
    """Images to compare outputs on; None: those of `calibrate`, or generated images."""
    parent: Path | None = None
    """The checkpoint of the step before, to report what changed since."""
    limits: dict[str, float] = field(default_factory=dict)
    rounds: int = 20
    """Timed runs of the latency comparison; 0 leaves out latency and memory."""
    triton: Path | None = None
    name: str = "rcil"
    """Name of the model in the Triton repository."""
    serving: Serving = field(default_factory=Serving)
    """How Triton runs the model."""
    signing: Signing = field(default_factory=Signing)
    force: bool = False


def parse_targets(text: str) -> tuple[Target, ...]:
    """`onnx,engine` -> those names, checked; an engine is always built from the ONNX file beside it."""
    names = comma_separated(text)
    for name in names:
        if name not in TARGETS:
            raise ConfigError(f"unknown target '{name}'", did_you_mean(name, (*TARGETS, AUTO)))
    if not names:
        raise ConfigError("--target names nothing", "Write onnx, or onnx,engine, or leave the option out.")
    return TARGETS if "engine" in names else ("onnx",)

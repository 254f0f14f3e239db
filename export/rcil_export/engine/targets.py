"""Which GPUs an engine is built for."""

from __future__ import annotations

from rcil.core.errors import ConfigError
from rcil_export.engine.flavour import Flavour
from rcil_export.engine.gpu import find_gpus
from rcil_export.graph.interface import Precision

FIRST_BY_DEFAULT = 80
"""NVIDIA advises to build for Turing (sm75) alone: with it among the targets all the others get slower kernels."""
FIRST_WITH: dict[Precision, int] = {"bf16": 80}
"""First compute capability that has the type, where it is not all that TensorRT knows."""


def known_gpus(flavour: Flavour) -> tuple[str, ...]:
    """The compute capabilities that TensorRT-RTX builds for without a GPU, oldest first."""
    names = flavour.trt.ComputeCapability.__members__
    return tuple(sorted((name.lower() for name in names if name.startswith("SM")), key=number_of))


def choose_gpus(flavour: Flavour, asked: tuple[str, ...], precision: Precision) -> tuple[str, ...]:
    """The compute capabilities to build for, checked, oldest first and each once.

    Without a request TensorRT-RTX builds for all it knows from Ampere on. The classic TensorRT builds for the first GPU
    of this machine and nothing else.
    """
    wanted = {name.strip().lower() for name in asked}
    known = known_gpus(flavour) if flavour.name == "rtx" else (find_gpus()[0].capability,)
    for name in sorted(wanted):
        if name not in known and flavour.name == "classic":
            raise ConfigError(
                f"TensorRT builds for the GPU of this machine ({known[0]}), not for {name}",
                "Run this command on the target machine, or build with TensorRT-RTX: --flavour rtx.",
            )
        if name not in known:
            raise ConfigError(f"{flavour.title} cannot build for '{name}'", f"It builds for {', '.join(known)}.")
    default = known if flavour.name == "classic" else tuple(n for n in known if number_of(n) >= FIRST_BY_DEFAULT)
    chosen = tuple(sorted(wanted, key=number_of)) or default
    _check_precision(chosen, known, precision)
    return chosen


def number_of(name: str) -> int:
    """`sm86` -> 86."""
    return int(name.removeprefix("sm"))


def _check_precision(chosen: tuple[str, ...], known: tuple[str, ...], precision: Precision) -> None:
    first = FIRST_WITH.get(precision, 0)
    too_old = [name for name in chosen if number_of(name) < first]
    if too_old:
        able = [name for name in known if number_of(name) >= first]
        raise ConfigError(
            f"{', '.join(too_old)} cannot compute in {precision}",
            f"Leave it out ({precision} works on {', '.join(able) or 'newer GPUs'}), or use fp16.",
        )

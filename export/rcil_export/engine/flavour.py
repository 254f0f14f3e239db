"""The installed TensorRT and the GPUs it builds for: TensorRT-RTX needs no GPU to build, the classic one does."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal

from rcil.core.errors import ConfigError, MissingDependencyError, did_you_mean
from rcil_export.engine.errors import NoGpuError
from rcil_export.engine.gpu import find_gpus
from rcil_export.graph.interface import Precision

FlavourName = Literal["rtx", "classic"]
FlavourChoice = Literal["auto", "rtx", "classic"]
CHOICES: tuple[FlavourChoice, ...] = ("auto", "rtx", "classic")
MODULES = ("tensorrt", "tensorrt_rtx")
INSTALL: dict[FlavourName, str] = {"rtx": "pip install 'rcil[rtx]'", "classic": "pip install 'rcil[tensorrt]'"}
TITLES: dict[FlavourName, str] = {"rtx": "TensorRT-RTX", "classic": "TensorRT"}
FIRST_BY_DEFAULT = 80
"""NVIDIA advises against building for Turing (sm75) and other GPUs at once: the others would get slower kernels."""
FIRST_WITH: dict[Precision, int] = {"bf16": 80}
"""First compute capability that supports a precision, if not all GPUs that TensorRT knows do."""


@dataclass(frozen=True)
class Flavour:
    """An installed TensorRT."""

    name: FlavourName
    trt: Any
    """Its Python module; the two flavours have the same interface apart from compute capabilities."""

    @property
    def version(self) -> str:
        """For example 1.7.1.116."""
        return str(self.trt.__version__)

    @property
    def title(self) -> str:
        """Name and version, for messages."""
        return f"{TITLES[self.name]} {self.version}"


def flavour_of(trt: Any) -> Flavour:
    """The flavour of a TensorRT module; versions overlap, so the interface decides."""
    return Flavour("rtx" if hasattr(trt, "ComputeCapability") else "classic", trt)


def installed() -> dict[FlavourName, Flavour]:
    """Every TensorRT that can be imported."""
    found: dict[FlavourName, Flavour] = {}
    for name in MODULES:
        try:
            flavour = flavour_of(importlib.import_module(name))
        except (ImportError, OSError) as error:
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                continue
            raise MissingDependencyError(
                f"the package {name} is installed but cannot be imported: {error}",
                "Install it again; its version must fit this Python and the CUDA driver.",
            ) from error
        found[flavour.name] = flavour
    return found


def find_flavour(choice: str = "auto") -> Flavour:
    """The TensorRT to build with.

    Args:
        choice: `auto` takes the classic one where it is installed and a GPU is present, and TensorRT-RTX otherwise.
    """
    if choice not in CHOICES:
        raise ConfigError(f"unknown TensorRT flavour '{choice}'", did_you_mean(choice, CHOICES))
    found = installed()
    if not found:
        raise MissingDependencyError(
            "no TensorRT is installed",
            f"To build without a GPU: {INSTALL['rtx']}. To build on the GPU that will run it: {INSTALL['classic']}.",
        )
    wanted = _preferred(found) if choice == "auto" else "rtx" if choice == "rtx" else "classic"
    if wanted not in found:
        raise MissingDependencyError(f"{TITLES[wanted]} is not installed", f"Install it with: {INSTALL[wanted]}")
    if wanted == "classic" and not find_gpus():
        raise NoGpuError(
            "TensorRT builds on the GPU that will run the engine, and this machine has none",
            f"Build without a GPU with TensorRT-RTX ({INSTALL['rtx']}), or run this command on the target machine.",
        )
    return found[wanted]


def _preferred(found: dict[FlavourName, Flavour]) -> FlavourName:
    if "rtx" not in found or ("classic" in found and find_gpus()):
        return "classic"
    return "rtx"


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

"""Which TensorRT is installed: TensorRT-RTX, which builds without a GPU, or the classic one, which needs it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal

from rcil.core.errors import ConfigError, MissingDependencyError, did_you_mean
from rcil_export.engine.errors import NoGpuError
from rcil_export.engine.gpu import find_gpus

FlavourName = Literal["rtx", "classic"]
FlavourChoice = Literal["auto", "rtx", "classic"]
CHOICES: tuple[FlavourChoice, ...] = ("auto", "rtx", "classic")
MODULES = ("tensorrt", "tensorrt_rtx")
INSTALL: dict[FlavourName, str] = {"rtx": "pip install 'rcil[rtx]'", "classic": "pip install 'rcil[tensorrt]'"}
TITLES: dict[FlavourName, str] = {"rtx": "TensorRT-RTX", "classic": "TensorRT"}


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
        """For messages."""
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
        except ModuleNotFoundError as error:
            if error.name != name:
                raise _broken(name, error) from error
        except (ImportError, OSError) as error:
            raise _broken(name, error) from error
        else:
            found[flavour.name] = flavour
    return found


def find_flavour(choice: str = "auto") -> Flavour:
    """The TensorRT to build with.

    Args:
        choice: `auto` takes the classic one where it is installed and a GPU is present, and TensorRT-RTX otherwise.
    """
    if choice not in CHOICES:
        raise ConfigError(f"there is no TensorRT flavour '{choice}'", did_you_mean(choice, CHOICES))
    found = installed()
    if not found:
        raise MissingDependencyError(
            "no TensorRT is installed",
            f"To build without a GPU: {INSTALL['rtx']}. To build on the GPU that will run it: {INSTALL['classic']}.",
        )
    wanted = _preferred(found) if choice == "auto" else _named(choice)
    if wanted not in found:
        raise MissingDependencyError(f"{TITLES[wanted]} is not installed", f"Install it with: {INSTALL[wanted]}")
    if wanted == "classic" and not find_gpus():
        raise NoGpuError(
            "TensorRT builds on the GPU that will run the engine, and there is none here",
            f"Build without a GPU with TensorRT-RTX ({INSTALL['rtx']}), or run this command on the target machine.",
        )
    return found[wanted]


def _preferred(found: dict[FlavourName, Flavour]) -> FlavourName:
    if "rtx" not in found or ("classic" in found and find_gpus()):
        return "classic"
    return "rtx"


def _named(choice: str) -> FlavourName:
    return "rtx" if choice == "rtx" else "classic"


def _broken(name: str, error: Exception) -> MissingDependencyError:
    return MissingDependencyError(
        f"the package {name} is installed but cannot be imported: {error}",
        "Install it again; its version must fit this Python and the CUDA driver.",
    )

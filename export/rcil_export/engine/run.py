"""Running an engine on a GPU, through Polygraphy."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rcil.errors import MissingDependencyError, RcilError
from rcil_export.engine.errors import EngineError, NoGpuError
from rcil_export.engine.flavour import INSTALL, Flavour
from rcil_export.engine.gpu import find_gpus
from rcil_export.engine.layout import axis_ranges
from rcil_export.engine.log import collected_errors, logger_of
from rcil_export.engine.sidecar import EngineSidecar, check_installed, check_unchanged
from rcil_export.shapes import Extent

Array = NDArray[Any]


class EngineRunner:
    """Runs one engine on the first GPU; a context manager.

    Args:
        engine: The engine, with its sidecar beside it.
    """

    def __init__(self, engine: Path) -> None:
        self.engine = engine
        self.sidecar = check_unchanged(engine)
        self._runner: Any = None

    def __enter__(self) -> Self:
        _check_gpu(self.engine, self.sidecar)
        flavour = check_installed(self.engine, self.sidecar)
        make_runner = polygraphy_runner(flavour)
        with collected_errors() as errors:
            loaded = flavour.trt.Runtime(logger_of(flavour.trt)).deserialize_cuda_engine(self.engine.read_bytes())
            if loaded is None:
                raise EngineError(
                    f"{flavour.title} cannot load {self.engine}: {'; '.join(errors) or 'it gave no reason'}",
                    f"Build it again from {self.sidecar.onnx_file}, or use that file.",
                )
            runner = make_runner(loaded)
            self._guarded(runner.activate, errors)
        self._runner = runner
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            self._runner.deactivate()
            self._runner = None

    def run(self, image: Array) -> dict[str, Array]:
        """The outputs by name, as arrays of their own, for `image` in the shape and type that the sidecar states."""
        check_image(self.sidecar, image)
        assert self._runner is not None, "EngineRunner is a context manager"
        with collected_errors() as errors:
            outputs = self._guarded(lambda: self._runner.infer({self.sidecar.inputs[0].name: image}), errors)
        return {name: np.array(value) for name, value in outputs.items()}

    def _guarded(self, call: Callable[[], Any], errors: list[str]) -> Any:
        """Polygraphy's errors as ours, with what TensorRT logged."""
        try:
            return call()
        except importlib.import_module("polygraphy.exception").PolygraphyException as error:
            raise EngineError(
                f"{self.engine} failed on the GPU: {'; '.join([*errors, str(error)])}",
                f"Check the GPU with nvidia-smi, or use {self.sidecar.onnx_file}.",
            ) from error


def check_image(sidecar: EngineSidecar, image: Array) -> None:
    """Raise unless the engine takes arrays of this type and shape."""
    wanted = sidecar.inputs[0]
    ranges = _ranges(sidecar)
    fits = len(image.shape) == len(ranges) and all(
        extent.low <= size <= extent.high for size, extent in zip(image.shape, ranges, strict=True)
    )
    if image.dtype.name != wanted.dtype or not fits:
        sizes = ", ".join(str(e.low) if e.fixed else f"{e.low}..{e.high}" for e in ranges)
        raise RcilError(
            f"the engine takes '{wanted.name}' as {wanted.dtype} [{sizes}], not {image.dtype.name} {list(image.shape)}",
            "Resize the image, or build an engine for this size.",
        )


def _ranges(sidecar: EngineSidecar) -> tuple[Extent, ...]:
    shape = sidecar.inputs[0].shape
    if sidecar.profile is None:
        return tuple(Extent.of(size) for size in shape)
    return axis_ranges(shape, sidecar.profile)


def _check_gpu(engine: Path, sidecar: EngineSidecar) -> None:
    gpus = find_gpus()
    if not gpus:
        raise NoGpuError(
            f"{engine} needs an NVIDIA GPU with its driver, and there is none here",
            f"Use {engine.with_name(sidecar.onnx_file)} instead: it computes the same with ONNX Runtime.",
        )
    if gpus[0].capability not in sidecar.gpus:
        raise EngineError(
            f"{engine} was built for {', '.join(sidecar.gpus)}, and this GPU ({gpus[0].name}) is {gpus[0].capability}",
            f"Build it again from {sidecar.onnx_file} for {gpus[0].capability}, or use that file.",
        )


def polygraphy_runner(flavour: Flavour) -> Any:
    """Polygraphy's runner for this flavour, which it chooses once, when its TensorRT part is first imported."""
    is_rtx = flavour.name == "rtx"
    try:
        settings: Any = importlib.import_module("polygraphy.config")
        if "polygraphy.backend.trt" in sys.modules and is_rtx != settings.USE_TENSORRT_RTX:
            raise EngineError(
                "one process runs engines of one TensorRT flavour, and the other one is in use",
                "Run this engine in a process of its own.",
            )
        settings.USE_TENSORRT_RTX = is_rtx
        return importlib.import_module("polygraphy.backend.trt").TrtRunner
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"running an engine needs the package {error.name}, which is not installed",
            f"Install it with: {INSTALL[flavour.name]}",
        ) from error

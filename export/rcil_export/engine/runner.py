"""Running an engine on a GPU: pinned buffers, two streams, no toolkit."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from rcil.core.errors import ConfigError, RcilError
from rcil_export.engine.caches import RuntimeCache, runtime_cache_path
from rcil_export.engine.callbacks import collected_errors, logger_of
from rcil_export.engine.cuda import Cuda
from rcil_export.engine.errors import EngineError, NoGpuError
from rcil_export.engine.flavour import Flavour
from rcil_export.engine.gpu import find_gpus
from rcil_export.engine.sidecar import EngineSidecar, axis_ranges, check_installed, check_unchanged
from rcil_export.engine.slot import Slot, SlotPool
from rcil_export.graph.shapes import Extent

Array = NDArray[Any]
FRAMES_IN_FLIGHT = 2
"""One frame is copied while another one is computed. Each has buffers and working memory of its own."""


class EngineRunner:
    """Runs one engine on one GPU; a context manager. `run` may be called from several threads at once.

    Args:
        engine: The engine, with its sidecar beside it.
        device: The number of the GPU, in CUDA's order.
        open_cuda: Opens the GPU of this number.
    """

    def __init__(self, engine: Path, device: int = 0, open_cuda: Callable[[int], Cuda] = Cuda) -> None:
        self.engine = engine
        self.device = device
        self.sidecar = check_unchanged(engine)
        self._open_cuda = open_cuda
        self._stack = contextlib.ExitStack()
        self._pool: SlotPool | None = None
        self._cache: RuntimeCache | None = None
        self._unsaved = threading.Semaphore()
        """Acquired by the first frame that ends: it saves the kernels, because the process may be killed later."""

    def __enter__(self) -> Self:
        _check_gpu(self.engine, self.sidecar, self.device)
        flavour = check_installed(self.engine, self.sidecar)
        with contextlib.ExitStack() as stack, collected_errors() as errors:
            cuda = self._open_cuda(self.device)
            stack.callback(cuda.close)
            cuda.use()
            make_context = self._load(flavour, errors)

            def make_slot() -> Slot:
                cuda.use()
                return Slot(cuda, make_context(), self.sidecar, capture=flavour.name == "classic")

            pool = SlotPool(make_slot, FRAMES_IN_FLIGHT)
            stack.callback(pool.close)
            with pool.slot():
                pass  # a GPU without enough memory for the engine fails now, not at the first frame
            stack.callback(self._save_kernels, cuda)
            self._pool, self._stack = pool, stack.pop_all()
        return self

    def _load(self, flavour: Flavour, errors: list[str]) -> Callable[[], Any]:
        """Load the engine; returns a function that creates an execution context of it."""
        loaded = flavour.trt.Runtime(logger_of(flavour.trt)).deserialize_cuda_engine(self.engine.read_bytes())
        if loaded is None:
            raise EngineError(
                f"{flavour.title} cannot load {self.engine}: {'; '.join(errors) or 'it gave no reason'}",
                f"Build it again from {self.sidecar.onnx_file}, or use that file.",
            )
        arguments: tuple[Any, ...] = ()
        if flavour.name == "rtx":  # it compiles its kernels when it first runs on a GPU
            runtime_config = loaded.create_runtime_config()
            runtime_config.cuda_graph_strategy = flavour.trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
            self._cache = RuntimeCache(runtime_config, runtime_cache_path(self.engine))
            arguments = (runtime_config,)

        def make_context() -> Any:
            context = loaded.create_execution_context(*arguments)
            if context is None:
                raise EngineError(
                    f"{self.engine} does not start on the GPU: {'; '.join(errors) or 'TensorRT gave no reason'}",
                    f"Check the GPU's free memory with nvidia-smi, or use {self.sidecar.onnx_file}.",
                )
            return context

        return make_context

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, contextlib.ExitStack()
        stack.close()

    def _save_kernels(self, cuda: Cuda) -> None:
        """Save the kernels compiled since the first frame, for example for other sizes, unless the GPU broke."""
        cache, self._cache = self._cache, None
        if cache is not None:
            with contextlib.suppress(EngineError):
                cuda.use()
                cache.save()

    def run(self, image: Array) -> dict[str, Array]:
        """The outputs by name, as new arrays, for `image` in the shape and type that the sidecar states."""
        check_image(self.sidecar, image)
        assert self._pool is not None, "EngineRunner is a context manager"
        with self._pool.slot() as slot, collected_errors() as errors:
            try:
                outputs = slot.run(image)
            except EngineError as error:
                raise EngineError(
                    f"{self.engine} failed on the GPU: {'; '.join([*errors, error.message])}",
                    f"Check the GPU with nvidia-smi, or use {self.sidecar.onnx_file}.",
                ) from error
            if self._cache is not None and self._unsaved.acquire(blocking=False):
                self._cache.save()
        return outputs


def check_image(sidecar: EngineSidecar, image: Array) -> None:
    """Raise unless the engine takes arrays of this type and shape."""
    wanted = sidecar.inputs[0]
    shape, profile = wanted.shape, sidecar.profile
    ranges = tuple(map(Extent.of, shape)) if profile is None else axis_ranges(shape, profile)
    fits = len(image.shape) == len(ranges) and all(
        extent.low <= size <= extent.high for size, extent in zip(image.shape, ranges, strict=True)
    )
    if image.dtype.name != wanted.dtype or not fits:
        sizes = ", ".join(map(str, ranges))
        raise RcilError(
            f"the engine takes '{wanted.name}' as {wanted.dtype} [{sizes}], not {image.dtype.name} {list(image.shape)}",
            "Resize the image, or build an engine for this size.",
        )


def _check_gpu(engine: Path, sidecar: EngineSidecar, device: int) -> None:
    gpus = find_gpus()
    if not gpus:
        raise NoGpuError(
            f"{engine} needs an NVIDIA GPU with its driver, and this machine has none",
            f"Use {engine.with_name(sidecar.onnx_file)} instead: it computes the same with ONNX Runtime.",
        )
    if device >= len(gpus):
        raise ConfigError(
            f"this machine has no GPU number {device}, only {len(gpus)} GPUs", f"Choose cuda:0 to cuda:{len(gpus) - 1}."
        )
    gpu = gpus[device]
    if gpu.capability not in sidecar.gpus:
        raise EngineError(
            f"{engine} was built for {', '.join(sidecar.gpus)}, and this GPU ({gpu.name}) is {gpu.capability}",
            f"Build it again from {sidecar.onnx_file} for {gpu.capability}, or use that file.",
        )

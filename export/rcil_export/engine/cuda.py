"""The few calls of the CUDA driver that running an engine takes.

They go to the driver (libcuda) through `cuda-bindings`. Neither a CUDA toolkit nor libcudart is needed: TensorRT has
its own inside, so a machine with a driver can run engines.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import MissingDependencyError, first_line
from rcil_export.engine.errors import EngineError, NoGpuError

Bytes = NDArray[np.uint8]
PACKAGE = "cuda.bindings.driver"
OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY."""
NON_BLOCKING_STREAM = 1
"""CU_STREAM_NON_BLOCKING: the stream does not wait for the default stream, on which others may work."""
PORTABLE = 1
"""CU_MEMHOSTALLOC_PORTABLE: the memory is pinned for all contexts of the process."""


class Cuda:
    """One GPU. Addresses and handles are plain numbers; every failure is an `EngineError`.

    Args:
        device: The number of the GPU, in CUDA's order.
    """

    def __init__(self, device: int = 0) -> None:
        self._api = _bindings()
        try:
            self._call("cuInit", 0)
        except (RuntimeError, OSError) as error:  # cuda-bindings did not find libcuda
            raise NoGpuError(
                f"the NVIDIA driver cannot be loaded: {first_line(error)}",
                "Install the driver of the GPU; a CUDA toolkit is not needed.",
            ) from error
        self._device = self._call("cuDeviceGet", device)
        self._context = self._call("cuDevicePrimaryCtxRetain", self._device)

    def use(self) -> None:
        """Make the GPU's context current in the calling thread."""
        self._call("cuCtxSetCurrent", self._context)

    def device_memory(self, size: int) -> int:
        """Allocate `size` bytes on the GPU; returns the address."""
        return int(self._call("cuMemAlloc", size))

    def free_device(self, address: int) -> None:
        """Free memory of `device_memory`."""
        self._call("cuMemFree", address)

    def pinned_memory(self, size: int) -> int:
        """Allocate `size` bytes of page-locked host memory, which the GPU reads and writes by itself."""
        return int(self._call("cuMemHostAlloc", size, PORTABLE))

    def free_pinned(self, address: int) -> None:
        """Free memory of `pinned_memory`."""
        self._call("cuMemFreeHost", address)

    def stream(self) -> int:
        """Create a stream."""
        return int(self._call("cuStreamCreate", NON_BLOCKING_STREAM))

    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream."""
        self._call("cuStreamDestroy", stream)

    def copy_in(self, device: int, host: int, size: int, stream: int) -> None:
        """Start a copy from pinned memory to the GPU."""
        self._call("cuMemcpyHtoDAsync", device, host, size, stream)

    def copy_out(self, host: int, device: int, size: int, stream: int) -> None:
        """Start a copy from the GPU to pinned memory."""
        self._call("cuMemcpyDtoHAsync", host, device, size, stream)

    def wait(self, stream: int) -> None:
        """Block until all work of the stream is done."""
        self._call("cuStreamSynchronize", stream)

    def begin_capture(self, stream: int) -> None:
        """Record the work that this thread gives to the stream, instead of running it."""
        mode = self._api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", stream, mode)

    def end_capture(self, stream: int) -> int:
        """End the recording; returns a graph that can be launched."""
        recorded = self._call("cuStreamEndCapture", stream)
        try:
            return int(self._call("cuGraphInstantiate", recorded, 0))
        finally:
            self._call("cuGraphDestroy", recorded)

    def launch(self, graph: int, stream: int) -> None:
        """Start all recorded work at once."""
        self._call("cuGraphLaunch", graph, stream)

    def destroy_graph(self, graph: int) -> None:
        """Destroy a graph."""
        self._call("cuGraphExecDestroy", graph)

    def close(self) -> None:
        """Release the context."""
        self._call("cuDevicePrimaryCtxRelease", self._device)

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the driver, which returns a status and then its results."""
        status, *results = getattr(self._api, name)(*arguments)
        if int(status):
            raise EngineError(
                f"the GPU refused {name}: {getattr(status, 'name', status)}",
                "Other programs use the GPU's memory: stop them, or take a smaller batch or model."
                if int(status) == OUT_OF_MEMORY
                else "Check the GPU with nvidia-smi, or use the ONNX file.",
            )
        return results[0] if results else None


def _bindings() -> Any:
    try:
        return importlib.import_module(PACKAGE)
    except (ImportError, OSError) as error:
        raise MissingDependencyError(
            f"running an engine needs the package cuda-bindings, which cannot be imported: {first_line(error)}",
            "Install it with: pip install cuda-bindings",
        ) from error


def host_array(address: int, size: int) -> Bytes:
    """Pinned memory as bytes [size]; it must outlive the array."""
    memory = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(memoryview(memory), np.uint8)

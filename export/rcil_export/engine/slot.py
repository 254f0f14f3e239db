"""Frames in flight on a GPU: each has a slot, which is an execution context with a stream and buffers of its own."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rcil.core.log import log
from rcil_export.engine.cuda import Cuda, host_array
from rcil_export.engine.errors import EngineError
from rcil_export.engine.sidecar import EngineSidecar

Array = NDArray[Any]
Shape = tuple[int, ...]
ALIGNMENT = 256
"""TensorRT wants the addresses of tensors to be multiples of this."""


@dataclass(frozen=True)
class Output:
    """An output and its offset in the block of memory that all outputs share."""

    name: str
    dtype: np.dtype[Any]
    shape: Shape
    offset: int

    @property
    def size(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class Memory:
    """A block on the GPU and a pinned block of the same size on the host; grows, never shrinks."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self.size = self.device = self.host = 0

    def reserve(self, size: int) -> None:
        """Have at least `size` bytes; the content of the blocks is lost when they grow."""
        if size <= self.size:
            return
        self.free()
        self.device = self._cuda.device_memory(size)
        self.host = self._cuda.pinned_memory(size)
        self.size = size

    def free(self) -> None:
        """Free both blocks; harmless if there are none."""
        device, host = self.device, self.host
        self.size = self.device = self.host = 0
        if device:
            self._cuda.free_device(device)
        if host:
            self._cuda.free_pinned(host)


class Slot:
    """Runs one batch at a time: one copy to the GPU, one copy back, one wait.

    All outputs share one block of memory, so that one copy brings them back. While the shape stays the same, nothing is
    allocated and no address is set. With `capture` the work of a frame is recorded as a CUDA graph and launched as one:
    classic TensorRT leaves that to the caller, TensorRT-RTX does it itself.

    Args:
        cuda: The GPU; its context is current.
        context: TensorRT's execution context, used by this slot alone.
        sidecar: Names and types of the tensors.
        capture: Record a CUDA graph.
    """

    def __init__(self, cuda: Cuda, context: Any, sidecar: EngineSidecar, *, capture: bool) -> None:
        self._cuda = cuda
        self._context = context
        self._image = sidecar.inputs[0].name
        self._types = {tensor.name: np.dtype(tensor.dtype) for tensor in sidecar.outputs}
        self._capture = capture
        self._shape: Shape = ()
        self._outputs: tuple[Output, ...] = ()
        self._graph: int | None = None
        self._ran = False
        self._in, self._out = Memory(cuda), Memory(cuda)
        self._stream: int | None = cuda.stream()

    def run(self, image: Array) -> dict[str, Array]:
        """The outputs by name, as new arrays."""
        stream = self._stream
        assert stream is not None, "the slot is closed"
        self._cuda.use()
        if image.shape != self._shape:
            self._set_shape(image.shape, image.nbytes)
        host_array(self._in.host, image.nbytes)[:] = np.ascontiguousarray(image).reshape(-1).view(np.uint8)
        self._cuda.copy_in(self._in.device, self._in.host, image.nbytes, stream)
        self._execute(stream)
        last = self._outputs[-1]
        size = last.offset + last.size
        self._cuda.copy_out(self._out.host, self._out.device, size, stream)
        self._cuda.wait(stream)
        values = host_array(self._out.host, size)
        return {
            out.name: values[out.offset : out.offset + out.size].view(out.dtype).reshape(out.shape).copy()
            for out in self._outputs
        }

    def _set_shape(self, shape: Shape, size: int) -> None:
        """Allocate memory for images of this shape, and give TensorRT the addresses."""
        self._shape = ()  # until all of this succeeded
        self._drop_graph()
        self._check(self._context.set_input_shape(self._image, shape), f"the shape {list(shape)}")
        self._outputs = tuple(self._layout())
        self._in.reserve(size)
        self._out.reserve(self._outputs[-1].offset + self._outputs[-1].size)
        self._check(self._context.set_tensor_address(self._image, self._in.device), f"memory for '{self._image}'")
        for out in self._outputs:
            address = self._out.device + out.offset
            self._check(self._context.set_tensor_address(out.name, address), f"memory for '{out.name}'")
        self._shape = shape

    def _layout(self) -> Iterator[Output]:
        offset = 0
        for name, dtype in self._types.items():
            out = Output(name, dtype, tuple(self._context.get_tensor_shape(name)), offset)
            if min(out.shape) < 0:
                raise EngineError(f"TensorRT does not know the shape of '{name}'", "Build the engine again.")
            yield out
            offset += -(-out.size // ALIGNMENT) * ALIGNMENT

    def _execute(self, stream: int) -> None:
        """Start the network; with `capture` as one CUDA graph from the second frame of a shape on.

        The first frame runs without a graph, because TensorRT finishes its preparations for a shape then.
        """
        if self._capture and self._ran and self._graph is None:
            self._record(stream)
        if self._graph is not None:
            self._cuda.launch(self._graph, stream)
            return
        self._enqueue(stream)
        self._ran = True

    def _enqueue(self, stream: int) -> None:
        self._check(self._context.execute_async_v3(stream), "to run")

    def _record(self, stream: int) -> None:
        try:
            self._cuda.begin_capture(stream)
            try:
                self._enqueue(stream)
            finally:
                graph = self._cuda.end_capture(stream)
            self._graph = graph
        except EngineError as error:
            self._capture = False
            log.info("the engine runs without a CUDA graph: %s", error.message)

    def _drop_graph(self) -> None:
        graph, self._graph, self._ran = self._graph, None, False
        if graph is not None:
            self._cuda.destroy_graph(graph)

    @staticmethod
    def _check(done: bool, what: str) -> None:
        if not done:
            raise EngineError(f"TensorRT refused {what}", "Build the engine again, or use the ONNX file.")

    def close(self) -> None:
        """Free everything, as far as a broken GPU still allows it; harmless when called twice."""
        stream, self._stream = self._stream, None
        if stream is None:
            return
        self._context = None
        steps: list[Callable[[], None]] = [
            self._cuda.use,
            self._drop_graph,
            self._in.free,
            self._out.free,
            lambda: self._cuda.destroy_stream(stream),
        ]
        for step in steps:
            with contextlib.suppress(EngineError):
                step()


class SlotPool:
    """At most `limit` slots. A thread that finds all of them in use waits for one.

    Args:
        make: Creates a slot, or raises.
        limit: Each slot takes memory of the GPU, and more than two frames in flight gain nothing.
    """

    def __init__(self, make: Callable[[], Slot], limit: int) -> None:
        self._make = make
        self._limit = limit
        self._changed = threading.Condition()
        self._free: list[Slot] = []
        self._in_use = 0
        self._closed = False

    @contextlib.contextmanager
    def slot(self) -> Iterator[Slot]:
        """A slot for the exclusive use of the block."""
        slot = self._take()
        try:
            yield slot
        finally:
            with self._changed:
                self._free.append(slot)
                self._in_use -= 1
                self._changed.notify_all()

    def _take(self) -> Slot:
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._closed or self._free or self._in_use < self._limit)
                if self._closed:
                    raise EngineError("the engine is closed", "Open it again.")
                slot = self._free.pop() if self._free else self._made()
                if slot is not None:
                    self._in_use += 1
                    return slot

    def _made(self) -> Slot | None:
        """A new slot; None if the GPU has no memory for another one, so that those in use must suffice."""
        try:
            return self._make()
        except EngineError as error:
            if not self._in_use:
                raise
            self._limit = self._in_use
            log.info("%d frames in flight at most: %s", self._limit, error.message)
            return None

    def close(self) -> None:
        """Wait for the frames in flight, refuse new ones, and free everything; harmless when called twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._in_use)
            free, self._free = self._free, []
        for slot in free:
            slot.close()

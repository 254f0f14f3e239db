"""A GPU and a TensorRT runtime that are made of host memory, and write down every call."""

import ctypes
from types import SimpleNamespace

import numpy as np

from rcil_export.engine.errors import EngineError


class FakeCuda:
    """`rcil_export.engine.cuda.Cuda` in host memory. `fails` names the calls that are refused."""

    def __init__(self, device=0):
        self.device = device
        self.calls = []
        self.blocks = {}
        self.open = set()
        self.next = 100
        self.fails = ()
        self.captured = None
        self.graphs = {}
        self.free_bytes = None

    def _note(self, name):
        self.calls.append(name)
        if name in self.fails:
            raise EngineError(f"the GPU refused {name}", "")

    def _handle(self):
        self.next += 1
        self.open.add(self.next)
        return self.next

    def _block(self, size):
        block = (ctypes.c_uint8 * size)()
        address = ctypes.addressof(block)
        self.blocks[address] = block
        return address

    def use(self):
        self._note("use")

    def device_memory(self, size):
        self._note("device_memory")
        return self._block(size)

    def free_device(self, address):
        self._note("free_device")
        del self.blocks[address]

    def pinned_memory(self, size):
        self._note("pinned_memory")
        return self._block(size)

    def free_pinned(self, address):
        self._note("free_pinned")
        del self.blocks[address]

    def stream(self):
        self._note("stream")
        return self._handle()

    def destroy_stream(self, stream):
        self._note("destroy_stream")
        self.open.remove(stream)

    def copy_in(self, device, host, size, stream):
        self._note("copy_in")
        assert stream in self.open
        ctypes.memmove(device, host, size)

    def copy_out(self, host, device, size, stream):
        self._note("copy_out")
        assert stream in self.open
        ctypes.memmove(host, device, size)

    def wait(self, stream):
        self._note("wait")

    def begin_capture(self, stream):
        self._note("begin_capture")
        self.captured = []

    def end_capture(self, stream):
        self._note("end_capture")
        graph = self._handle()
        self.graphs[graph], self.captured = self.captured, None
        return graph

    def launch(self, graph, stream):
        self._note("launch")
        for work in self.graphs[graph]:
            work()

    def destroy_graph(self, graph):
        self._note("destroy_graph")
        self.open.remove(graph)

    def close(self):
        self._note("close")

    def of(self, *names):
        """The calls with these names, in order."""
        return [call for call in self.calls if call in names]


class FakeContext:
    """An execution context of a network whose mask is the red channel and whose confidence is red / 255."""

    def __init__(self, cuda):
        self.cuda = cuda
        self.shape = None
        self.addresses = {}
        self.runs = True

    def set_input_shape(self, name, shape):
        assert name == "image"
        self.shape = tuple(shape)
        return True

    def get_tensor_shape(self, name):
        return self.shape[:3]

    def set_tensor_address(self, name, address):
        assert address % 16 == 0
        self.addresses[name] = address
        return True

    def execute_async_v3(self, stream):
        assert stream in self.cuda.open
        if self.cuda.captured is not None:
            self.cuda.captured.append(self._work)
            self.cuda.calls.append("enqueue (captured)")
        else:
            self.cuda.calls.append("enqueue")
            self._work()
        return self.runs

    def _work(self):
        size = int(np.prod(self.shape))
        image = np.frombuffer((ctypes.c_uint8 * size).from_address(self.addresses["image"]), np.uint8)
        red = image.reshape(self.shape)[..., 0]
        ctypes.memmove(self.addresses["mask"], red.tobytes(), red.size)
        if "confidence" in self.addresses:
            confidence = (red / np.float32(255)).astype(np.float32)
            ctypes.memmove(self.addresses["confidence"], confidence.tobytes(), confidence.nbytes)


class FakeRuntimeCache:
    """Takes back what it gave; everything else is of another GPU."""

    content = b"kernels"

    def __init__(self):
        self.loaded = b""

    def deserialize(self, content):
        if content != self.content:
            return False
        self.loaded = content
        return True

    def serialize(self):
        return self.content


def fake_engine(cuda, *, starts=True):
    """What `deserialize_cuda_engine` gives: an engine with a runtime configuration, as TensorRT-RTX has it."""
    made = SimpleNamespace(contexts=[], configs=[], arguments=[])

    def create_runtime_config():
        config = SimpleNamespace(cuda_graph_strategy=None, cache=None, create_runtime_cache=FakeRuntimeCache)
        config.set_runtime_cache = lambda cache: setattr(config, "cache", cache)
        made.configs.append(config)
        return config

    def create_execution_context(*arguments):
        made.arguments.append(arguments)
        if not starts:
            return None
        made.contexts.append(FakeContext(cuda))
        return made.contexts[-1]

    return SimpleNamespace(
        create_runtime_config=create_runtime_config, create_execution_context=create_execution_context, made=made
    )

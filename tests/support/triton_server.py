"""A real Triton server on loopback, and small models for it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient
from google.protobuf import json_format, text_format
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata, class_table
from rcil_export.graph.interface import Interface

TOOLS = Path(__file__).parents[2] / "tools" / "triton"
SPACING = 40


def metadata_of(names_by_step: list[list[str]]) -> Metadata:
    """A deployed model of the last step."""
    return Metadata(architecture=Architecture(), classes=class_table(names_by_step), step=len(names_by_step) - 1)


def write_onnx(path: Path, classes: int, interface: Interface) -> Path:
    """A segmenter of one 1 x 1 conv with the tensors of ours: the class whose brightness is nearest to the red one.

    Class c has brightness 40 c; the squared distance to it is, up to the part that all share, linear in red.
    """
    c = np.arange(classes, dtype=np.float32) * SPACING
    weight = np.zeros((classes, 3, 1, 1), np.float32)
    weight[:, 0, 0, 0] = 2 * c
    nodes = [
        helper.make_node("Cast", ["image"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["float"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["planes", "weight", "bias"], ["logits"]),
        helper.make_node("ArgMax", ["logits"], ["index"], axis=1, keepdims=0),
        helper.make_node("Cast", ["index"], ["mask"], to=TensorProto.UINT8),
        helper.make_node("Softmax", ["logits"], ["shares"], axis=1),
        helper.make_node("ReduceMax", ["shares", "axis"], ["confidence"], keepdims=0),
    ]
    axes = {"N": interface.shape.batch, "H": interface.shape.height, "W": interface.shape.width}
    n, h, w = (extent.low if extent.fixed else axis for axis, extent in axes.items())
    outputs = {
        "mask": helper.make_tensor_value_info("mask", TensorProto.UINT8, [n, h, w]),
        "confidence": helper.make_tensor_value_info("confidence", TensorProto.FLOAT, [n, h, w]),
        "logits": helper.make_tensor_value_info("logits", TensorProto.FLOAT, [n, classes, h, w]),
    }
    graph = helper.make_graph(
        nodes,
        "segmenter",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, [n, h, w, 3])],
        [outputs[name] for name in interface.outputs],
        [
            numpy_helper.from_array(weight, "weight"),
            numpy_helper.from_array(-(c**2), "bias"),
            numpy_helper.from_array(np.array([1], np.int64), "axis"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return path


def expected_mask(image: NDArray[np.uint8], classes: int) -> NDArray[np.uint8]:
    """What `write_onnx` computes, image [..., H, W, 3] -> [..., H, W], for brightness that is no tie."""
    nearest = np.rint(image[..., 0].astype(np.float64) / SPACING)
    return np.clip(nearest, 0, classes - 1).astype(np.uint8)


def read_by_triton(text: str) -> dict[str, Any]:
    """A configuration as Triton's own schema reads it. It is loaded by its path, as its package needs gRPC."""
    place = Path(tritonclient.__path__[0]) / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("triton_model_config", place)
    assert spec is not None and spec.loader is not None
    schema = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(schema)
    config = text_format.Parse(text, schema.ModelConfig())
    return json_format.MessageToDict(config, preserving_proto_field_name=True)


def tool(name: str) -> ModuleType:
    """A script of `tools/triton` as a module."""
    spec = importlib.util.spec_from_file_location(f"triton_{name}", TOOLS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def server_folder(request: pytest.FixtureRequest) -> Path:
    """The folder with the server: `RCIL_TRITON`, or pytest's cache. Skips where the server cannot be installed."""
    named = os.environ.get("RCIL_TRITON")
    folder = Path(named) if named else request.config.cache.mkdir("triton-server")  # type: ignore[union-attr]
    setup = tool("setup_server")
    try:
        setup.setup_server(folder)
    except setup.SetupError as error:
        pytest.skip(f"no Triton server: {error}")
    return folder


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    grpc_url: str
    folder: Path
    log: Path
    environment: dict[str, str]

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """GET, or POST where there is a body; the answer's JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.url}/v2/{path}", data=data)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                content = answer.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.code} {error.read().decode()}\n{self.log_tail()}") from error
        return json.loads(content) if content else None

    def load(self, name: str) -> None:
        """Load a model, or the versions of it that are new, over HTTP."""
        self.call(f"repository/models/{name}/load", {})

    def load_beside_clients(self, name: str) -> None:
        """The same over gRPC, which leaves the threads that serve HTTP clients alone."""
        assert self.python(TOOLS / "load_model.py", self.grpc_url, name).wait(timeout=300) == 0, self.log_tail()

    def states(self, name: str) -> dict[str, str]:
        """State of each version that the server knows."""
        index = self.call("repository/index", {})
        return {row["version"]: row["state"] for row in index if row["name"] == name}

    def python(self, script: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """A script in the server's environment."""
        command = [str(self.folder / "venv" / "bin" / "python"), str(script), *arguments]
        return subprocess.Popen(command, env=self.environment, text=True, **options)

    def log_tail(self) -> str:
        """For messages."""
        return self.log.read_text(errors="replace")[-4000:]


@contextlib.contextmanager
def running(folder: Path, repository: Path, log: Path, port: int | None = None) -> Iterator[Server]:
    """Start the server without models on loopback, for HTTP on `port` or a free one; stop it with SIGTERM and wait."""
    environment = _environment(folder)
    http, grpc = _free_ports(2)
    http = port or http
    command = [
        str(tool("setup_server").site_packages(folder) / "pytriton" / "tritonserver" / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={folder / 'backends'}",
        "--model-control-mode=explicit",
        "--http-address=127.0.0.1",
        f"--http-port={http}",
        "--http-thread-count=2",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={grpc}",
        "--allow-metrics=false",
        "--exit-timeout-secs=20",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    server = Server(f"127.0.0.1:{http}", f"127.0.0.1:{grpc}", folder, log, environment)
    try:
        _wait_until_ready(server, process)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
    assert code == 0, server.log_tail()


def _environment(folder: Path) -> dict[str, str]:
    """The Python stub finds its interpreter by PATH, and the libraries by LD_LIBRARY_PATH."""
    libraries = [
        sysconfig.get_config_var("LIBDIR"),
        str(tool("setup_server").site_packages(folder) / "nvidia_pytriton.libs"),
    ]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV", "COV"))}
    return kept | {
        "PATH": f"{folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "OMP_NUM_THREADS": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def _wait_until_ready(server: Server, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"tritonserver ended with {process.returncode}:\n{server.log_tail()}")
        with contextlib.suppress(OSError, RuntimeError):
            server.call("health/ready")
            return
        time.sleep(0.2)
    raise RuntimeError(f"tritonserver was not ready after {seconds} s:\n{server.log_tail()}")

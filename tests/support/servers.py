"""Models whose masks are known in advance, and servers on loopback that run them."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import httpx
import numpy as np
import onnx
from fastapi import FastAPI
from numpy.typing import NDArray
from triton_server import SPACING, expected_mask, metadata_of
from triton_server import write_onnx as write_graph

from rcil.model.header import METADATA_KEY
from rcil.model.metadata import Metadata
from rcil_export.graph.interface import INTERFACE_KEY, Interface
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.graph.shapes import Extent, InputShape
from rcil_serve.http.run import listen, make_server
from rcil_serve.runtime.backends import Backend, Outputs

SIZE = (24, 40)
NAMES = [["background", "road"], ["cone"], ["ball"], ["crate"]]
"""By step; the class of a pixel is the one whose brightness, 40 times its row, is nearest to the pixel's red."""
FIXED = Interface(shape=InputShape.of(*SIZE))
ANY_SIZE = Interface(
    shape=InputShape(
        batch=Extent(low=1, usual=1, high=4),
        height=Extent(low=8, usual=24, high=512),
        width=Extent(low=8, usual=40, high=512),
    ),
    outputs=("mask", "confidence"),
)


def write_model(path: Path, step: int, interface: Interface = FIXED, metadata: Metadata | None = None) -> Path:
    """A described model of the step, whole or not at all, so that a server may read it at any time."""
    metadata = metadata or metadata_of(NAMES[: step + 1])
    scratch = path.with_suffix(f".{threading.get_ident()}.scratch")
    document = onnx.load(write_graph(scratch, len(metadata.classes), interface))
    scratch.unlink()
    for key, text in ((METADATA_KEY, metadata.model_dump_json()), (INTERFACE_KEY, interface.model_dump_json())):
        document.metadata_props.add(key=key, value=text)
    write_onnx(path, document)
    return path


def rows_of(image: NDArray[np.uint8], step: int) -> NDArray[np.uint8]:
    """The mask that a model of `write_model` gives, image [..., H, W, 3] -> [..., H, W]."""
    return expected_mask(image, sum(map(len, NAMES[: step + 1])))


def picture(seed: int, height: int = SIZE[0], width: int = SIZE[1]) -> NDArray[np.uint8]:
    """RGB [H, W, 3] that shows every class of the last step, with no pixel between two."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 6, (height // 8, width // 8)).repeat(8, 0).repeat(8, 1)
    image = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    image[..., 0] = np.minimum(rows * SPACING, 255)
    return image


def png(image: NDArray[np.uint8]) -> bytes:
    """RGB [H, W, 3] as a PNG file."""
    return cv2.imencode(".png", np.ascontiguousarray(image[..., ::-1]))[1].tobytes()


def jpeg(image: NDArray[np.uint8]) -> bytes:
    """RGB [H, W, 3] as a JPEG file."""
    return cv2.imencode(".jpg", np.ascontiguousarray(image[..., ::-1]))[1].tobytes()


def unpng(data: bytes) -> NDArray[np.uint8]:
    """A PNG file as it is: grey [H, W], or RGB [H, W, 3]."""
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    return pixels if pixels.ndim == 2 else pixels[..., ::-1]


class Wrapped:
    """A backend that calls something before every run, and notes when it is closed."""

    def __init__(self, inner: Backend, before: Callable[[], None] = lambda: None) -> None:
        self.name, self.sha256, self.device = inner.name, inner.sha256, inner.device
        self.metadata, self.interface = inner.metadata, inner.interface
        self.before = before
        self.closed = 0
        self._inner = inner

    def run(self, batch: NDArray[np.uint8]) -> Outputs:
        assert not self.closed, "a closed model was run"
        self.before()
        return self._inner.run(batch)

    def close(self) -> None:
        self.closed += 1
        self._inner.close()


@contextlib.contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """The app behind uvicorn on a free port of loopback; the address without a scheme."""
    with listen("127.0.0.1", 0) as place:
        server = make_server(app, timeout_s=5)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            assert server.started, "the server did not start"
            yield f"127.0.0.1:{place.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=120)


SCRIPT = """
import sys
from pathlib import Path
from rcil_serve.http.options import HttpOptions
from rcil_serve.http.run import serve
try:
    serve(HttpOptions(Path(sys.argv[1]), port=0, threads=1, {options}))
finally:
    print("torch" in sys.modules)
"""


@contextlib.contextmanager
def server_process(model: Path, log: Path, **options: object) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`serve` in a process of its own; its address with scheme, once it listens, and the process.

    Args:
        model: To serve.
        log: File for what the server says; its last line is whether torch was imported.
        options: Of `HttpOptions`.
    """
    script = SCRIPT.format(options=", ".join(f"{name}={value!r}" for name, value in options.items()))
    with log.open("w") as out:
        process = subprocess.Popen([sys.executable, "-c", script, str(model)], stdout=out, stderr=out, text=True)
    try:
        until = time.monotonic() + 300
        while (found := re.search(r"listening on (http://\S+)", log.read_text())) is None:
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.02)
        yield found[1], process
    finally:
        process.terminate()
        process.wait(timeout=120)


@contextlib.contextmanager
def client_of(app: FastAPI) -> Iterator[httpx.Client]:
    """A plain client of a running server."""
    with running(app) as address, httpx.Client(base_url=f"http://{address}", timeout=120) as client:
        yield client

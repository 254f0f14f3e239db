"""HTTP requests without a network: the application is called as uvicorn calls it."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from fastapi import FastAPI

from rcil.model.metadata import Metadata
from rcil_export.graph.interface import Interface
from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions
from rcil_serve.http.protocol.answers import RefusalError
from rcil_serve.http.protocol.messages import HEADER_LENGTH
from rcil_serve.runtime.backends import Outputs
from tools.fuzz.cases import Case, Reader
from tools.fuzz.mutate import NUMBERS, TEXTS, damaged, damaged_json
from tools.fuzz.seeds import damaged_image, interface_document, jpeg, metadata_document, png

PATHS = (
    "/segment", "/segment?output=json", "/segment?output=overlay&alpha=0.3", "/v2/models/rcil/infer",
    "/v2/models/rcil/versions/1/infer", "/v2/repository/models/rcil/load", "/v2/repository/index",
    "/v2/models/rcil", "/v2/models/rcil/ready", "/classes", "/metrics", "/v2", "/",
)  # fmt: skip
INFER: dict[str, Any] = {
    "id": "a7",
    "inputs": [{"name": "image", "datatype": "UINT8", "shape": [1, 4, 4, 3], "data": [7] * 48, "parameters": {}}],
    "outputs": [{"name": "mask", "parameters": {"binary_data": False}}],
    "parameters": {"binary_data_output": True},
}
FORM = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'


class Stripes:
    """A model without a runtime: the class is a third of the red value."""

    name, sha256, device = "stripes", "0" * 64, "here"

    def __init__(self) -> None:
        self.metadata = Metadata.model_validate(metadata_document())
        self.interface = Interface.model_validate(interface_document())

    def run(self, batch: np.ndarray[Any, np.dtype[np.uint8]]) -> Outputs:
        """See `Backend.run`."""
        mask = np.minimum(batch[..., 0] // 86, 2).astype(np.uint8)
        return Outputs(mask, np.ones(mask.shape, np.float32))

    def close(self) -> None:
        """See `Backend.close`."""


def readers() -> dict[str, Reader]:
    """The reader of this module."""
    return {"http": Reader("http", make, read)}


def read(folder: Path) -> None:
    """Send a request; a status of 500 or above is a failure, one of 400 or above a refusal."""
    head = json.loads((folder / "head.json").read_bytes())
    status, answer = _loop().run_until_complete(_call(head, (folder / "body").read_bytes()))
    if status >= 500:
        raise RuntimeError(f"{head['path']} answers {status}: {answer[:200]!r}")
    if status >= 400:
        raise RefusalError(status, json.loads(answer)["error"], "Refused.")


def make(random: Random) -> Case:
    """A request with mistakes in its path, headers or body."""
    path, method = random.choice(PATHS[:6] if random.random() < 0.9 else PATHS), "POST"
    headers: dict[str, str] = {}
    body = b""
    if path.startswith("/segment"):
        image = random.choice((png(), jpeg()))
        body = damaged_image(random, image) if random.random() < 0.8 else image
        if random.random() < 0.3:
            headers["content-type"] = random.choice(("multipart/form-data; boundary=b", "multipart/form-data", "x/y"))
            body = FORM + body + b"\r\n--b--\r\n"
            body = damaged(random, body, (FORM,)) if random.random() < 0.7 else body
    elif path.endswith("/load"):
        body = damaged_json(random, {"parameters": {"force": False}})
    elif path.endswith("/infer"):
        body, headers = _infer(random)
    if random.random() < 0.15:
        path = _other_path(random, path)
    if random.random() < 0.1:
        method = random.choice(("GET", "PUT", "DELETE", "HEAD", "OPTIONS", "x"))
    if random.random() < 0.15:
        body, headers["content-encoding"] = _packed(random, body)
    if random.random() < 0.1:
        name = random.choice(("content-length", "content-type", "authorization", "expect", "host", "sec-fetch-site"))
        headers[name] = random.choice((*TEXTS, *map(str, NUMBERS), "9" * 5000, "multipart/form-data; boundary=", "²"))
    cut = random.randrange(len(body) + 1) if random.random() < 0.3 else len(body)
    head = {"method": method, "path": path, "headers": headers, "cut": cut, "gone": random.random() < 0.02}
    return {"head.json": json.dumps(head).encode(), "body": body}


def _infer(random: Random) -> tuple[bytes, dict[str, str]]:
    """An inference request whose tensor is inside the JSON or follows it."""
    if random.random() < 0.6:
        return damaged_json(random, INFER), {}
    document = json.loads(json.dumps(INFER))
    document["inputs"][0]["parameters"] = {"binary_data_size": 48}
    del document["inputs"][0]["data"]
    text = damaged_json(random, document) if random.random() < 0.5 else json.dumps(document).encode()
    stated = random.choice(
        (str(len(text)), str(len(text)), random.choice(("", "x", "-1", "²", "9" * 5000, "1e3", "0")))
    )
    behind = bytes(random.choice((48, 48, 47, 0, 500)))
    return text + behind, {HEADER_LENGTH: stated}


def _packed(random: Random, body: bytes) -> tuple[bytes, str]:
    encoding = random.choice(("gzip", "deflate", "br", "GZIP ", "", "gzip, gzip"))
    bomb = bytes(2**21) if random.random() < 0.05 else body
    data = gzip.compress(bomb, 1, mtime=0) if "gzip" in encoding.lower() else zlib.compress(bomb, 1)
    return damaged(random, data) if random.random() < 0.5 else data, encoding


def _other_path(random: Random, path: str) -> str:
    odd = random.choice((*TEXTS, "%ed%a0%80", "%00", "%2e%2e", "previous", "²", "9" * 5000, "-1", "\udcff"))
    return random.choice(
        (
            f"/v2/models/{odd}/infer",
            f"/v2/models/rcil/versions/{odd}/infer",
            f"/segment?output={odd}",
            f"/segment?alpha={random.choice(('nan', 'inf', '1e999', '-1', 'x', '2', ''))}",
            f"/segment?model={odd}",
            f"{path}/{odd}",
            f"/{odd}",
        )
    )


async def _call(head: dict[str, Any], body: bytes) -> tuple[int, bytes]:
    from urllib.parse import unquote

    path, _, query = head["path"].partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": head["method"],
        "scheme": "http",
        "path": unquote(path.encode("utf-8", "replace").decode()),
        "raw_path": path.encode("utf-8", "replace"),
        "query_string": query.encode("utf-8", "replace"),
        "root_path": "",
        "headers": [(k.lower().encode(), v.encode("latin-1", "replace")) for k, v in head["headers"].items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    last = {"type": "http.disconnect"} if head["gone"] else {"type": "http.request", "body": body[head["cut"] :]}
    messages = [{"type": "http.request", "body": body[: head["cut"]], "more_body": True}, last]
    answers: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        answers.append(message)

    await _app()(scope, receive, send)
    return answers[0]["status"], b"".join(part.get("body", b"") for part in answers[1:])


@functools.cache
def _app() -> FastAPI:
    options = HttpOptions(Path("m.onnx"), workers=1, max_bytes=2**20, max_pixels=2**14, timeout=5)
    return make_app(options, lambda path: Stripes())


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()

"""A model on a server that speaks the Open Inference Protocol v2, such as Triton or `rcil-serve http`."""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import threading
import time
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import ConfigError, RunError
from rcil.core.log import log
from rcil_export.graph.description import parse_description
from rcil_export.graph.interface import INPUT_NAME
from rcil_export.triton.config import PARAMETER, described_texts
from rcil_serve.runtime.backends import Outputs, outputs_of

SCHEMES = {"triton:": http.client.HTTPConnection, "tritons:": http.client.HTTPSConnection}
"""Connections by the first part of an address; the second one uses TLS."""
TOKEN = "RCIL_MODEL_TOKEN"
"""Environment variable with a bearer token for the server."""
HEADER_LENGTH = "Inference-Header-Content-Length"
TYPES: dict[str, np.dtype[Any]] = {"UINT8": np.dtype("u1"), "INT32": np.dtype("<i4"), "FP32": np.dtype("<f4")}
NAMES = {dtype: name for name, dtype in TYPES.items()}
TIMEOUT_S = 30.0
"""Time limit of one request."""
PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts while the server is away; the last one is repeated."""
AWAY = (408, 429, 500, 502, 503, 504)
"""Statuses of a server that is overloaded, starting or stopping."""
MAX_BYTES = 2**31
HINT = "Write triton://HOST:PORT/MODEL, or .../MODEL/VERSION."


@dataclass(frozen=True)
class RemoteAddress:
    """Where a model is served."""

    scheme: str
    host: str
    """Host and port."""
    model: str
    version: str | None = None
    """None selects the newest when the model is opened."""

    def __str__(self) -> str:
        version = "" if self.version is None else f"/{self.version}"
        return f"{self.scheme}//{self.host}/{self.model}{version}"


def remote_address(path: Path) -> RemoteAddress | None:
    """The address that a model option names; None for a file. A `Path` merges the two slashes of an address."""
    if path.parts[:1] not in {(scheme,) for scheme in SCHEMES}:
        return None
    scheme, *rest = path.parts
    try:
        valid = len(rest) in (2, 3) and bool(urllib.parse.urlsplit(f"//{rest[0]}").hostname)
        valid = valid and "@" not in rest[0] and urllib.parse.urlsplit(f"//{rest[0]}").port != 0
    except ValueError:
        valid = False
    if not valid or (len(rest) == 3 and not rest[2].isdecimal()):
        raise ConfigError(f"'{scheme}//{'/'.join(rest)}' is not the address of a model", HINT)
    return RemoteAddress(scheme, rest[0], rest[1], rest[2] if len(rest) == 3 else None)


class AwayError(Exception):
    """The server cannot be reached or is overloaded; it may answer later."""


class RemoteBackend:
    """Sends batches to a server. While the server is away, `run` waits for it and tries again.

    The version is fixed when the model is opened: masks of a later step could hold classes that the caller does not
    know.

    Args:
        address: The model.
    """

    def __init__(self, address: RemoteAddress) -> None:
        self._address = address
        self._local, self._stopped = threading.local(), threading.Event()
        self._connections: list[http.client.HTTPConnection] = []
        self.name = str(address)
        self.device = f"server {address.host}"
        try:
            version, texts = self._describe()
            self.sha256 = texts.pop("sha256", "")
            self.metadata, self.interface = parse_description(texts, self.name)
        except AwayError as error:
            self.close()
            message = f"{address.host} does not answer: {error}"
            raise RunError(message, "Start the server, and check --model.") from error
        except BaseException:
            self.close()
            raise
        self._path = f"{self._model}/versions/{version}"
        self._wanted = [name for name in ("mask", "confidence") if name in self.interface.outputs]

    @property
    def _model(self) -> str:
        return f"/v2/models/{urllib.parse.quote(self._address.model)}"

    def _describe(self) -> tuple[str, dict[str, str]]:
        """The version to use, and the texts that describe it."""
        known = self._document(self._model).get("versions") or []
        version = self._address.version or max(map(str, known), key=lambda text: int(text or -1), default="")
        if version not in map(str, known):
            versions = ", ".join(map(str, known)) or "none"
            raise ConfigError(f"{self._address} is not served", f"Versions of {self._address.model}: {versions}.")
        parameters = self._document(f"{self._model}/versions/{version}/config").get("parameters") or {}
        text = (parameters.get(f"{PARAMETER}{version}") or {}).get("string_value")
        if text is None:
            raise ConfigError(
                f"{self._address} does not state its classes",
                "Publish it again with this version of `rcil-export --triton`, or serve it with `rcil-serve http`.",
            )
        return version, described_texts(text)

    def run(self, batch: NDArray[Any]) -> Outputs:
        """See `Backend.run`. Waits while the server is away, until `stop` is called."""
        body, headers = self._request(np.ascontiguousarray(batch))
        lost: float | None = None
        attempt = 0
        while True:
            try:
                status, answer, content = self._ask("POST", f"{self._path}/infer", body, headers)
                if status == 200:
                    break
                self._check_version(status, content)
            except AwayError as error:
                if lost is None:
                    lost = time.monotonic()
                    log.warning("%s is away (%s); waiting for it", self._address.host, error)
                if self._stopped.wait(PAUSES[min(attempt, len(PAUSES) - 1)]):
                    raise RunError(
                        f"{self.name} is away: {error}", "Start it again when the server is back."
                    ) from error
                attempt += 1
        if lost is not None:
            log.warning("%s answers again after %.1f s", self._address.host, time.monotonic() - lost)
        return outputs_of(self._outputs(answer, content, batch), self.name)

    def _request(self, batch: NDArray[Any]) -> tuple[list[bytes | memoryview], dict[str, str]]:
        tensor = {
            "name": INPUT_NAME,
            "datatype": NAMES[batch.dtype],
            "shape": list(batch.shape),
            "parameters": {"binary_data_size": batch.nbytes},
        }
        outputs = [{"name": name, "parameters": {"binary_data": True}} for name in self._wanted]
        header = json.dumps({"inputs": [tensor], "outputs": outputs}).encode()
        length = {"Content-Length": str(len(header) + batch.nbytes), HEADER_LENGTH: str(len(header))}
        return [header, batch.data.cast("B")], {"Content-Type": "application/octet-stream", **length}

    def _check_version(self, status: int, content: bytes) -> None:
        """Raise what a refusal means: an error of the request, a version that is gone, or a server that is starting."""
        message = _message(content) or f"status {status}"
        if status in AWAY:
            raise AwayError(message)
        if self._ask("GET", f"{self._path}/ready")[0] == 200:
            raise RunError(f"{self.name} refuses a batch: {message}", "Check the model on the server.")
        status, _, content = self._ask("GET", self._model)
        if status == 200:
            known = ", ".join(map(str, _json(content).get("versions") or []))
            raise RunError(f"{self.name} no longer serves the version of this run; it has {known}", "Start again.")
        raise AwayError(message)

    def _outputs(self, answer: http.client.HTTPMessage, content: bytes, batch: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The binary tensors of a response, by name."""
        try:
            split = int(answer[HEADER_LENGTH])
            found, at = {}, split
            for output in json.loads(content[:split])["outputs"]:
                dtype, shape = TYPES[output["datatype"]], tuple(map(int, output["shape"]))
                size = math.prod(shape) * dtype.itemsize
                if size != output["parameters"]["binary_data_size"] or at + size > len(content) or min(shape) < 1:
                    raise ValueError(f"{output['name']} has the shape {shape}")
                found[str(output["name"])] = np.frombuffer(content, dtype, math.prod(shape), at).reshape(shape)
                at += size
            axes = (1, 3) if batch.shape[-1] == 3 else (2, 4)
            wanted = (batch.shape[0], *batch.shape[slice(*axes)])
            for name in self._wanted:
                if found[name].shape != wanted:
                    raise ValueError(f"{name} has the shape {found[name].shape} instead of {wanted}")
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{self.name} gives an answer that cannot be read: {error!r}", "Check the server."
            ) from error
        return {name: found[name] for name in self._wanted}

    def _document(self, path: str) -> dict[str, Any]:
        status, _, content = self._ask("GET", path)
        if status in AWAY:
            raise AwayError(_message(content) or f"status {status}")
        if status != 200:
            message = _message(content) or f"status {status}"
            hint = f"Set {TOKEN} to its token." if status == 401 else "Check the name of the model."
            raise ConfigError(f"{self._address}: {message}", hint)
        return _json(content)

    def _ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send a request over the connection of this thread; a connection that was closed meanwhile is opened again."""
        headers = dict(headers or {})
        if token := os.environ.get(TOKEN):
            headers["Authorization"] = f"Bearer {token}"
        for fresh in (False, True):
            connection = self._connection(fresh=fresh)
            reused = connection.sock is not None
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                return answer.status, answer.headers, answer.read(MAX_BYTES)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if not reused:
                    raise AwayError(str(error) or type(error).__name__) from error
        raise AssertionError("unreachable")

    def _connection(self, *, fresh: bool) -> http.client.HTTPConnection:
        found: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if found is None or fresh:
            if found is not None:
                found.close()
                self._connections.remove(found)
            found = SCHEMES[self._address.scheme](self._address.host, timeout=TIMEOUT_S)
            self._local.connection = found
            self._connections.append(found)
        return found

    def stop(self) -> None:
        """Stop waiting for a server that is away; may be called from any thread."""
        self._stopped.set()

    def close(self) -> None:
        """See `Backend.close`."""
        self.stop()
        for connection in tuple(self._connections):
            connection.close()


def _json(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError as error:
        raise AwayError("the answer is not JSON") from error
    return document if isinstance(document, dict) else {}


def _message(content: bytes) -> str:
    """The error message of a response, in one short line."""
    try:
        text = str(_json(content).get("error", ""))
    except AwayError:
        text = content[:200].decode("utf-8", "replace")
    return re.sub(r"\s+", " ", text)[:200]

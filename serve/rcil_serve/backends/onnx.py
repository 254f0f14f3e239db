"""ONNX Runtime as a backend."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rcil.errors import CheckpointError, TrustError, first_line
from rcil.files import sha256_of
from rcil_export.description import parse_description
from rcil_export.interface import INPUT_NAME
from rcil_export.sessions import CPU, SessionError, open_session
from rcil_serve.backends.protocol import Outputs, RunError, outputs_of

TITLES = {CPU: "CPU", "CUDAExecutionProvider": "GPU (CUDA)", "TensorrtExecutionProvider": "GPU (TensorRT)"}


class OnnxBackend:
    """An exported ONNX file.

    Args:
        path: The file.
        provider: ONNX Runtime's execution provider that must run it.
        threads: For the work inside a node; None: as many as there are cores.
        sha256: Of the file that was signed; another one is refused. The bytes that were hashed are those that run.
    """

    def __init__(self, path: Path, provider: str = CPU, threads: int | None = None, sha256: str | None = None) -> None:
        self.name = str(path)
        source: Path | bytes = path
        try:
            if sha256 is None:
                self.sha256 = sha256_of(path)
            else:
                source = path.read_bytes()
                self.sha256 = hashlib.sha256(source).hexdigest()
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}", "Check the path.") from error
        if sha256 not in (None, self.sha256):
            raise TrustError(f"{path} was changed while it was opened", "Try again.")
        providers = (provider,) if provider == CPU else (provider, CPU)
        try:
            self._session = open_session(source, threads, providers, name=str(path))
        except SessionError as error:
            if "INVALID_PROTOBUF" in error.message:
                raise _damaged(path) from error
            raise
        self.device = TITLES.get(provider, provider)
        try:
            texts = self._session.get_modelmeta().custom_metadata_map
            self._outputs = [output.name for output in self._session.get_outputs()]
        except UnicodeDecodeError as error:
            raise _damaged(path) from error
        self.metadata, self.interface = parse_description(texts, path)

    def run(self, batch: NDArray[Any]) -> Outputs:
        """See `Backend.run`."""
        session = self._session
        if session is None:
            raise RunError(f"{self.name} is closed", "Open it again.")
        try:
            values = session.run(self._outputs, {INPUT_NAME: batch})
        except Exception as error:  # its exceptions have no common root
            raise RunError(f"ONNX Runtime cannot run {self.name}: {first_line(error)}", "Export it again.") from error
        return outputs_of(dict(zip(self._outputs, values, strict=True)), self.name)

    def close(self) -> None:
        """See `Backend.close`. A session goes with its last reference, which a running request may still hold."""
        self._session = None


def _damaged(path: Path) -> CheckpointError:
    return CheckpointError(f"{path} is not an ONNX file, or damaged", "Export it again with rcil-export.")

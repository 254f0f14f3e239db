"""ONNX Runtime as a backend."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rcil.core.errors import CheckpointError, RunError, TrustError, first_line
from rcil.core.files import sha256_of
from rcil_export.graph.description import damaged, parse_description, read_texts
from rcil_export.graph.interface import INPUT_NAME
from rcil_export.runtime.devices import gpu_number
from rcil_export.runtime.forms import choose_provider, needs_wide_sums
from rcil_export.runtime.providers import CPU, CUDA, TENSORRT, is_listed
from rcil_export.runtime.sessions import SessionError, open_session
from rcil_serve.runtime.backends import Outputs, outputs_of

TITLES = {CPU: "CPU", CUDA: "GPU (CUDA)", TENSORRT: "GPU (TensorRT)"}


class OnnxBackend:
    """An exported ONNX file.

    Args:
        path: The file.
        device: Device to run on; `auto` selects a GPU if one is usable, else the CPU.
        threads: Number of threads within an operator; None uses all cores.
        sha256: Hash of the signed file. A different file is refused, and the bytes that were hashed are loaded.
    """

    def __init__(self, path: Path, device: str = "cpu", threads: int | None = None, sha256: str | None = None) -> None:
        self.name = str(path)
        content: bytes | None = None
        try:
            if sha256 is None:
                self.sha256 = sha256_of(path)
            else:
                content = path.read_bytes()
                self.sha256 = hashlib.sha256(content).hexdigest()
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}", "Check the path.") from error
        if sha256 not in (None, self.sha256):
            raise TrustError(f"{path} changed while it was being opened", "Try again.")
        self.metadata, self.interface = parse_description(read_texts(path, content), path)
        provider = choose_provider(device, self.interface, path)
        others = [name for name in (CUDA, CPU) if name != provider and is_listed(name)] if provider != CPU else []
        try:
            wide = needs_wide_sums(self.interface)
            self._session = open_session(
                path if content is None else content,
                threads,
                (provider, *others),
                wide_sums=wide,
                gpu=gpu_number(device),
                name=str(path),
            )
        except SessionError as error:
            if "INVALID_PROTOBUF" in error.message:
                raise damaged(path) from error
            raise
        started = self._session.get_providers()[0]
        self.device = TITLES.get(started, started)
        try:
            self._outputs = [output.name for output in self._session.get_outputs()]
        except UnicodeDecodeError as error:
            raise damaged(path) from error

    def run(self, batch: NDArray[Any]) -> Outputs:
        """See `Backend.run`."""
        session = self._session
        if session is None:
            raise RunError(f"{self.name} is closed", "Open it again.")
        try:
            values = session.run(self._outputs, {INPUT_NAME: batch})
        except Exception as error:  # ONNX Runtime's exceptions have no common base class
            raise RunError(f"ONNX Runtime cannot run {self.name}: {first_line(error)}", "Export it again.") from error
        return outputs_of(dict(zip(self._outputs, values, strict=True)), self.name)

    def close(self) -> None:
        """See `Backend.close`. The session is freed with its last reference, which a running call may still hold."""
        self._session = None

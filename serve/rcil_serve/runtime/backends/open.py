"""Opens a model file with the backend for its suffix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rcil.core.errors import ConfigError, TrustError
from rcil.core.log import log
from rcil.core.signing import SINGLE_FILE, verify
from rcil_export.runtime.devices import check_device, gpu_number
from rcil_serve.runtime.backends.protocol import Backend


def open_backend(path: Path, device: str = "auto", threads: int | None = None, trust: Sequence[Path] = ()) -> Backend:
    """Load a model. Every failure raises an `RcilError` that names the file.

    Args:
        path: `.onnx`, or `.engine` / `.plan` with its sidecar.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `tensorrt`. For an ONNX file `auto` selects CUDA if it starts, else
            the CPU. Engines run on the GPU.
        threads: Number of CPU threads for ONNX Runtime.
        trust: Public keys; the model must be signed with one of them. If empty, signatures are not checked.
    """
    check_device(device)
    if not trust:
        return _open(path, device, threads)
    signed = signed_sha256(path, trust)
    backend = _open(path.resolve(), device, threads, signed)
    backend.name = str(path)
    if backend.sha256 != signed:
        backend.close()
        raise TrustError(f"{path} changed while it was being opened", "Try again.")
    return backend


def signed_sha256(path: Path, trust: Sequence[Path]) -> str:
    """SHA-256 of a model according to its signed statement; raises unless one of the keys signed the delivery."""
    statement = verify(path, trust)
    log.info("%s was signed with the key %s", path, statement.fingerprint)
    return statement.digests[SINGLE_FILE if SINGLE_FILE in statement.digests else path.resolve().name]


def _open(path: Path, device: str, threads: int | None, sha256: str | None = None) -> Backend:
    """See `open_backend`. If `sha256` is given, an ONNX file is loaded from exactly the bytes that were hashed."""
    log.info("reading %s", path)
    match path.suffix.lower():
        case ".onnx":
            from rcil_serve.runtime.backends.onnx import OnnxBackend

            return OnnxBackend(path, device, threads, sha256)
        case ".engine" | ".plan":
            from rcil_serve.runtime.backends.engine import EngineBackend

            if device == "cpu":
                raise ConfigError(
                    f"{path} is a TensorRT engine, which needs a GPU", "Use the ONNX file that it was built from."
                )
            return EngineBackend(path, gpu_number(device))
        case ".safetensors":
            raise ConfigError(
                f"{path} is a checkpoint, which cannot be served",
                f"Export it first: rcil-export {path} -o deployed",
            )
        case _:
            raise ConfigError(
                f"{path} is not a model that can be served", "Use a .onnx or .engine file from rcil-export."
            )

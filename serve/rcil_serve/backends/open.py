"""From a file to a backend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rcil.errors import ConfigError, TrustError
from rcil.log import log
from rcil.signing import SINGLE_FILE, verify
from rcil_export.devices import check_device
from rcil_serve.backends.protocol import Backend


def open_backend(path: Path, device: str = "auto", threads: int | None = None, trust: Sequence[Path] = ()) -> Backend:
    """Load a model; every way it can fail gives an `RcilError` that names it.

    Args:
        path: `.onnx`, or `.engine` / `.plan` with its sidecar.
        device: Where an ONNX file runs; `auto` takes CUDA where it starts, else the CPU. Engines run on the GPU.
        threads: For ONNX Runtime on the CPU.
        trust: Public keys, one of which must have signed the model; none: signatures are not looked at.
    """
    check_device(device)
    if not trust:
        return _open(path, device, threads)
    signed = signed_sha256(path, trust)
    backend = _open(path.resolve(), device, threads, signed)
    backend.name = str(path)
    if backend.sha256 != signed:
        backend.close()
        raise TrustError(f"{path} was changed while it was opened", "Try again.")
    return backend


def signed_sha256(path: Path, trust: Sequence[Path]) -> str:
    """SHA-256 that the statement of a model gives it; raises unless one of the keys signed all that was delivered."""
    statement = verify(path, trust)
    log.info("%s was signed with the key %s", path, statement.fingerprint)
    return statement.digests[SINGLE_FILE if SINGLE_FILE in statement.digests else path.resolve().name]


def _open(path: Path, device: str, threads: int | None, sha256: str | None = None) -> Backend:
    """See `open_backend`; an ONNX file whose `sha256` is given is loaded from the very bytes that have it."""
    log.info("reading %s", path)
    match path.suffix.lower():
        case ".onnx":
            from rcil_serve.backends.onnx import OnnxBackend

            return OnnxBackend(path, device, threads, sha256)
        case ".engine" | ".plan":
            from rcil_serve.backends.engine import EngineBackend

            if device == "cpu":
                raise ConfigError(f"{path} is an engine, and engines run on a GPU", "Use the ONNX file it came from.")
            return EngineBackend(path)
        case ".safetensors":
            raise ConfigError(
                f"{path} is a checkpoint, which serving does not run",
                f"Export it first: rcil-export {path} -o deployed",
            )
        case _:
            raise ConfigError(f"{path} is no model that can be served", "Give a .onnx or an .engine of rcil-export.")

"""The protocol of all backends, and `open_backend`, which opens a model file with the backend for its suffix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import ConfigError, RunError, TrustError
from rcil.core.log import log
from rcil.core.signing import SINGLE_FILE, verify
from rcil.model.metadata import Metadata
from rcil_export.graph.interface import Interface
from rcil_export.runtime.devices import check_device, gpu_number

Mask = NDArray[Any]
"""Class rows [..., H, W]: uint8 up to 256 classes, int32 beyond."""


class Outputs(NamedTuple):
    """The outputs of a model for one batch."""

    mask: Mask
    """Class rows [N, H, W]."""
    confidence: NDArray[np.float32] | None
    """Probability of the predicted class [N, H, W]; None if the model was exported without it."""


AXES = {"mask": 3, "confidence": 3, "logits": 4}
"""Number of axes of each output of a batch."""


class Backend(Protocol):
    """One loaded model. `run` may be called from several threads at once."""

    name: str
    """Path of the model file, for messages."""
    sha256: str
    """SHA-256 of the model file."""
    device: str
    """Device it runs on, for messages."""
    metadata: Metadata
    interface: Interface

    def run(self, batch: NDArray[Any]) -> Outputs:
        """Run a batch in the layout and size that `interface` states."""

    def close(self) -> None:
        """Release all resources. May be called twice."""


@runtime_checkable
class Stoppable(Protocol):
    """Something that may wait for a long time, and can be told to give up."""

    def stop(self) -> None:
        """Stop waiting; may be called from any thread."""


def outputs_of(values: dict[str, NDArray[Any]], name: str) -> Outputs:
    """Convert the named outputs of a graph to `Outputs`. Without a mask, it is computed from the logits."""
    for key, value in values.items():
        if value.ndim != AXES.get(key, value.ndim):
            raise RunError(f"{name} outputs a {key} of shape {list(value.shape)}", "Export it again.")
    confidence = values.get("confidence")
    if "mask" in values:
        mask = values["mask"]
    elif "logits" in values:
        logits = values["logits"]
        mask = logits.argmax(axis=1).astype(np.uint8 if logits.shape[1] <= 256 else np.int32)
    else:
        raise RunError(f"{name} outputs neither mask nor logits", "Export it with `--outputs mask`.")
    if confidence is not None and confidence.shape != mask.shape:
        shapes = f"{list(confidence.shape)} for a mask of {list(mask.shape)}"
        raise RunError(f"{name} outputs confidences of shape {shapes}", "Export it again.")
    return Outputs(mask, None if confidence is None else confidence.astype(np.float32, copy=False))


def open_backend(path: Path, device: str = "auto", threads: int | None = None, trust: Sequence[Path] = ()) -> Backend:
    """Load a model. Every failure raises an `RcilError` that names the file.

    Args:
        path: `.onnx`, `.engine` or `.plan` with its sidecar, or `triton://HOST:PORT/MODEL` for a model on a server.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `tensorrt`. For an ONNX file `auto` selects CUDA if it starts, else
            the CPU. Engines run on the GPU.
        threads: Number of CPU threads for ONNX Runtime.
        trust: Public keys; the model must be signed with one of them. If empty, signatures are not checked.
    """
    check_device(device)
    if (remote := _open_remote(path, device, threads, trust)) is not None:
        return remote
    if not trust:
        return _open(path, device, threads)
    signed = signed_sha256(path, trust)
    backend = _open(path.resolve(), device, threads, signed)
    backend.name = str(path)
    if backend.sha256 != signed:
        backend.close()
        raise TrustError(f"{path} changed while it was being opened", "Try again.")
    return backend


def _open_remote(path: Path, device: str, threads: int | None, trust: Sequence[Path]) -> Backend | None:
    """Open a model on a server; None if `path` is a file."""
    from rcil_serve.runtime.remote_backend import RemoteBackend, remote_address

    address = remote_address(path)
    if address is None:
        return None
    if trust:
        raise TrustError(f"{address} cannot be checked: signatures are those of files", "Check it on the server.")
    if device != "auto" or threads is not None:
        raise ConfigError(f"{address} runs on its server", "Leave out --device and --threads.")
    return RemoteBackend(address)


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
            from rcil_serve.runtime.onnx_backend import OnnxBackend

            return OnnxBackend(path, device, threads, sha256)
        case ".engine" | ".plan":
            from rcil_serve.runtime.engine_backend import EngineBackend

            if device == "cpu":
                raise ConfigError(
                    f"{path} is a TensorRT engine, which needs a GPU", "Use the ONNX file that it was built from."
                )
            return EngineBackend(path, gpu_number(device))
        case ".safetensors":
            raise ConfigError(
                f"{path} is a checkpoint, which cannot be served", f"Export it first: rcil-export {path} -o deployed"
            )
        case _:
            raise ConfigError(
                f"{path} is not a model that can be served", "Use a .onnx or .engine file from rcil-export."
            )

"""From a file to a backend."""

from __future__ import annotations

from pathlib import Path

from rcil.errors import ConfigError
from rcil.log import log
from rcil_export.devices import check_device
from rcil_serve.backends.protocol import Backend


def open_backend(path: Path, device: str = "auto", threads: int | None = None) -> Backend:
    """Load a model; every way it can fail gives an `RcilError` that names it.

    Args:
        path: `.onnx`, or `.engine` / `.plan` with its sidecar.
        device: Where an ONNX file runs; `auto` takes CUDA where it starts, else the CPU. Engines run on the GPU.
        threads: For ONNX Runtime on the CPU.
    """
    check_device(device)
    log.info("reading %s", path)
    match path.suffix.lower():
        case ".onnx":
            from rcil_serve.backends.onnx import OnnxBackend

            return OnnxBackend(path, device, threads)
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

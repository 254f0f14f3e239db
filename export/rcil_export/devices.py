"""Where ONNX Runtime runs a graph, by the short names that all commands take. No torch here."""

from __future__ import annotations

from typing import Literal, get_args

from rcil.errors import ConfigError, did_you_mean

Device = Literal["auto", "cpu", "cuda", "tensorrt"]
DEVICES: tuple[Device, ...] = get_args(Device)
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}


def check_device(device: str) -> None:
    """Raise for a name that is none of `DEVICES`."""
    if device not in DEVICES:
        raise ConfigError(f"there is no device '{device}'", did_you_mean(device, DEVICES))


def provider_of(device: str) -> str:
    """ONNX Runtime's name for a device; `auto` is CUDA where ONNX Runtime has it."""
    check_device(device)
    if device != "auto":
        return PROVIDERS[device]
    import onnxruntime

    here = onnxruntime.get_available_providers()
    return PROVIDERS["cuda"] if PROVIDERS["cuda"] in here else PROVIDERS["cpu"]

"""The devices that commands accept, and their names in ONNX Runtime.

Nothing heavy is imported here, because the options of every command list the devices.
"""

from __future__ import annotations

from typing import Literal, get_args

from rcil.core.device_names import NUMBERED
from rcil.core.errors import ConfigError, did_you_mean

Device = Literal["auto", "cpu", "cuda", "tensorrt"]
DEVICES: tuple[Device, ...] = get_args(Device)
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}


def check_device(device: str) -> None:
    """Raise for a name that is neither one of `DEVICES` nor `cuda:N`."""
    if device not in DEVICES and not NUMBERED.fullmatch(device):
        raise ConfigError(
            f"unknown device '{device}'", f"{did_you_mean(device, DEVICES)} A certain GPU is cuda:0, cuda:1, ..."
        )


def gpu_number(device: str) -> int:
    """The GPU that a device names, in CUDA's order: `cuda:1` is 1, and a device without a number is the first GPU."""
    numbered = NUMBERED.fullmatch(device)
    return int(numbered[1]) if numbered else 0

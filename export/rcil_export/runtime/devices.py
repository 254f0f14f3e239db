"""Where ONNX Runtime runs a graph, by the short names that all commands take. No torch here."""

from __future__ import annotations

from typing import Literal, get_args

from rcil.core.device_names import NUMBERED
from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.log import log

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


def provider_of(device: str) -> str:
    """ONNX Runtime's name for a device; `auto` is CUDA where its provider starts, and the CPU elsewhere.

    A CUDA provider that is installed and does not start is warned about: users who installed it expect a GPU.
    """
    check_device(device)
    if device != "auto":
        return PROVIDERS[device.partition(":")[0]]
    from rcil_export.runtime.providers import is_listed, start_problem

    if not is_listed(PROVIDERS["cuda"]):
        return PROVIDERS["cpu"]
    problem = start_problem(PROVIDERS["cuda"])
    if problem is None:
        return PROVIDERS["cuda"]
    log.warning(
        "ONNX Runtime's CUDA provider does not start, so the CPU is used: %s. %s `--device cpu` chooses the CPU "
        "without this warning.",
        problem.reason,
        problem.remedy,
    )
    return PROVIDERS["cpu"]

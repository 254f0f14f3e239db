"""Where ONNX Runtime runs a graph, by the short names that all commands take. No torch here."""

from __future__ import annotations

from typing import Literal, get_args

from rcil.errors import ConfigError, did_you_mean
from rcil.log import log

Device = Literal["auto", "cpu", "cuda", "tensorrt"]
DEVICES: tuple[Device, ...] = get_args(Device)
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}


def check_device(device: str) -> None:
    """Raise for a name that is none of `DEVICES`."""
    if device not in DEVICES:
        raise ConfigError(f"there is no device '{device}'", did_you_mean(device, DEVICES))


def provider_of(device: str) -> str:
    """ONNX Runtime's name for a device; `auto` is CUDA where its provider starts, and the CPU elsewhere.

    A CUDA provider that is installed and does not start is warned about: users who installed it expect a GPU.
    """
    check_device(device)
    if device != "auto":
        return PROVIDERS[device]
    from rcil_export.providers import is_listed, start_problem

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

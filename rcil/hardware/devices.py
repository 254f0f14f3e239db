"""Choice of the device that torch computes on. Torch is imported only when a function needs it."""

from __future__ import annotations

import ctypes
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rcil.core.device_names import NUMBERED, check_device_name
from rcil.core.errors import ConfigError
from rcil.core.log import Notify

if TYPE_CHECKING:
    import torch

_DRIVER = "libcuda.so.1"


def choose_device(name: str = "auto") -> torch.device:
    """The device of this name; `auto` is the first GPU that torch finds, or the CPU."""
    import torch

    check_device_name(name)
    count = torch.cuda.device_count() if name != "cpu" and torch.cuda.is_available() else 0
    if name == "cpu" or (name == "auto" and count == 0):
        return torch.device("cpu")
    if count == 0:
        raise ConfigError(f"device {name}: torch finds no GPU here", _no_gpu_remedy(torch.version.cuda is not None))
    number = NUMBERED.fullmatch(name)
    index = int(number[1]) if number else 0
    if index >= count:
        there = "is 1 GPU, cuda:0" if count == 1 else f"are {count} GPUs, cuda:0 to cuda:{count - 1}"
        raise ConfigError(f"device {name}: this GPU does not exist", f"There {there}.")
    return torch.device("cuda", index)


def _no_gpu_remedy(built_for_cuda: bool) -> str:
    cpu = "Use --device cpu or auto"
    if not built_for_cuda:
        return f"{cpu}, or install a torch build for CUDA: this one is for CPUs only."
    return f"{cpu}; `rcil doctor` shows what torch and the driver find."


def driver_gpus(library: str = _DRIVER) -> tuple[int, str]:
    """Number of GPUs that the NVIDIA driver finds, and the reason if there are none; needs neither torch nor CUDA."""
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return 0, f"no NVIDIA driver: {library} cannot be loaded"
    count = ctypes.c_int()
    if status := driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0, f"the NVIDIA driver does not start (CUDA error {status})"
    return count.value, "" if count.value else "the NVIDIA driver has no GPU"


def device_notices(
    device: torch.device, asked: str, *, command: Sequence[str] = (), batch: int = 0, processes: int = 1
) -> list[str]:
    """Lines that a command prints about its device before it starts; none for a CPU on a machine without GPUs.

    Args:
        device: The chosen device.
        asked: The requested name; a GPU chosen by its number needs no advice.
        command: The command line, if it can also be started by `torchrun`.
        batch: Batch size, which the number of processes must divide; 0 allows any number of processes.
        processes: Number of processes of this run.
    """
    import torch

    if device.type != "cuda":
        if asked == "auto" and torch.version.cuda is None and driver_gpus()[0]:
            return ["computing on the CPU: there is a GPU, but this torch is built for CPUs only; see `rcil doctor`"]
        return []
    lines = [f"computing on {device}, {torch.cuda.get_device_name(device)}"]
    count = torch.cuda.device_count()
    if count == 1 or processes > 1 or ":" in asked:
        return lines
    best = max((n for n in range(1, count + 1) if batch % n == 0), default=1)
    if command and best > 1:
        line = shlex.join(["torchrun", "--nproc-per-node", str(best), "-m", "rcil", *command])
        return [*lines, f"{count} GPUs are here and one is used; to use {best}: {line}"]
    return [*lines, f"{count} GPUs are here and one is used; choose another with --device cuda:{count - 1}"]


def announce_device(name: str | None, say: Notify) -> None:
    """Say on which GPU a command runs, and refuse one that is not there before any work begins."""
    asked = name or "auto"
    for line in device_notices(choose_device(asked), asked):
        say(line)

"""Which process of a run this is, and what the processes share. Alone unless started by `torchrun`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from rcil.devices import choose_device
from rcil.errors import ConfigError


@dataclass(frozen=True)
class Processes:
    """A place among `count` processes that train one network."""

    rank: int
    count: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes; `value` itself in a lone one."""
        if self.count > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def sum_array(self, value: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same for counts in numpy."""
        if self.count == 1:
            return value
        total: NDArray[np.int64] = self.sum(torch.from_numpy(value).to(self.device)).cpu().numpy()
        return total

    def wait(self) -> None:
        """Return when every process has come here, so that what the first one wrote can be read by all."""
        if self.count > 1:
            dist.barrier()


ALONE = Processes(0, 1, torch.device("cpu"))


def started() -> tuple[int, int]:
    """Number of this process and of all, as `torchrun` tells; (0, 1) without it."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


@contextlib.contextmanager
def join(device: str = "auto") -> Iterator[Processes]:
    """Take part in the group that `torchrun` describes in the environment; leaves it at the end.

    Args:
        device: `auto` and `cuda` are the GPU of this process; `auto` is the CPU where there is none.
    """
    _, count = started()
    place = device_for(device)
    gpu = place.type == "cuda"
    if place.index:  # GPU 0 is the current one already; random states and waits are those of the current one
        torch.cuda.set_device(place)
    if count == 1:
        yield Processes(0, 1, place)
        return
    dist.init_process_group("nccl" if gpu else "gloo")
    try:
        yield Processes(dist.get_rank(), count, place)
        dist.barrier()  # who leaves while another still talks to it can take the other down
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def cudnn_tuned(device: torch.device) -> Iterator[None]:
    """Inside, cuDNN tries its kernels once for every shape and keeps the fastest; on a CPU nothing changes.

    For training, whose crops have one size. Not for images of many sizes, each of which would be tried out, nor where
    deterministic kernels are asked for.
    """
    before = torch.backends.cudnn.benchmark
    wanted = device.type == "cuda" and not torch.are_deterministic_algorithms_enabled()
    torch.backends.cudnn.benchmark = before or wanted
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def leave() -> None:
    """End one of several processes here and now, its work done; does nothing in a lone one.

    Threads of gloo can outlive the group, and now and then abort an interpreter that shuts down in its own time, which
    `torchrun` takes for a failed run.
    """
    if started()[1] > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def device_for(wanted: str) -> torch.device:
    """Where this process trains: its own GPU, or the CPU."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if ":" in wanted and started()[1] > 1:
        raise ConfigError(
            f"device {wanted} is one GPU, and torchrun gives every process one of its own",
            "Use the device cuda or auto, and choose the GPUs with CUDA_VISIBLE_DEVICES.",
        )
    device = choose_device(wanted)
    if device.type == "cpu" or ":" in wanted:
        return device
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"process {local_rank} has no GPU of its own: there are {torch.cuda.device_count()}",
            "Start torchrun with at most one process a GPU.",
        )
    return torch.device("cuda", local_rank)

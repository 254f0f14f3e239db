"""The processes of a run (one, or several that `torchrun` started), and whether their GPU kernels are deterministic."""

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

from rcil.core.errors import ConfigError, RcilError
from rcil.hardware.devices import choose_device

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""Environment variable that cuBLAS reads at start; without it, the order of its streams may vary."""


@dataclass(frozen=True)
class Processes:
    """This process among the `count` processes that train one network."""

    rank: int
    count: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """The sum of `value` over all processes."""
        if self.count > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def sum_array(self, value: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sum of an array of counts over all processes."""
        if self.count == 1:
            return value
        total: NDArray[np.int64] = self.sum(torch.from_numpy(value).to(self.device)).cpu().numpy()
        return total

    def wait(self) -> None:
        """Wait for all processes, so that files that the first one wrote can be read by all."""
        if self.count > 1:
            dist.barrier()


ALONE = Processes(0, 1, torch.device("cpu"))


def started() -> tuple[int, int]:
    """Rank of this process and number of processes from the environment of `torchrun`; (0, 1) without it."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


@contextlib.contextmanager
def join(device: str = "auto") -> Iterator[Processes]:
    """Join the process group that `torchrun` describes in the environment, and leave it at the end of the block.

    Args:
        device: `auto` and `cuda` select the GPU of this process; `auto` falls back to the CPU.
    """
    _, count = started()
    chosen = device_for(device)
    gpu = chosen.type == "cuda"
    if chosen.index:  # GPU 0 is already the current device, which random states and synchronisation refer to
        torch.cuda.set_device(chosen)
    if count == 1:
        yield Processes(0, 1, chosen)
        return
    dist.init_process_group("nccl" if gpu else "gloo")
    try:
        yield Processes(dist.get_rank(), count, chosen)
        dist.barrier()  # a process that leaves early can break the connections of the others
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Use deterministic kernels inside the block, and raise for an operation that has none.

    Args:
        wanted: Whether to use them; False changes nothing.
    """
    if not wanted:
        yield
        return
    os.environ.setdefault(WORKSPACE, ":4096:8")
    cudnn = torch.backends.cudnn
    before = torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        cudnn.deterministic, cudnn.benchmark = before[1:]


@contextlib.contextmanager
def cudnn_tuned(device: torch.device) -> Iterator[None]:
    """Let cuDNN benchmark its kernels once per input shape inside the block; no effect on a CPU.

    This is for training, whose crops all have one size. Images of many sizes would each be benchmarked. It stays off
    if deterministic kernels are enabled.
    """
    before = torch.backends.cudnn.benchmark
    wanted = device.type == "cuda" and not torch.are_deterministic_algorithms_enabled()
    torch.backends.cudnn.benchmark = before or wanted
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def leave() -> None:
    """Exit immediately after the work of a multi-process run is done; no effect in a single process.

    Threads of gloo can outlive the group and sometimes abort an interpreter that shuts down normally, which `torchrun`
    reports as a failed run.
    """
    if started()[1] > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def device_for(wanted: str) -> torch.device:
    """The device that this process trains on: its own GPU, or the CPU."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if ":" in wanted and started()[1] > 1:
        raise ConfigError(
            f"device {wanted} is a single GPU, but torchrun gives every process its own",
            "Use the device cuda or auto, and choose the GPUs with CUDA_VISIBLE_DEVICES.",
        )
    device = choose_device(wanted)
    if device.type == "cpu" or ":" in wanted:
        return device
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"process {local_rank} has no GPU of its own: there are {torch.cuda.device_count()}",
            "Start torchrun with at most one process per GPU.",
        )
    return torch.device("cuda", local_rank)


@contextlib.contextmanager
def report_once(processes: Processes) -> Iterator[None]:
    """Run checks in all processes; an error that all of them find is reported by the first process only.

    If another process ended before the first, `torchrun` would stop the first while it prints its message. So the
    others wait for the first process. If it is still running after that, only this process found the error and reports
    it. If the first process exits while others wait, their connection breaks: it has reported the error.
    """
    try:
        yield
    except RcilError as error:
        if not processes.leads:
            with _exit_with_first(error.exit_code):
                processes.wait()
        raise
    except RuntimeError as error:
        if not processes.leads and _is_lost_connection(error):
            os._exit(RcilError.exit_code)
        raise


@contextlib.contextmanager
def _exit_with_first(exit_code: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError:
        os._exit(exit_code)


def _is_lost_connection(error: RuntimeError) -> bool:
    """Whether gloo lost another process. NCCL waits until `torchrun` ends this process instead."""
    return any(word in str(error) for word in ("onnection", "peer"))

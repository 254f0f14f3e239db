"""Deterministic kernels: a run that is repeated or resumed on the same GPU and software gives the same bits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""Environment variable that cuBLAS reads at start; without it, the order of its streams may vary."""


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

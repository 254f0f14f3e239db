"""Freezing of the early stages of a backbone during a step."""

from __future__ import annotations

import torch

from rcil.nn.network import Network
from rcil.nn.units.convnorm import kernel_of, set_kernel
from rcil.nn.units.rc import RCConv


@torch.no_grad()
def freeze_stages(model: Network, count: int) -> None:
    """Stop the training of the stem and the first `count` stages of a network at the start of a step.

    The new branches take over the merged kernels, so that the frozen stages compute what they did before the step. A
    channel that its norm has switched off keeps its kernel, which is multiplied by less than `MIN_SCALE`.
    """
    rc = model.arch.rc
    is_merged = rc is not None and rc.old == "merged"
    for part in model.early(count):
        for block in part.modules():
            if isinstance(block, RCConv) and is_merged:
                set_kernel(block.new, *kernel_of(block.old))
        part.requires_grad_(False)


def set_frozen_modes(model: Network, count: int) -> None:
    """Put the frozen stages of a network in training mode back into evaluation mode: no drop-path, fixed norms."""
    for part in model.early(count):
        part.eval()

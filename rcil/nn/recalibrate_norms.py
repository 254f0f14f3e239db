"""Norm statistics that fit evaluation: taken again with branches mixed as they will be.

While branches are drawn at random, norms see maps that are livelier than those of evaluation, where both branches are
averaged. A long training hardly notices, a short one can lose many points to it.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from rcil.nn.units.norms import is_norm
from rcil.nn.units.rc import RCConv


@torch.no_grad()
def recalibrate_norms(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Replace the running statistics of all norms that are trained by the mean over `batches`.

    Weights stay as they are, and so does what a frozen branch or a frozen network computes. Leaves the network in
    evaluation mode.

    Args:
        model: With or without branches.
        batches: Normalised images [N, 3, H, W], at least one batch.
    """
    model.train()
    for block in model.modules():
        if isinstance(block, RCConv):
            block.mix.eval()
    norms = []
    for module in model.modules():
        if is_norm(module) and module.training:
            trained = any(parameter.requires_grad for parameter in module.parameters())
            norms += [module] if trained else []
            module.train(trained)
    momenta = [norm.momentum for norm in norms]
    for count, images in enumerate(batches, 1):
        for norm in norms:
            norm.momentum = 1 / count  # type: ignore[assignment]
        model(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()

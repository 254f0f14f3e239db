"""Recalibration of batch norm with branches mixed as in evaluation.

While branches are drawn at random, maps have a larger variance than in evaluation, where both branches are averaged.
Long training is hardly affected, but short training can lose many points of IoU.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from rcil.nn.units.norms import is_norm
from rcil.nn.units.rc import RCConv


@torch.no_grad()
def recalibrate_norms(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Replace the running statistics of all trainable norms by the mean over `batches`.

    Weights and frozen branches do not change. The network is left in evaluation mode.

    Args:
        model: A network with or without branches.
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

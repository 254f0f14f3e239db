"""Unfolding: norms are given back to a folded network, fitted to images, so that the network can be trained again.

A folded network is what is deployed, and often all that is left. Its convs contain their norms, and the statistics of
these norms are lost. Each norm gets the mean and variance of its conv's output on images of the new step instead, and
the scale and shift that undo the normalisation: in evaluation mode the network computes what it computed before, and
in training mode almost the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from rcil.core.errors import ConfigError
from rcil.nn.network import Network
from rcil.nn.units.convnorm import ConvNorm, ConvSum
from rcil.nn.units.norms import set_statistics


class Moments:
    """Mean and variance [C] of maps, over images and pixels; batches are added one at a time."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros(())
        self.squares = torch.zeros(())
        """Sum of squared deviations from the mean."""

    def add(self, maps: Tensor) -> None:
        """Add maps [N, C, H, W]."""
        var, mean = (value.double() for value in torch.var_mean(maps, dim=(0, 2, 3), correction=0))
        size = maps.numel() // maps.shape[1]
        total = self.count + size
        change = mean - self.mean.to(mean)
        self.squares = self.squares.to(var) + var * size + change**2 * (self.count * size / total)
        self.mean = self.mean.to(mean) + change * (size / total)
        self.count = total

    @property
    def var(self) -> Tensor:
        """The variance [C], as batch norm normalises with in training: divided by the count, not by one less."""
        return self.squares / self.count


@torch.no_grad()
def unfold(model: Network, images: Iterable[Tensor]) -> Network:
    """The plain network with norms that computes the same as the folded `model`, in evaluation mode.

    `model` is not changed. The result is a network without RC, to which a step adds branches like to any other.

    Args:
        model: A folded network.
        images: Normalised images [N, 3, H, W] that the norms are fitted to, in the size in which training will see
            them. Some dozens are enough; the pooled path of the head has only one value per image and channel.
    """
    if not model.arch.folded:
        raise ConfigError("the network is not folded, so it still has its norms", "Use it as it is.")
    plain = model.with_norms()
    folded = dict(model.named_modules())
    units = {name: unit for name, unit in plain.named_modules() if isinstance(unit, ConvNorm | ConvSum)}
    moments = _measure(model, {name: _before_activation(folded[name]) for name in units}, images)
    for name, unit in units.items():
        source = _before_activation(folded[name])
        if isinstance(unit, ConvSum):
            assert isinstance(source, ConvSum)
            unit.left.weight.copy_(source.left.weight)
            unit.right.weight.copy_(source.right.weight)
            conv = source.left
        else:
            assert isinstance(source, nn.Conv2d)
            unit.conv.weight.copy_(source.weight)
            if unit.conv.bias is not None:
                unit.conv.bias.zero_()
            conv = source
        assert unit.norm is not None and conv.bias is not None
        bias = conv.bias.double()
        set_statistics(unit.norm, moments[name].mean - bias, moments[name].var, bias)
    return plain.eval()


def _before_activation(unit: nn.Module) -> nn.Module:
    """The conv, or the sum of two convs, of a folded unit."""
    return unit[0] if isinstance(unit, nn.Sequential) else unit


def _measure(model: Network, parts: dict[str, nn.Module], images: Iterable[Tensor]) -> dict[str, Moments]:
    """Moments of the outputs of `parts`, all in one pass over the images."""
    moments = {name: Moments() for name in parts}

    def adder(name: str) -> Callable[[nn.Module, object, Tensor], None]:
        return lambda part, inputs, output: moments[name].add(output)

    hooks = [part.register_forward_hook(adder(name)) for name, part in parts.items()]
    try:
        for batch in images:
            model.eval()(batch.to(next(model.parameters())))
    finally:
        for hook in hooks:
            hook.remove()
    if not all(found.count for found in moments.values()):
        raise ConfigError("norms cannot be fitted without images", "Give some images of the new step.")
    return moments

"""Units of a network without norms and second branches: conv with bias, then the activation.

Nothing here folds, mixes or normalises, so a network of these units is independent of mistakes in that code. Its
tensors have the names and shapes of a folded network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from rcil.nn.units.convnorm import ConvSum

Activation = Literal["leaky", "relu6"]


@dataclass(frozen=True)
class PlainLayers:
    """The conventions of a plain network: its activation."""

    slope: float

    def plain(self, conv: nn.Conv2d, act: Activation | None = None) -> nn.Module:
        """The conv with a bias, alone or followed by the activation."""
        with_bias(conv)
        if act is None:
            return conv
        return nn.Sequential(conv, nn.ReLU6(inplace=True) if act == "relu6" else nn.LeakyReLU(self.slope, inplace=True))

    rc_conv = plain
    """A single conv in place of an RC block."""

    def conv_sum(self, left: nn.Conv2d, right: nn.Conv2d) -> ConvSum:
        """The sum of two convs; the left one carries the bias."""
        return ConvSum(with_bias(left), right, None)


def with_bias(conv: nn.Conv2d) -> nn.Conv2d:
    """The same conv with a bias of zeros."""
    conv.bias = nn.Parameter(conv.weight.new_zeros(conv.out_channels))
    return conv

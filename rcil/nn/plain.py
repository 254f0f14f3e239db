"""The units of a network that never had norms or a second branch: conv with bias, then the activation.

Nothing here folds, mixes or normalises, so a network made of these units cannot share the mistakes of what does. Its
tensors have the names and shapes of a folded network's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from rcil.nn.convnorm import ConvSum

Activation = Literal["leaky", "relu6"]


@dataclass(frozen=True)
class PlainLayers:
    """The conventions of a plain network, which are those of its activation."""

    slope: float

    def plain(self, conv: nn.Conv2d, act: Activation | None = None) -> nn.Module:
        """The conv with a bias, alone or followed by the activation."""
        with_bias(conv)
        if act is None:
            return conv
        return nn.Sequential(conv, nn.ReLU6(inplace=True) if act == "relu6" else nn.LeakyReLU(self.slope, inplace=True))

    rc_conv = plain
    """Where other networks have two branches, this one has a single conv too."""

    def conv_sum(self, left: nn.Conv2d, right: nn.Conv2d) -> ConvSum:
        """The sum of two convs; the left one has the bias of both."""
        return ConvSum(with_bias(left), right, None)


def with_bias(conv: nn.Conv2d) -> nn.Conv2d:
    """The same conv with a bias of zeros."""
    conv.bias = nn.Parameter(conv.weight.new_zeros(conv.out_channels))
    return conv

"""Folds that go wrong: during the export alone, or still while the result is verified."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

LAYER = "backbone.stages.1.0.conv1"
"""The block of ResNet-18 that they spoil."""
EXPANDED = "backbone.blocks"


@dataclass(frozen=True)
class BrokenFold:
    """One way to fold wrongly."""

    kind: str
    spoil: Callable[[nn.Module, nn.Module], None]
    """Changes the folded network; the network that it was folded from is there to look at."""
    named: str
    backbone: str = "resnet18"

    def instead_of(self, fold: Callable[..., Any]) -> Callable[..., Any]:
        """`fold`, spoilt."""

        def broken(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
            folded, report = fold(model, *args, **kwargs)
            with torch.no_grad():
                self.spoil(folded, model)
            return folded, report

        return broken


def _conv(folded: nn.Module, layer: str = LAYER) -> nn.Conv2d:
    unit = folded.get_submodule(layer)
    return unit if isinstance(unit, nn.Conv2d) else unit[0]


def _bias(folded: nn.Module, model: nn.Module) -> None:
    _conv(folded).bias[0] += 1e-3


def _shares(folded: nn.Module, model: nn.Module) -> None:
    """The old branch counts 0.49 and the new one 0.51."""
    _mix(folded, model, 0.49)


def _one_branch(folded: nn.Module, model: nn.Module) -> None:
    """The old branch alone."""
    _mix(folded, model, 1.0)


def _mix(folded: nn.Module, model: nn.Module, old_share: float) -> None:
    """The block again, with another share of its frozen branch, which is a plain conv from step 1 on."""
    conv, old = _conv(folded), model.get_submodule(LAYER).old
    new = (2 * conv.weight - old.weight, 2 * conv.bias - old.bias)
    conv.weight.copy_(old_share * old.weight + (1 - old_share) * new[0])
    conv.bias.copy_(old_share * old.bias + (1 - old_share) * new[1])


def _dilation(folded: nn.Module, model: nn.Module) -> None:
    conv = _conv(folded, "head.paths.1")
    conv.dilation = conv.padding = (1, 1)


def _norm_left(folded: nn.Module, model: nn.Module) -> None:
    """The norm is still there as a depthwise 1x1 conv that does nothing."""
    unit = folded.get_submodule(LAYER)
    channels = unit[0].out_channels
    extra = nn.Conv2d(channels, channels, 1, groups=channels)
    extra.weight.fill_(1.0)
    extra.bias.zero_()
    parent, key = LAYER.rpartition(".")[::2]
    setattr(folded.get_submodule(parent), key, nn.Sequential(unit[0], extra, unit[1]).eval())


def _epsilon(folded: nn.Module, model: nn.Module) -> None:
    """As if the norm's epsilon were a hundred times as large."""
    conv = _conv(folded)
    norm = model.get_submodule(LAYER).new.norm
    wrong = torch.rsqrt(norm.running_var + 100 * norm.eps) / torch.rsqrt(norm.running_var + norm.eps)
    conv.weight.mul_((1 + wrong.view(-1, 1, 1, 1)) / 2)


def _dense(folded: nn.Module, model: nn.Module) -> None:
    """A depthwise conv expanded to a dense one."""
    path, conv = next((p, m) for p, m in folded.named_modules() if isinstance(m, nn.Conv2d) and m.groups > 1)
    dense = copy.deepcopy(conv)
    dense.groups = 1
    weight = torch.zeros(conv.out_channels, conv.out_channels, *conv.kernel_size)
    weight[range(conv.out_channels), range(conv.out_channels)] = conv.weight[:, 0]
    dense.weight = nn.Parameter(weight)
    parent, key = path.rpartition(".")[::2]
    setattr(folded.get_submodule(parent), key, dense)


FOLDS = {
    "fold_bias": BrokenFold("a bias shifted by 1e-3", _bias, LAYER),
    "fold_shares": BrokenFold("0.49 of one branch and 0.51 of the other", _shares, LAYER),
    "fold_one_branch": BrokenFold("one branch dropped", _one_branch, LAYER),
    "fold_epsilon": BrokenFold("a wrong epsilon of a norm", _epsilon, LAYER),
    "fold_dilation": BrokenFold("a dilation lost", _dilation, "head.paths.1"),
    "fold_norm_left": BrokenFold("a norm left behind as a depthwise 1x1 conv", _norm_left, LAYER),
    "fold_dense": BrokenFold("a depthwise conv expanded to a dense one", _dense, "", "efficientnet_lite0"),
}

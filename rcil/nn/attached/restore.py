"""Folding back: the user's own module, with its norms, that computes what the network with branches computes."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn

from rcil.model.attached import Unit
from rcil.nn.attached.network import AttachedNetwork, grown_module
from rcil.nn.attached.units import plain_norm, split_norm
from rcil.nn.units.convnorm import MIN_SCALE, ConvNorm, kernel_of
from rcil.nn.units.norms import affine_of, set_statistics
from rcil.nn.units.rc import RCConv


@torch.no_grad()
def restore(network: AttachedNetwork) -> nn.Module:
    """The module that the factory builds, with the class rows and the weights of `network`, in evaluation mode.

    Every conv has the merged kernel of its branches, divided by the scale of its norm. Norms keep the statistics of the
    new branch; where no branch has a norm any more, they get a mean of 0 and a variance of 1.
    """
    reference = next(network.parameters())
    plain = grown_module(network.arch, len(network.names)).to(reference.device, reference.dtype)
    own = plain.state_dict()
    inside = tuple(f"{unit.conv}." for unit in network.arch.units)
    tensors = {key: value for key, value in network.tensors().items() if not key.startswith(inside)}
    for unit in network.arch.units:
        tensors |= _restored(unit, network.net.get_submodule(unit.conv), plain)
    modules = {name for name, _ in plain.named_modules()}  # further names of the same modules are left out
    for key in own.keys() - tensors.keys():
        if key.rpartition(".")[0] in modules:  # the bias of a conv before a norm, which the norm has taken over
            tensors[key] = torch.zeros_like(own[key])
    plain.load_state_dict(tensors, strict=False)
    return plain.eval()


def _restored(unit: Unit, part: nn.Module, plain: nn.Module) -> dict[str, Tensor]:
    """The tensors of a conv, and of the norm behind it if it has one; `plain` has both in their original form."""
    if unit.norm is None:
        conv = part.merged() if isinstance(part, RCConv) else part
        return {f"{unit.conv}.{key}": value for key, value in conv.state_dict().items()}
    if isinstance(part, ConvNorm):
        tensors = {f"{unit.conv}.{key}": value for key, value in part.conv.state_dict().items()}
        return tensors | {f"{unit.norm}.{key}": value for key, value in part.norm.state_dict().items()}
    weight, bias = kernel_of(part.merged() if isinstance(part, RCConv) else part)
    new = part.new if isinstance(part, RCConv) else part
    if isinstance(new, ConvNorm):
        norm = cast("nn.BatchNorm2d", copy.deepcopy(new.norm))
    else:
        parts = split_norm(plain.get_submodule(unit.norm))
        assert parts is not None
        norm = copy.deepcopy(plain_norm(parts[0]))
        set_statistics(norm, torch.zeros_like(bias), torch.ones_like(bias), bias)
    scale = _revived(norm)
    assert norm.running_mean is not None
    norm.bias.copy_(bias + norm.running_mean.double() * scale)
    tensors = {f"{unit.norm}.{key}": value for key, value in norm.state_dict().items()}
    kernel = cast("nn.Conv2d", plain.get_submodule(unit.conv)).weight
    return tensors | {f"{unit.conv}.weight": (weight / scale.view(-1, 1, 1, 1)).to(kernel)}


def _revived(norm: nn.BatchNorm2d) -> Tensor:
    """The scale [C] of a norm in float64; channels that it has switched off get the scale 1."""
    scale, _ = affine_of(norm)
    dead = scale.abs() <= MIN_SCALE
    if dead.any():
        assert norm.running_var is not None
        deviation = torch.sqrt(norm.running_var.double() + norm.eps)
        norm.weight.copy_(torch.where(dead, deviation, norm.weight.double()))
        scale, _ = affine_of(norm)
    return scale

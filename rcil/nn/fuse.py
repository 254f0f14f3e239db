"""Fusion of a step's network with the previous one, on folded weights, at no inference cost.

After Endpoints Weight Fusion, https://arxiv.org/abs/2303.10375, which fuses plain networks.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping

import torch
from torch import nn

from rcil.nn.fold import replace_modules
from rcil.nn.network import Network
from rcil.nn.regmean import Kernel, LayerFusion
from rcil.nn.units.convnorm import ConvNorm, ConvSum, add_shift, kernel_of, set_before_norm, set_kernel
from rcil.nn.units.rc import RCConv


@torch.no_grad()
def fuse(new: Network, old: Network, share: float, closed_form: Mapping[str, LayerFusion] | None = None) -> Network:
    """A network whose folded backbone and head are (1 - share) * old + share * new; the classifier is `new`'s.

    Both branches of every RC block become the fused conv, so that the next step starts from the fused function. Norms
    are kept: the conv before a norm is set so that both together equal the fused conv.

    Args:
        new: The network after a step, not folded.
        old: The network before the step; only the state or presence of its branches may differ.
        share: Weight of the new network; 1 gives the function of `new`.
        closed_form: From `measure_fusion`: convs are fused by what they read. The rest, which only attached networks
            have, is interpolated.
    """
    layers = closed_form or {}
    before = dict(old.named_modules())
    units: set[str] = set()

    def visit(name: str, module: nn.Module) -> nn.Module | None:
        if isinstance(module, RCConv | ConvNorm | ConvSum):
            units.add(f"{name}.")
        match module:
            case RCConv():
                return _fused_block(module, before[name], share, layers.get(name))
            case ConvNorm():
                return _fused_unit(module, before[name], share, layers.get(name))
            case ConvSum():
                return _fused_sum(module, before[name], share, layers.get(name))
        return None

    fused = replace_modules(new, visit)
    _fuse_rest(fused, old, share, tuple(units))
    if (rc := new.arch.rc) is not None:
        fused.arch = new.arch.replace(rc={**rc.model_dump(), "old": "merged", "new": "merged"})
    return fused


def _fuse_rest(fused: Network, old: Network, share: float, units: tuple[str, ...]) -> None:
    """Interpolate the tensors outside of units, which only attached networks have; class rows stay."""
    before = old.state_dict()
    tensors = itertools.chain(fused.named_parameters(), fused.named_buffers())  # each once, also where it is shared
    for name, value in tensors:
        was = before.get(name)
        if name.startswith(units) or fused.part_of(name) == "classifier" or not value.is_floating_point():
            continue
        if was is not None and was.shape == value.shape:
            value.copy_(torch.lerp(was.to(value), value, share))


def _fused_block(new: RCConv, old: nn.Module, share: float, layer: LayerFusion | None) -> RCConv:
    """Fuse an RC block; `old` may be a single branch if the step added the second one."""
    merged = new.merged()
    was = old.merged() if isinstance(old, RCConv) else old
    shifts = merged.bias is not None
    weight, bias = _between(kernel_of(was), kernel_of(merged), share, layer, shifts=shifts)
    norm, mix, act = copy.deepcopy((new.norm, new.mix, new.act))
    conv = merged if norm is None else new.mixed()
    set_kernel(conv if norm is None else ConvNorm(conv, norm), weight, bias)
    block = RCConv(conv, copy.deepcopy(conv), mix, act, norm=norm, frozen=new.frozen)
    return block.train(new.training)


def _fused_unit(new: ConvNorm, old: nn.Module, share: float, layer: LayerFusion | None) -> ConvNorm:
    unit = copy.deepcopy(new)
    set_kernel(unit, *_between(kernel_of(old), kernel_of(new), share, layer))
    return unit


def _fused_sum(new: ConvSum, old: nn.Module, share: float, layer: LayerFusion | None) -> ConvSum:
    """Fuse two convs that share a norm, as one folded conv over both maps."""
    assert isinstance(old, ConvSum)
    unit = copy.deepcopy(new)
    assert unit.norm is not None
    weight, bias = _between(_side_by_side(old), _side_by_side(new), share, layer)
    sizes = [unit.left.in_channels, unit.right.in_channels]
    for conv, kernel in zip((unit.left, unit.right), torch.split(weight, sizes, dim=1), strict=True):
        set_before_norm(conv, unit.norm, kernel)
    add_shift(unit.norm, bias - _side_by_side(unit)[1])
    return unit


def _side_by_side(unit: ConvSum) -> Kernel:
    """Both folded kernels as one [O, A + B, 1, 1], and their bias [O]."""
    folded = unit.fold()
    (left, bias), (right, _) = kernel_of(folded.left), kernel_of(folded.right)
    return torch.cat((left, right), dim=1), bias


def _between(old: Kernel, new: Kernel, share: float, layer: LayerFusion | None, *, shifts: bool = True) -> Kernel:
    weight, bias = (was.to(now.device) for was, now in zip(old, new, strict=True))
    if layer is not None:
        return layer((weight, bias), new, share, shifts=shifts)
    return torch.lerp(weight, new[0], share), torch.lerp(bias, new[1], share)

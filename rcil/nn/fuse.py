"""Fusion of a step's network with the previous one, on folded weights, at no inference cost.

After Endpoints Weight Fusion, https://arxiv.org/abs/2303.10375, which fuses plain networks.
"""

from __future__ import annotations

import copy
import itertools

import torch
from torch import Tensor, nn

from rcil.nn.fold import replace_modules
from rcil.nn.network import Network
from rcil.nn.units.convnorm import ConvNorm, ConvSum, add_shift, kernel_of, set_before_norm, set_kernel
from rcil.nn.units.rc import RCConv


@torch.no_grad()
def fuse(new: Network, old: Network, share: float) -> Network:
    """A network whose folded backbone and head are (1 - share) * old + share * new; the classifier is `new`'s.

    Both branches of every RC block become the fused conv, so that the next step starts from the fused function. Norms
    are kept: the conv before a norm is set so that both together equal the fused conv.

    Args:
        new: The network after a step, not folded.
        old: The network before the step; only the state or presence of its branches may differ.
        share: Weight of the new network; 1 gives the function of `new`.
    """
    before = dict(old.named_modules())
    units: set[str] = set()

    def visit(name: str, module: nn.Module) -> nn.Module | None:
        if isinstance(module, RCConv | ConvNorm | ConvSum):
            units.add(f"{name}.")
        match module:
            case RCConv():
                return _fused_block(module, before[name], share)
            case ConvNorm():
                return _fused_unit(module, before[name], share)
            case ConvSum():
                return _fused_sum(module, before[name], share)
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


def _fused_block(new: RCConv, old: nn.Module, share: float) -> RCConv:
    """Fuse an RC block; `old` may be a single branch if the step added the second one."""
    merged = new.merged()
    was = old.merged() if isinstance(old, RCConv) else old
    weight, bias = _between(kernel_of(was), kernel_of(merged), share)
    norm, mix, act = copy.deepcopy((new.norm, new.mix, new.act))
    conv = merged if norm is None else new.mixed()
    set_kernel(conv if norm is None else ConvNorm(conv, norm), weight, bias)
    block = RCConv(conv, copy.deepcopy(conv), mix, act, norm=norm, frozen=new.frozen)
    return block.train(new.training)


def _fused_unit(new: ConvNorm, old: nn.Module, share: float) -> ConvNorm:
    unit = copy.deepcopy(new)
    weight, bias = _between(kernel_of(old), kernel_of(new), share)
    set_kernel(unit, weight, bias)
    return unit


def _fused_sum(new: ConvSum, old: nn.Module, share: float) -> ConvSum:
    """Fuse two convs that share a norm: both folded kernels and the folded bias are interpolated."""
    assert isinstance(old, ConvSum)
    unit = copy.deepcopy(new)
    assert unit.norm is not None
    was, now = old.fold(), new.fold()
    for side in ("left", "right"):
        weight, _ = _between(kernel_of(getattr(was, side)), kernel_of(getattr(now, side)), share)
        set_before_norm(getattr(unit, side), unit.norm, weight)
    _, bias = _between(kernel_of(was.left), kernel_of(now.left), share)
    add_shift(unit.norm, bias - kernel_of(unit.fold().left)[1])
    return unit


def _between(old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor], share: float) -> tuple[Tensor, Tensor]:
    weight, bias = (torch.lerp(a.to(b.device), b, share) for a, b in zip(old, new, strict=True))
    return weight, bias

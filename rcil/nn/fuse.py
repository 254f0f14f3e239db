"""Fusion of a step's network with the one before it, on folded weights, at no cost in inference.

Endpoints Weight Fusion, https://arxiv.org/abs/2303.10375 (there for plain networks).
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from rcil.nn.fold import replace_modules
from rcil.nn.segmenter import Segmenter
from rcil.nn.units.convnorm import ConvNorm, ConvSum, add_shift, kernel_of, set_before_norm, set_kernel
from rcil.nn.units.rc import RCConv


@torch.no_grad()
def fuse(new: Segmenter, old: Segmenter, share: float) -> Segmenter:
    """A network whose folded backbone and head are (1 - share) * old + share * new; the classifier is `new`'s.

    Both branches of every RC block become the fused conv, so that the next step starts from the fused function. Norms
    stay: what precedes them is set so that norm and conv together are the fused conv.

    Args:
        new: After a step, not folded.
        old: Before it, of the same architecture but for the state of its branches, or for their absence.
        share: Of the new network; 1 gives the function of `new`.
    """
    before = dict(old.named_modules())

    def visit(name: str, module: nn.Module) -> nn.Module | None:
        match module:
            case RCConv():
                return _fused_block(module, before[name], share)
            case ConvNorm():
                return _fused_unit(module, before[name], share)
            case ConvSum():
                return _fused_sum(module, before[name], share)
        return None

    fused = replace_modules(new, visit)
    if (rc := new.arch.rc) is not None:
        fused.arch = new.arch.replace(rc={**rc.model_dump(), "old": "merged", "new": "merged"})
    return fused


def _fused_block(new: RCConv, old: nn.Module, share: float) -> RCConv:
    """`old` may have had a single branch, where the step brought the second."""
    merged = new.merged()
    was = old.merged() if isinstance(old, RCConv) else old
    _write(merged, *_between(kernel_of(was), kernel_of(merged), share))
    block = RCConv(merged, copy.deepcopy(merged), copy.deepcopy(new.mix), copy.deepcopy(new.act), frozen=new.frozen)
    return block.train(new.training)


def _fused_unit(new: ConvNorm, old: nn.Module, share: float) -> ConvNorm:
    unit = copy.deepcopy(new)
    weight, bias = _between(kernel_of(old), kernel_of(new), share)
    set_kernel(unit, weight, bias)
    return unit


def _fused_sum(new: ConvSum, old: nn.Module, share: float) -> ConvSum:
    """The convs share a norm: both kernels and its shift are interpolated as folded."""
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


def _write(conv: nn.Conv2d, weight: Tensor, bias: Tensor) -> None:
    assert conv.bias is not None
    conv.weight.copy_(weight)
    conv.bias.copy_(bias)

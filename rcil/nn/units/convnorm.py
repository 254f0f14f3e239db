"""Conv + norm (+ activation) units, and the absorption of a norm into a conv."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rcil.nn.units.norms import affine_of, fuses_activation


class SameConv2d(nn.Conv2d):
    """Conv with TensorFlow's "same" padding: output ceil(size / stride), the odd pixel goes right and below.

    The padding depends on the input size, so it is added in `forward`; `self.padding` stays 0.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, C', ceil(H / stride), ceil(W / stride)]."""
        pads: list[int] = []
        for axis in (1, 0):  # F.pad wants the last axis first
            size, stride = x.shape[2 + axis], self.stride[axis]
            reach = (self.kernel_size[axis] - 1) * self.dilation[axis] + 1
            total = max((-(-size // stride) - 1) * stride + reach - size, 0)
            pads += [total // 2, total - total // 2]
        return super().forward(F.pad(x, pads) if any(pads) else x)


GEOMETRY = frozenset(
    ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")
)


class LikeConv(nn.Module):
    """A unit that takes the place of a conv, whose geometry other modules of a foreign network may ask for."""

    @property
    def anchor(self) -> nn.Conv2d:
        """The conv that defines the geometry."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        return getattr(self.anchor, name) if name in GEOMETRY else super().__getattr__(name)


class ConvNorm(LikeConv):
    """conv -> norm -> activation; the activation is optional.

    Args:
        conv: The conv, which defines the geometry.
        norm: The norm over the conv's output channels. inplace-ABN may already contain the activation.
        act: The activation, which folding keeps; applied here unless the norm has fused it.
    """

    def __init__(self, conv: nn.Conv2d, norm: nn.Module, act: nn.Module | None = None) -> None:
        super().__init__()
        self.conv = conv
        self.norm = norm
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, C', H', W']."""
        x = self.norm(self.conv(x))
        return x if self.act is None or fuses_activation(self.norm) else self.act(x)

    @property
    def anchor(self) -> nn.Conv2d:
        """See `LikeConv`."""
        return self.conv

    def fold(self) -> nn.Module:
        """A new plain conv that equals conv + norm in evaluation mode, followed by the activation if there is one."""
        return with_activation(conv_like(self.conv, *kernel_of(self)), self.act)


def kernel_of(branch: nn.Module) -> tuple[Tensor, Tensor]:
    """Kernel [O, I/groups, kh, kw] and bias [O] of a conv or ConvNorm in evaluation mode, in float64."""
    conv = branch.conv if isinstance(branch, ConvNorm) else branch
    if not isinstance(conv, nn.Conv2d):
        raise TypeError(f"expected a conv or ConvNorm, got {type(branch).__name__}")
    weight = conv.weight.detach().double()
    bias = weight.new_zeros(weight.shape[0]) if conv.bias is None else conv.bias.detach().double()
    if isinstance(branch, ConvNorm):
        scale, shift = affine_of(branch.norm)
        weight, bias = weight * scale.view(-1, 1, 1, 1), bias * scale + shift
    return weight, bias


def has_shift(branch: ConvNorm | nn.Conv2d) -> bool:
    """Whether a branch can add something to its conv: a norm, or a bias."""
    return isinstance(branch, ConvNorm) or branch.bias is not None


@torch.no_grad()
def conv_like(conv: nn.Conv2d, weight: Tensor, bias: Tensor | None) -> nn.Conv2d:
    """A new conv with the geometry, device, dtype and mode of `conv` and these values; None: without a bias.

    The conv is copied rather than rebuilt from arguments, so dilation, groups and padding cannot get lost.
    """
    new = copy.deepcopy(conv)
    new.weight = nn.Parameter(weight.to(conv.weight))
    new.bias = None if bias is None else nn.Parameter(bias.to(conv.weight))
    return new


MIN_SCALE = 1e-3
"""A norm with a smaller scale has switched the channel off: its conv is not changed, only its shift."""


@torch.no_grad()
def set_kernel(unit: ConvNorm | nn.Conv2d, weight: Tensor, bias: Tensor) -> None:
    """Make a conv, with its norm, compute this kernel and bias in evaluation mode; statistics and scale stay.

    A conv without norm and bias ignores the bias.
    """
    if not isinstance(unit, ConvNorm):
        unit.weight.copy_(weight)
        if unit.bias is not None:
            unit.bias.copy_(bias)
        return
    set_before_norm(unit.conv, unit.norm, weight)
    add_shift(unit.norm, bias - kernel_of(unit)[1])


@torch.no_grad()
def set_before_norm(conv: nn.Conv2d, norm: nn.Module, weight: Tensor) -> None:
    """Give `conv` the kernel that `norm` turns into `weight`, except in channels that the norm has switched off."""
    scale, _ = affine_of(norm)
    alive = scale.abs() > MIN_SCALE
    inner = weight / scale.where(alive, torch.ones_like(scale)).view(-1, 1, 1, 1)
    conv.weight.copy_(torch.where(alive.view(-1, 1, 1, 1), inner, conv.weight.double()))


@torch.no_grad()
def add_shift(norm: nn.Module, shift: Tensor) -> None:
    """Add `shift` [C] to the bias of a norm."""
    bias = norm.bias
    assert isinstance(bias, Tensor)
    bias.add_(shift.to(bias))


def with_activation(conv: nn.Conv2d, act: nn.Module | None) -> nn.Module:
    """The conv, followed by a copy of the activation if there is one."""
    return conv if act is None else nn.Sequential(conv, copy.deepcopy(act))


class ConvSum(nn.Module):
    """norm(left(a) + right(b)), which adds the pooled path of the DeepLab head to the others."""

    def __init__(self, left: nn.Conv2d, right: nn.Conv2d, norm: nn.Module | None) -> None:
        super().__init__()
        self.left = left
        self.right = right
        self.norm = norm

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """From a [N, A, H, W] and b [N, B, H or 1, W or 1] to [N, C, H, W]."""
        x: Tensor = self.left(a) + self.right(b)
        if self.norm is not None:
            x = self.norm(x)
        return x

    def fold(self) -> ConvSum:
        """A new ConvSum without norm: its scale goes into both convs, its shift into the left one's bias."""
        if self.norm is None:
            return copy.deepcopy(self)
        scale, shift = affine_of(self.norm)
        (wl, bl), (wr, br) = kernel_of(self.left), kernel_of(self.right)
        left = conv_like(self.left, wl * scale.view(-1, 1, 1, 1), (bl + br) * scale + shift)
        right = copy.deepcopy(self.right)
        right.weight = nn.Parameter((wr * scale.view(-1, 1, 1, 1)).to(self.right.weight))
        right.bias = None
        return ConvSum(left, right, None)

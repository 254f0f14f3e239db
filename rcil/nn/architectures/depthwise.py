"""Dilated depthwise convs with a fast backward pass on a CPU.

torch has no fast CPU kernel for their backward pass. One product and one sum per kernel tap take a fraction of the
time; `tools/bench/depthwise.py` measures the gain in a training step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class DilatedDepthwise(nn.Conv2d):
    """A depthwise conv with an odd kernel, stride 1 and an output of the size of its input."""

    def __init__(self, channels: int, kernel: int, dilation: int, *, bias: bool = True) -> None:
        padding = dilation * (kernel // 2)
        super().__init__(channels, channels, kernel, 1, padding, dilation, groups=channels, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, C, H, W]."""
        learns = torch.is_grad_enabled() and self.weight.requires_grad and not torch.is_autocast_enabled("cpu")
        if not (learns and x.device.type == "cpu"):
            return super().forward(x)
        y: Tensor = _TapByTap.apply(x, self.weight, self.dilation[0])  # type: ignore[no-untyped-call]
        return y if self.bias is None else y + self.bias.view(1, -1, 1, 1)


class _TapByTap(torch.autograd.Function):
    """The conv without its bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, dilation: int) -> Tensor:
        """Input [N, C, H, W] and kernel [C, 1, K, K] -> [N, C, H, W]."""
        ctx.save_for_backward(x, weight)
        ctx.dilation = dilation
        return _same(x, weight, dilation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """The gradient of x is a conv with the mirrored kernel; that of a tap is the product with the shifted x."""
        x, weight = ctx.saved_tensors
        to_x = _same(grad, weight.flip(2, 3), ctx.dilation) if ctx.needs_input_grad[0] else None
        return to_x, _to_taps(x, grad, weight, ctx.dilation), None


def _same(x: Tensor, weight: Tensor, dilation: int) -> Tensor:
    return F.conv2d(x, weight, None, 1, dilation * (weight.shape[2] // 2), dilation, weight.shape[0])


def _to_taps(x: Tensor, grad: Tensor, weight: Tensor, dilation: int) -> Tensor:
    """Gradient of the kernel [C, 1, K, K]; channels are innermost, so that products are over contiguous vectors."""
    channels, _, kernel, _ = weight.shape
    height, width = x.shape[2:]
    reach = dilation * (kernel // 2)
    padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, reach, reach, reach, reach))
    flat = grad.permute(0, 2, 3, 1).reshape(-1, channels)
    taps = [
        (padded[:, top : top + height, left : left + width].reshape(-1, channels) * flat).sum(0)
        for top in range(0, dilation * kernel, dilation)
        for left in range(0, dilation * kernel, dilation)
    ]
    return torch.stack(taps, 1).view_as(weight)

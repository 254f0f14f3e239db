"""Depthwise convs of stride 1 with a fast backward pass on a CPU.

oneDNN, which torch calls, has fast kernels for the backward pass of depthwise convs without dilation, and for the
gradient of the kernel only up to a width of three. This is how other convs are reduced to those:

- The gradient of the input is the same conv with the mirrored kernel, and forward passes are fast for all kernels.
- Pixels whose rows and columns have the same remainders modulo the dilation only see each other, so a dilated conv is
  a conv without dilation in each of these groups.
- Columns of a wide kernel are convs of their own; three at a time are computed.

`tools/bench/depthwise.py` measures the gain in a training step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

MAX_COLUMNS = 3
"""Width of the widest kernel whose gradient oneDNN computes fast."""


class DepthwiseConv2d(nn.Conv2d):
    """A depthwise conv with an odd kernel, stride 1 and an output of the size of its input."""

    def __init__(self, channels: int, kernel: int, dilation: int, *, bias: bool = True) -> None:
        padding = dilation * (kernel // 2)
        super().__init__(channels, channels, kernel, 1, padding, dilation, groups=channels, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, C, H, W]."""
        learns = torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad)
        simple = self.dilation[0] == 1 and self.kernel_size[1] <= MAX_COLUMNS
        if simple or not learns or x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        y: Tensor = _DepthwiseConv.apply(x, self.weight, self.bias, self.dilation[0])  # type: ignore[no-untyped-call]
        return y


class _DepthwiseConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
        """Input [N, C, H, W], kernel [C, 1, K, K] and bias [C] -> [N, C, H, W]."""
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        ctx.dilation = dilation
        return _conv(x, weight, bias, dilation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        """Gradients of input, kernel and bias."""
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias, _ = ctx.needs_input_grad
        return (
            _conv(grad, weight.flip(2, 3), None, ctx.dilation) if to_x else None,
            _kernel_gradient(x, grad, weight, ctx.dilation) if to_weight else None,
            grad.sum(dim=(0, 2, 3)) if to_bias else None,
            None,
        )


def _conv(x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
    return F.conv2d(x, weight, bias, 1, dilation * (weight.shape[2] // 2), dilation, weight.shape[0])


def _kernel_gradient(x: Tensor, grad: Tensor, weight: Tensor, dilation: int) -> Tensor:
    """Gradient [C, 1, K, K] of the kernel, from input and output gradient [N, C, H, W]."""
    last = torch.channels_last
    x, grad = x.contiguous(memory_format=last), grad.contiguous(memory_format=last)
    height, width = x.shape[2:]
    total = torch.zeros_like(weight)
    for top in range(min(dilation, height)):
        for left in range(min(dilation, width)):
            part = slice(None), slice(None), slice(top, None, dilation), slice(left, None, dilation)
            total += _undilated_gradient(x[part], grad[part].contiguous(memory_format=last), weight)
    return total


def _undilated_gradient(x: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
    """The same for a conv without dilation, some columns of the kernel at a time."""
    size = weight.shape[3]
    reach = size // 2
    columns = []
    for first in range(0, size, MAX_COLUMNS):
        kernel = weight[..., first : first + MAX_COLUMNS].contiguous()
        before = reach - first  # negative padding crops
        padded = F.pad(x, (before, kernel.shape[3] - 1 - before))
        geometry = [1, 1], [reach, 0], [1, 1], False, [0, 0], len(weight)
        wanted = [False, True, False]
        columns.append(torch.ops.aten.convolution_backward(grad, padded, kernel, None, *geometry, wanted)[1])
    return torch.cat(columns, dim=3)

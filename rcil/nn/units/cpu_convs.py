"""Convs that are faster on a CPU than torch's own; weights, results and folding are those of `nn.Conv2d`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

MIN_BATCH = 16
"""Smallest batch for which torch computes 1x1 convs with oneDNN if it has one thread."""
MAX_SHARE = 0.5
"""Share of its products that a conv computes with pixels, not padding, up to which single taps are faster."""


class PointwiseConv2d(nn.Conv2d):
    """A 1x1 conv of stride 1 that always uses oneDNN's kernels on a CPU.

    With one thread and a batch below `MIN_BATCH`, torch takes kernels that are a fifth slower. A 1x1 conv treats all
    pixels alike, so parts of the images can pass as more images; in channels-last layout that needs no copy.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, C', H, W]."""
        parts = _parts(x)
        if parts == 1:
            return super().forward(x)
        samples, channels, height, width = x.shape
        split = x.permute(0, 2, 3, 1).view(samples * parts, height // parts, width, channels).permute(0, 3, 1, 2)
        y = super().forward(split).permute(0, 2, 3, 1)
        return y.reshape(samples, height, width, self.out_channels).permute(0, 3, 1, 2)


def _parts(x: Tensor) -> int:
    """Number of parts of equal height into which to cut the images [N, C, H, W]; 1 where that is of no use."""
    samples, _, height, _ = x.shape
    last = x.is_contiguous(memory_format=torch.channels_last)
    if x.device.type != "cpu" or samples >= MIN_BATCH or not last or torch.get_num_threads() > 1:
        return 1
    needed = -(-MIN_BATCH // samples)
    return next((parts for parts in range(needed, height + 1) if height % parts == 0), 1)


class DilatedConv2d(nn.Conv2d):
    """A conv of stride 1, without groups, whose output has the size of its input; meant for large dilations."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, C', H, W]."""
        learns = torch.is_grad_enabled() and self.weight.requires_grad and not torch.is_autocast_enabled("cpu")
        if not (learns and is_mostly_padding(x, self)):
            return super().forward(x)
        y: Tensor = _DilatedConv.apply(x, self.weight, self.dilation[0])  # type: ignore[no-untyped-call]
        return y if self.bias is None else y + self.bias.view(1, -1, 1, 1)


class _DilatedConv(torch.autograd.Function):
    """The conv without its bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, dilation: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.dilation = dilation
        return F.conv2d(x, weight, None, 1, dilation * (weight.shape[2] // 2), dilation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None]:
        x, weight = ctx.saved_tensors
        reach = ctx.dilation * (weight.shape[2] // 2)
        to_x = None
        if ctx.needs_input_grad[0]:
            to_x = torch.ops.aten.convolution_backward(
                grad, x, weight, None, [1, 1], [reach] * 2, [ctx.dilation] * 2, False, [0, 0], 1, [True, False, False]
            )[0]
        return to_x, kernel_gradient(x, grad, weight.shape[2], ctx.dilation), None


def is_mostly_padding(x: Tensor, conv: nn.Conv2d) -> bool:
    """Whether most products of `conv` on x [N, C, H, W] are with padding, on a CPU: then `kernel_gradient` is faster.

    oneDNN's forward pass and gradient of the input skip such products, but its gradient of the kernel does not.
    """
    size, dilation = conv.kernel_size[0], conv.dilation[0]
    reach = dilation * (size // 2)
    same = conv.padding == (reach, reach) and conv.stride == (1, 1) and conv.groups == 1
    if not same or conv.kernel_size != (size, size) or conv.dilation != (dilation, dilation) or size % 2 == 0:
        return False
    share = 1.0
    for length in x.shape[2:]:
        share *= sum(max(length - abs(s), 0) for s in _shifts(size, dilation)) / (size * length)
    return x.device.type == "cpu" and share <= MAX_SHARE


def kernel_gradient(x: Tensor, grad: Tensor, size: int, dilation: int) -> Tensor:
    """Gradient [C', C, size, size] of a kernel, as one matrix product per tap, over the pixels that the tap meets.

    Args:
        x: Input [N, C, H, W] of a conv of stride 1 whose output has the size of its input.
        grad: Gradient [N, C', H, W] of its output.
        size: Height and width of the kernel, odd.
        dilation: Distance of two taps.
    """
    inputs, outputs = x.shape[1], grad.shape[1]
    height, width = x.shape[2:]
    x, grad = x.permute(0, 2, 3, 1), grad.permute(0, 2, 3, 1)
    taps = x.new_zeros(size, size, outputs, inputs)
    for row, down in enumerate(_shifts(size, dilation)):
        for column, right in enumerate(_shifts(size, dilation)):
            if abs(down) < height and abs(right) < width:
                seen = x[:, max(down, 0) : height + min(down, 0), max(right, 0) : width + min(right, 0)]
                by = grad[:, max(-down, 0) : height - max(down, 0), max(-right, 0) : width - max(right, 0)]
                torch.mm(by.reshape(-1, outputs).T, seen.reshape(-1, inputs), out=taps[row, column])
    return taps.permute(2, 3, 0, 1)


def _shifts(size: int, dilation: int) -> range:
    """Offsets of the taps along an axis."""
    reach = dilation * (size // 2)
    return range(-reach, reach + 1, dilation)

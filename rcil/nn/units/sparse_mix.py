"""Drop-path that skips unused computations, for later steps on a CPU.

Channels of the frozen branch with eta = 0 are not computed. Channels of the new branch with eta = 1 have no gradient:
their output is needed for the norm's statistics, but their conv has no backward pass. With three equally likely values
this saves a third of the frozen branch and a third of the new branch's backward pass, and the result is exact.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from rcil.nn.units.cpu_convs import DilatedConv2d, is_mostly_padding, kernel_gradient


class _ConvForSome(torch.autograd.Function):
    """A conv without bias whose output channels outside `alive` have no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, alive: Tensor, conv: nn.Conv2d) -> Tensor:
        """[N, C, H, W] -> [N, C', H', W'], all channels; `alive` are the indices [K] of channels with a gradient."""
        ctx.save_for_backward(x, weight, alive)
        ctx.conv = conv
        return F.conv2d(x, weight, None, conv.stride, conv.padding, conv.dilation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Gradients of input and weight from the channels in `alive` only."""
        x, weight, alive = ctx.saved_tensors
        conv = ctx.conv
        if len(alive) == 0:
            return torch.zeros_like(x), torch.zeros_like(weight), None, None
        grad = grad.index_select(1, alive)
        by_taps = ctx.needs_input_grad[1] and is_mostly_padding(x, conv)
        wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[1] and not by_taps, False]
        to_x, to_some, _ = torch.ops.aten.convolution_backward(
            grad,
            x,
            weight.index_select(0, alive),
            None,
            conv.stride,
            conv.padding,
            conv.dilation,
            False,
            [0, 0],
            1,
            wanted,
        )
        if by_taps:
            to_some = kernel_gradient(x, grad, conv.kernel_size[0], conv.dilation[0])
        to_weight = torch.zeros_like(weight).index_copy_(0, alive, to_some) if ctx.needs_input_grad[1] else None
        return to_x, to_weight, None, None


def can_skip(conv: nn.Module, x: Tensor) -> bool:
    """Whether computing only some channels of `conv` is possible and faster.

    It is not on a GPU, where the indices would have to be copied to the host first, and not under autocast.
    """
    plain = (
        isinstance(conv, nn.Conv2d)
        and type(conv) in (nn.Conv2d, DilatedConv2d)
        and conv.groups == 1
        and conv.padding_mode == "zeros"
        and not isinstance(conv.padding, str)
    )
    return plain and x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")


def mix_sparsely(x: Tensor, old: nn.Conv2d, new: nn.Conv2d, norm: nn.Module, eta: Tensor) -> Tensor:
    """Both branches together, eta * old(x) + (1 - eta) * norm(new(x)), for eta [C'] in {0, 0.5, 1}.

    Args:
        x: [N, C, H, W].
        old: The frozen, merged branch.
        new: The conv of the new branch, without bias.
        norm: The norm of the new branch.
        eta: Weight of the old branch per channel.
    """
    learned: Tensor = norm(_ConvForSome.apply(x, new.weight, (eta < 1).nonzero().squeeze(1), new))  # type: ignore[no-untyped-call]
    kept = (eta > 0).nonzero().squeeze(1)
    if len(kept) == 0:
        return learned
    weight = eta.index_select(0, kept)
    assert old.bias is not None
    past = F.conv2d(
        x,
        old.weight.index_select(0, kept) * weight.view(-1, 1, 1, 1),
        old.bias.index_select(0, kept) * weight,
        old.stride,
        old.padding,
        old.dilation,
    )
    return (learned * (1 - eta).view(1, -1, 1, 1)).index_add_(1, kept, past)

"""Drop-path without the work that it throws away, for the later steps on a CPU.

Where a channel's eta is 0 the frozen branch does not count, so it is not computed. Where eta is 1 the new branch gets
no gradient; its output is still needed for the norm's statistics, but nothing flows back through its conv. With three
equally likely values that saves a third of the frozen branch and a third of the new branch's backward pass, exactly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class _ConvForSome(torch.autograd.Function):
    """A conv without bias whose output channels outside `alive` have no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, alive: Tensor, conv: nn.Conv2d) -> Tensor:
        """[N, C, H, W] -> [N, C', H', W'], all channels; `alive` are the indices [K] that learn."""
        ctx.save_for_backward(x, weight, alive)
        ctx.conv = conv
        return F.conv2d(x, weight, None, conv.stride, conv.padding, conv.dilation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Gradients of input and weight from the living channels alone."""
        x, weight, alive = ctx.saved_tensors
        conv = ctx.conv
        if len(alive) == 0:
            return torch.zeros_like(x), torch.zeros_like(weight), None, None
        wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[1], False]
        to_x, to_some, _ = torch.ops.aten.convolution_backward(
            grad.index_select(1, alive),
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
        to_weight = torch.zeros_like(weight).index_copy_(0, alive, to_some) if wanted[1] else None
        return to_x, to_weight, None, None


def can_skip(conv: nn.Module, x: Tensor) -> bool:
    """Whether `conv` is one whose channels can be computed apart at a profit.

    Not on a GPU, where the indices would have to come back to the host first, and not under autocast.
    """
    plain = type(conv) is nn.Conv2d and conv.groups == 1 and conv.padding_mode == "zeros"
    return plain and x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")


def mix_sparsely(x: Tensor, old: nn.Conv2d, new: nn.Conv2d, norm: nn.Module, eta: Tensor) -> Tensor:
    """Both branches together, eta * old(x) + (1 - eta) * norm(new(x)), for eta [C'] in {0, 0.5, 1}.

    Args:
        x: [N, C, H, W].
        old: The frozen, merged branch.
        new: The conv of the branch that learns; it has no bias.
        norm: Its norm.
        eta: Weight of the old branch for every channel.
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

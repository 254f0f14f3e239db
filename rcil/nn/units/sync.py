"""Batch statistics over all processes of a torch.distributed group, on CPU (gloo) and GPU (NCCL).

torch's own SyncBatchNorm has no CPU kernel and does not support the scale |gamma| + eps.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rcil.nn.fold import M, replace_modules
from rcil.nn.units.norms import AbsBatchNorm2d, inplace_abn_classes, is_inplace, is_norm


class _SyncNorm(torch.autograd.Function):
    """scale * (x - mean) / sqrt(var + eps) + shift with mean and biased variance over all processes.

    Half-precision maps are normalised in float32, where their squares do not overflow, and returned in their own dtype,
    as torch's own norms do under autocast. Only the map itself is kept for the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, eps: float, group: dist.ProcessGroup | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """From x [N, C, H, W]: x normalised, and in float64 mean [C], biased variance [C], values per channel []."""
        wide = _widened(x)
        local = torch.stack(
            [
                x.new_full((x.shape[1],), x.numel() / x.shape[1], dtype=torch.float64),
                wide.sum(dim=(0, 2, 3), dtype=torch.float64),
            ]
        )
        dist.all_reduce(local, group=group)
        count, mean = local[0, 0], local[1] / local[0]
        centred = wide - _column(mean, wide)
        squares = (centred * centred).sum(dim=(0, 2, 3), dtype=torch.float64)
        dist.all_reduce(squares, group=group)
        var = squares / count
        inverse = torch.rsqrt(var + eps)
        normalised = centred * _column(inverse, wide)
        ctx.save_for_backward(x, scale, mean, inverse, count)
        ctx.group = group
        ctx.mark_non_differentiable(mean, var, count)
        return (normalised * _column(scale, wide) + _column(shift, wide)).to(x.dtype), mean, var, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Gradients of x, scale and shift; the sums for x are over all processes.

        Scale and shift get the gradient of this process only, like all other weights.
        """
        x, scale, mean, inverse, count = ctx.saved_tensors
        wide, grad = _widened(x), _widened(grad)
        normalised = (wide - _column(mean, wide)) * _column(inverse, wide)
        sums = torch.stack(
            [
                grad.sum(dim=(0, 2, 3), dtype=torch.float64),
                (grad * normalised).sum(dim=(0, 2, 3), dtype=torch.float64),
            ]
        )
        to_shift, to_scale = sums.to(scale.dtype)
        total = sums.clone()
        dist.all_reduce(total, group=ctx.group)
        first, second = total / count
        inner = grad - _column(first, grad) - normalised * _column(second, grad)
        return (inner * _column(scale * inverse, grad)).to(x.dtype), to_scale, to_shift, None, None


def _widened(x: Tensor) -> Tensor:
    """Half precision as float32; other dtypes unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _column(values: Tensor, like: Tensor) -> Tensor:
    """Values [C] as [1, C, 1, 1], in the dtype of a map."""
    return values.to(like.dtype).view(1, -1, 1, 1)


class SyncBatchNorm2d(nn.BatchNorm2d):
    """Batch norm whose training statistics are those of all processes of the group."""

    group: dist.ProcessGroup | None = None

    def _scale(self) -> Tensor:
        return self.weight

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [N, C, H, W]; like BatchNorm2d in evaluation mode."""
        if not self.training:
            return super().forward(x)
        result: Tensor
        result, mean, var, count = _SyncNorm.apply(x, self._scale(), self.bias, self.eps, self.group)  # type: ignore[no-untyped-call]
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
            self.running_var.lerp_((var * count / (count - 1)).to(self.running_var), self.momentum)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
        return result


class SyncAbsBatchNorm2d(SyncBatchNorm2d, AbsBatchNorm2d):
    """The same with inplace-ABN's scale |gamma| + eps."""

    def _scale(self) -> Tensor:
        return self.scale


def synchronise_norms(model: M, group: dist.ProcessGroup | None = None) -> M:
    """A copy of `model` whose norms share their statistics over `group` (default: all processes).

    Needs an initialised process group. inplace-ABN's synchronised layer sets its default group when the package is
    imported, before a group exists, and then silently does not synchronise, so the group is always passed. That layer
    runs on GPUs only; on a CPU inplace-ABN becomes `SyncAbsBatchNorm2d`, which computes the same.
    """
    if group is None:
        group = dist.group.WORLD
    if group is None:
        raise RuntimeError("synchronise_norms needs torch.distributed.init_process_group first")

    def visit(_: str, module: nn.Module) -> nn.Module | None:
        on_gpu = next(module.parameters(), torch.empty(0)).is_cuda
        if is_inplace(module) and on_gpu:
            twin = inplace_abn_classes()[1](
                module.num_features,
                eps=module.eps,
                momentum=module.momentum,
                activation=module.activation,
                activation_param=module.activation_param,
                group=group,
            )
        elif is_norm(module) and not isinstance(module, SyncBatchNorm2d) and not any(module.children()):
            plain = isinstance(module, nn.BatchNorm2d) and not isinstance(module, AbsBatchNorm2d)
            kind = SyncBatchNorm2d if plain else SyncAbsBatchNorm2d
            source = cast("nn.BatchNorm2d", module)  # inplace-ABN has the same fields
            twin = kind(source.num_features, eps=source.eps, momentum=source.momentum)
            twin.group = group
        else:
            return None
        twin.load_state_dict(module.state_dict())
        parameter = next(module.parameters())
        return twin.to(parameter).requires_grad_(parameter.requires_grad).train(module.training)

    return replace_modules(model, visit)

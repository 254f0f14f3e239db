"""Batch statistics over all processes of a torch.distributed group, on CPU (gloo) and GPU (NCCL).

torch's own SyncBatchNorm has no CPU kernel, and neither does it know the scale |gamma| + eps.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rcil.nn.fold import M, replace_modules
from rcil.nn.norms import AbsBatchNorm2d, inplace_abn_classes, is_inplace, is_norm


class _SyncNormalise(torch.autograd.Function):
    """(x - mean) / sqrt(var + eps) with mean and biased variance over all processes."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, eps: float, group: dist.ProcessGroup | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """From x [N, C, H, W]: x normalised, mean [C], biased variance [C], number of values a channel []."""
        local = torch.stack(
            [
                x.new_full((x.shape[1],), x.numel() / x.shape[1], dtype=torch.float64),
                x.sum(dim=(0, 2, 3), dtype=torch.float64),
            ]
        )
        dist.all_reduce(local, group=group)
        count, mean = local[0, 0], local[1] / local[0]
        centred = x - mean.to(x.dtype).view(1, -1, 1, 1)
        squares = (centred * centred).sum(dim=(0, 2, 3), dtype=torch.float64)
        dist.all_reduce(squares, group=group)
        var = squares / count
        inverse = torch.rsqrt(var + eps).to(x.dtype)
        normalised = centred * inverse.view(1, -1, 1, 1)
        ctx.save_for_backward(normalised, inverse, count)
        ctx.group = group
        ctx.mark_non_differentiable(mean, var, count)
        return normalised, mean.to(x.dtype), var.to(x.dtype), count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        """Gradient of x; the two sums of batch norm's backward also go over all processes."""
        normalised, inverse, count = ctx.saved_tensors
        sums = torch.stack(
            [
                grad.sum(dim=(0, 2, 3), dtype=torch.float64),
                (grad * normalised).sum(dim=(0, 2, 3), dtype=torch.float64),
            ]
        )
        dist.all_reduce(sums, group=ctx.group)
        means = (sums / count).to(grad.dtype).view(2, 1, -1, 1, 1)
        return (grad - means[0] - normalised * means[1]) * inverse.view(1, -1, 1, 1), None, None


class SyncBatchNorm2d(nn.BatchNorm2d):
    """Batch norm whose training statistics are those of all processes of the group."""

    group: dist.ProcessGroup | None = None

    def _scale(self) -> Tensor:
        return self.weight

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [N, C, H, W]; like BatchNorm2d in evaluation mode."""
        if not self.training:
            return super().forward(x)
        normalised, mean, var, count = _SyncNormalise.apply(x, self.eps, self.group)  # type: ignore[no-untyped-call]
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
            self.running_var.lerp_((var * count / (count - 1)).to(self.running_var), self.momentum)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
        shape = (1, -1, 1, 1)
        result: Tensor = normalised * self._scale().view(shape) + self.bias.view(shape)
        return result


class SyncAbsBatchNorm2d(SyncBatchNorm2d, AbsBatchNorm2d):
    """The same with inplace-ABN's scale |gamma| + eps."""

    def _scale(self) -> Tensor:
        return self.scale


def synchronise_norms(model: M, group: dist.ProcessGroup | None = None) -> M:
    """A copy of `model` whose norms share their statistics over `group` (default: all processes).

    Needs an initialised process group: inplace-ABN's synchronised layer takes its default when the package is
    imported, before there is a group, and then silently does not synchronise. So the group is always passed.
    That layer has kernels for GPUs only; on a CPU inplace-ABN becomes `SyncAbsBatchNorm2d`, which computes the same.
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
        elif is_norm(module) and not isinstance(module, SyncBatchNorm2d):
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

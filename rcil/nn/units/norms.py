"""Normalisation layers; `affine_of`, which every fold and merge uses, and `set_statistics`, which unfolding uses.

inplace-ABN scales by |gamma| + eps and ignores the sign of gamma. Code that forgets this folds incorrectly, so no other
function reads norms or writes their statistics. Importers, which handle tensors and not layers, repeat the formula.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rcil.core.errors import MissingDependencyError

if TYPE_CHECKING:
    from rcil.model.architecture import NormKind


class AbsBatchNorm2d(nn.BatchNorm2d):
    """Batch norm that scales by |gamma| + eps: the arithmetic of inplace-ABN in plain torch.

    It has the same state dict as inplace-ABN and runs on any device and in float64.
    """

    @property
    def scale(self) -> Tensor:
        """The effective scale [C]; gamma = 0 counts as positive, so its gradient is never lost."""
        return torch.where(self.weight < 0, -self.weight, self.weight) + self.eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [N, C, H, W]; running statistics are updated in training mode only."""
        self._check_input_dim(x)
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.scale,
            self.bias,
            self.training,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )


def inplace_abn_classes() -> tuple[type[nn.Module], type[nn.Module]]:
    """`InPlaceABN` and `InPlaceABNSync`, or an error that explains how to install them."""
    try:
        from inplace_abn import InPlaceABN, InPlaceABNSync
    except ImportError as error:
        raise MissingDependencyError(
            "norm 'inplace' needs the package inplace-abn, which is not installed",
            "Install it with: pip install --no-build-isolation inplace-abn\n"
            "or choose norm 'abs', which computes the same but uses more memory.",
        ) from error
    return InPlaceABN, InPlaceABNSync


def is_inplace(module: nn.Module) -> bool:
    """Whether `module` is an inplace-ABN layer; never imports the package."""
    return any(base.__module__ == "inplace_abn.abn" for base in type(module).__mro__)


def as_float32(value: float) -> float:
    """`value` in the precision of inplace-ABN's kernels, which take eps and slope as float32 for all tensors."""
    return torch.tensor(value, dtype=torch.float32).item()


def fuses_activation(norm: nn.Module) -> bool:
    """Whether the norm already applies the activation that follows it."""
    return is_inplace(norm) and norm.activation != "identity"


def is_norm(module: nn.Module) -> bool:
    """Whether `module` is any normalisation layer of these networks."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm) or is_inplace(module)


def make_norm(kind: NormKind, channels: int, *, eps: float = 1e-5, slope: float | None = None) -> nn.Module:
    """A norm over `channels`.

    Args:
        kind: See `Architecture.norm`.
        channels: Channels of the normalised map.
        eps: Added to the variance (and, except for `batch`, to |gamma|).
        slope: Fuse a leaky ReLU of this slope; only inplace-ABN does, to save memory; other norms ignore it.
    """
    if kind == "inplace":
        abn, _ = inplace_abn_classes()
        fused = {"activation": "identity"} if slope is None else {"activation": "leaky_relu", "activation_param": slope}
        return abn(channels, eps=eps, **fused)
    layer = AbsBatchNorm2d if kind == "abs" else nn.BatchNorm2d
    return layer(channels, eps=eps)


def affine_of(norm: nn.Module) -> tuple[Tensor, Tensor]:
    """The per-channel (scale, shift) that `norm` applies in evaluation mode, in float64.

    y = scale * x + shift, before any activation that the layer fuses.
    """
    if not is_norm(norm):
        raise TypeError(f"no affine form is known for {type(norm).__name__}")
    layer = cast("nn.BatchNorm2d", norm)  # inplace-ABN has the same fields
    assert layer.running_mean is not None and layer.running_var is not None
    gamma, beta = layer.weight.detach().double(), layer.bias.detach().double()
    mean, var = layer.running_mean.double(), layer.running_var.double()
    eps = _eps(norm)
    if _takes_magnitude(norm):
        gamma = gamma.abs() + eps
    scale = gamma / torch.sqrt(var + eps)
    return scale, beta - mean * scale


@torch.no_grad()
def set_statistics(norm: nn.Module, mean: Tensor, var: Tensor, shift: Tensor) -> None:
    """Give `norm` these running statistics [C] and the weights with which it is x + shift [C] in evaluation mode."""
    layer = cast("nn.BatchNorm2d", norm)
    assert layer.running_mean is not None and layer.running_var is not None
    layer.running_mean.copy_(mean)
    layer.running_var.copy_(var)
    scale = torch.sqrt(layer.running_var.double() + _eps(norm))  # from the stored values, which may be rounded
    layer.weight.copy_(scale - _eps(norm) if _takes_magnitude(norm) else scale)
    layer.bias.copy_(layer.running_mean.double() + shift)


def _takes_magnitude(norm: nn.Module) -> bool:
    """Whether the norm scales by |gamma| + eps rather than by gamma."""
    return isinstance(norm, AbsBatchNorm2d) or is_inplace(norm)


def _eps(norm: nn.Module) -> float:
    eps = cast("nn.BatchNorm2d", norm).eps
    return as_float32(eps) if is_inplace(norm) else eps

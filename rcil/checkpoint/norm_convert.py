"""Exact conversion of norm weights between BatchNorm (scale gamma) and inplace-ABN (scale |gamma| + eps)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rcil.nn.architectures.efficientnet_lite import NORM_EPS

if TYPE_CHECKING:
    from torch import Tensor

    from rcil.model.architecture import Architecture, NormKind


def norm_eps(arch: Architecture) -> float:
    """The eps of the backbone's norms."""
    return NORM_EPS if arch.lite else 1e-5


def convert_norms(tensors: dict[str, Tensor], source: NormKind, target: NormKind, *, eps: float) -> dict[str, Tensor]:
    """A copy of a state dict whose norms compute under `target` what they computed under `source`.

    To BatchNorm, gamma becomes |gamma| + eps. To inplace-ABN, a negative scale is not possible; there the channel is
    negated in the conv before the norm instead, with its running mean. Scales below eps become eps, the smallest that
    inplace-ABN has.
    """
    if (source == "batch") == (target == "batch"):
        return dict(tensors)
    result = dict(tensors)
    for key in [k for k in tensors if k.endswith(".norm.weight")]:
        gamma, base = tensors[key], key.removesuffix("norm.weight")
        if target == "batch":
            result[key] = gamma.abs() + eps
            continue
        sign = torch.where(gamma < 0, -1.0, 1.0).to(gamma)
        result[key] = (gamma.abs() - eps).clamp(min=0)
        conv, mean = f"{base}conv.weight", f"{base}norm.running_mean"
        result[conv] = tensors[conv] * sign.view(-1, 1, 1, 1)
        result[mean] = tensors[mean] * sign
        if (bias := f"{base}conv.bias") in tensors:
            result[bias] = tensors[bias] * sign
    return result

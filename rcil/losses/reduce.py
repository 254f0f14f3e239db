"""Reduction of a map of per-pixel losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rcil.core.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

Reduction = Literal["mean_all", "mean", "none"]


def reduce_pixels(loss: Tensor, valid: Tensor | None, reduction: Reduction) -> Tensor:
    """Zero the invalid pixels of a loss map [N, H, W], then reduce it.

    Args:
        loss: Per-pixel losses [N, H, W].
        valid: Boolean map [N, H, W] of the pixels that count, or None when all do.
        reduction: "mean_all" divides by all pixels, so an image full of ignored pixels weighs little (what the
            official training does); "mean" divides by the valid ones and gives 0 when there are none;
            "none" returns the map.
    """
    if reduction not in ("mean_all", "mean", "none"):
        raise ConfigError(f"unknown reduction '{reduction}'", did_you_mean(reduction, ("mean_all", "mean", "none")))
    if valid is not None:
        # where() rather than a product: an invalid pixel may be inf or NaN, which a product with zero keeps.
        loss = loss.where(valid, loss.new_zeros(()))
    if reduction == "none":
        return loss
    if reduction == "mean" and valid is not None:
        return loss.sum() / valid.sum().clamp(min=1)
    return loss.mean()

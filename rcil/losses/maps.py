"""Pairing of a student's maps with its teacher's, for PCD and local POD."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from rcil.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def fold_new_channels(new: Tensor, old_channels: int) -> Tensor:
    """Sum the new classes' channels of logits [N, C, H, W] into background; the result has `old_channels` channels.

    To the teacher every new class is background, so this is the student's map in the teacher's terms.
    """
    if not 1 <= old_channels <= new.shape[1]:
        raise ConfigError(
            f"cannot fold {new.shape[1]} channels into {old_channels}",
            "The student must have at least the teacher's channels: check the order of the two maps.",
        )
    if old_channels == new.shape[1]:
        return new
    background = new[:, :1] + new[:, old_channels:].sum(dim=1, keepdim=True)
    return torch.cat((background, new[:, 1:old_channels]), dim=1)


def matched(new: Tensor, old: Tensor) -> tuple[Tensor, Tensor]:
    """Both maps [N, C, H, W] with the teacher's channels and one dtype."""
    return alike(fold_new_channels(new, old.shape[1]), old)


def alike(new: Tensor, old: Tensor) -> tuple[Tensor, Tensor]:
    """Both maps in one dtype; raises unless they have the same non-empty shape."""
    if new.shape != old.shape:
        raise ConfigError(
            f"the student's map has shape {tuple(new.shape)}, the teacher's {tuple(old.shape)}",
            "Feed both models the same crop and take the maps of the same layers.",
        )
    if new.numel() == 0:
        raise ConfigError(f"an empty map of shape {tuple(new.shape)}", "Skip the step when the batch is empty.")
    dtype = torch.promote_types(new.dtype, old.dtype)
    return new.to(dtype), old.to(dtype)


def paired(new_maps: Sequence[Tensor], old_maps: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """The matched pairs of two equally long, non-empty lists of maps."""
    if len(new_maps) != len(old_maps) or not new_maps:
        raise ConfigError(
            f"{len(new_maps)} maps of the student against {len(old_maps)} of the teacher",
            "Pass the same layers of both models, at least one.",
        )
    return [matched(new, old) for new, old in zip(new_maps, old_maps, strict=True)]


def class_schedule(classes: int, new_classes: int) -> float:
    """sqrt(|C| / |N|): the weight of distillation, larger if a step adds few classes to many.

    Args:
        classes: All classes so far, background and this step's included.
        new_classes: Classes this step adds; equal to `classes` when only the domain changes.
    """
    if not 1 <= new_classes <= classes:
        raise ConfigError(
            f"{new_classes} new classes of {classes} in total",
            "`classes` counts every class so far, background and the new ones included.",
        )
    return math.sqrt(classes / new_classes)


def mean_of_layers(distances: Sequence[Tensor], factor: float, last_factor: float, schedule: float) -> Tensor:
    """Mean over maps of factor * schedule * distance, where the last map has its own factor."""
    factors = [factor] * (len(distances) - 1) + [last_factor]
    weighted = [weight * schedule * distance for weight, distance in zip(factors, distances, strict=True)]
    return torch.stack(weighted).sum() / len(distances)

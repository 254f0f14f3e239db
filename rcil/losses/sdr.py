"""The losses of SDR, which shape the feature space around class prototypes.

https://arxiv.org/abs/2103.06342

All terms work on features [N, C, h, w] and class ids [N, h, w] at the same resolution (`resize_labels`). Prototypes
are a table [K, C] with the number of pixels [K] behind each row; a count of 0 means the class has none yet. Every term
averages over the classes it applies to and is 0, with zero gradients, when there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from rcil.losses.precision import full_precision

if TYPE_CHECKING:
    from torch import Tensor

_MIN_DISTANCE = 1e-6
"""Smallest distance of two class means, which keeps the inverse finite."""


def resize_labels(labels: Tensor, size: tuple[int, int]) -> Tensor:
    """Class ids [N, H, W] at a feature map's resolution [N, h, w], by nearest neighbour."""
    # float64 holds every class id exactly; interpolation does not take integers.
    return F.interpolate(labels.unsqueeze(1).double(), size=size, mode="nearest").squeeze(1).long()


def complete_background(labels: Tensor, old_logits: Tensor) -> Tensor:
    """Labels [N, H, W] whose background takes the old model's most likely class (logits [N, O, H, W])."""
    return torch.where(labels == 0, old_logits.argmax(dim=1).to(labels.dtype), labels)


@full_precision
def class_means(features: Tensor, labels: Tensor, classes: int, ignore_index: int = 255) -> tuple[Tensor, Tensor]:
    """Mean feature [K, C] and number of pixels [K] of every class; absent classes have mean 0 and count 0.

    Args:
        features: [N, C, h, w].
        labels: Class ids [N, h, w].
        classes: K.
        ignore_index: Label of the pixels that belong to no class.
    """
    pixels, ids = _pixels(features, labels, classes, ignore_index)
    sums = pixels.new_zeros((classes + 1, features.shape[1])).index_add(0, ids, pixels)[:classes]
    counts = _counts(ids, classes)
    return sums / counts.clamp(min=1).unsqueeze(1), counts


@torch.no_grad()
@full_precision
def update_prototypes(prototypes: Tensor, seen: Tensor, means: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Running mean over pixels of prototypes [K, C], and the new pixel counts [K].

    Args:
        prototypes: Means so far.
        seen: Pixels so far [K].
        means: This batch's `class_means`.
        counts: This batch's pixels [K].
    """
    total = seen + counts
    share = (counts.double() / total.clamp(min=1)).to(means.dtype).unsqueeze(1)
    return prototypes + share * (means - prototypes), total


@full_precision
def prototype_matching(means: Tensor, counts: Tensor, prototypes: Tensor, seen: Tensor) -> Tensor:
    """Mean squared difference of this batch's class means and the stored prototypes, over classes with both.

    Args:
        means: This batch's `class_means` [K, C], of old classes located by `complete_background`.
        counts: Pixels of each class in the batch [K].
        prototypes: Stored means [K, C].
        seen: Pixels behind each prototype [K].
    """
    errors = (means - prototypes).square().mean(dim=1)
    return _mean_over(errors, (counts > 0) & (seen > 0))


@full_precision
def attraction(features: Tensor, labels: Tensor, prototypes: Tensor, seen: Tensor, ignore_index: int = 255) -> Tensor:
    """Mean squared distance of every pixel's feature to its class prototype: per class, then over classes.

    Args:
        features: [N, C, h, w].
        labels: Class ids [N, h, w].
        prototypes: Stored means [K, C].
        seen: Pixels behind each prototype [K].
        ignore_index: Label of the pixels that belong to no class.
    """
    classes = len(prototypes)
    pixels, ids = _pixels(features, labels, classes, ignore_index)
    errors = (pixels - F.pad(prototypes, (0, 0, 0, 1))[ids]).square().mean(dim=1)
    counts = _counts(ids, classes)
    sums = errors.new_zeros(classes + 1).index_add(0, ids, errors)[:classes]
    return _mean_over(sums / counts.clamp(min=1), (counts > 0) & (seen > 0))


@full_precision
def repulsion(means: Tensor, counts: Tensor) -> Tensor:
    """Mean of 1 / distance over all pairs of class means [K, C] present in the batch; 0 for fewer than two."""
    present = counts > 0
    first, second = torch.triu_indices(len(means), len(means), offset=1, device=means.device).unbind()
    squared = (means[first] - means[second]).square().sum(dim=1)
    inverse = squared.clamp(min=_MIN_DISTANCE**2).rsqrt()
    return _mean_over(inverse, present[first] & present[second])


@full_precision
def sparsity(features: Tensor, labels: Tensor, classes: int, ignore_index: int = 255) -> Tensor:
    """Sum of exp(f) over sum of f per class, f being the class's features divided by their maximum.

    It is smallest if few channels carry all the activation. Features are clamped at 0 first, because negative features
    could make the denominator zero. A class without positive features contributes nothing.

    Args:
        features: [N, C, h, w].
        labels: Class ids [N, h, w].
        classes: K.
        ignore_index: Label of the pixels that belong to no class.
    """
    pixels, ids = _pixels(features, labels, classes, ignore_index)
    pixels = pixels.clamp(min=0)
    zeros = pixels.new_zeros(classes + 1)
    peaks = zeros.scatter_reduce(0, ids, pixels.amax(dim=1), reduce="amax")
    alive = peaks > 0
    scaled = pixels / peaks.where(alive, 1)[ids].unsqueeze(1)
    exponentials = zeros.index_add(0, ids, scaled.exp().sum(dim=1))
    total = zeros.index_add(0, ids, scaled.sum(dim=1))
    return _mean_over((exponentials / total.where(alive, 1))[:classes], alive[:classes])


def _pixels(features: Tensor, labels: Tensor, classes: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Features [P, C] and class ids [P] of all pixels; ignored pixels get the id `classes`, whose row is dropped.

    Selecting the other pixels would synchronise a GPU with the host, which needs their number.
    """
    ids = labels.long().masked_fill(labels == ignore_index, classes)
    return features.permute(0, 2, 3, 1).flatten(0, 2), ids.flatten()


def _counts(ids: Tensor, classes: int) -> Tensor:
    """Pixels of every class [classes]; `torch.bincount` would synchronise a GPU with the host."""
    return ids.new_zeros(classes + 1).index_add(0, ids, torch.ones_like(ids))[:classes]


def _mean_over(values: Tensor, chosen: Tensor) -> Tensor:
    """Mean of the chosen values, 0 if there are none."""
    return values.where(chosen, 0).sum() / chosen.sum().clamp(min=1)

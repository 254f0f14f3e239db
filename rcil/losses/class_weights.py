"""Class weights of the cross entropy from the frequency of the classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

ClassWeights = Literal["none", "enet", "median_frequency", "root_frequency"]
ENET_OFFSET = 1.02
"""Bounds ENet's weights between 1.4 and 50."""


def class_weights(kind: ClassWeights, pixels: NDArray[np.int64]) -> tuple[float, ...] | None:
    """A weight for each class; their mean over all pixels is 1, so that the learning rate keeps its meaning.

    Args:
        kind: `enet` (https://arxiv.org/abs/1606.02147): 1 / ln(1.02 + p). `median_frequency`
            (https://arxiv.org/abs/1411.4734): median of all p / p, with p over the images that contain the class.
            `root_frequency`: the square root of that.
        pixels: Number of pixels of every class in every image [images, classes].

    Returns:
        None for `none`, or if there are no pixels. Classes that do not occur have the weight 1.
    """
    total = pixels.sum(axis=0)
    if kind == "none" or not total.any():
        return None
    occurs = total > 0
    if kind == "enet":
        raw = 1 / np.log(ENET_OFFSET + total / total.sum())
    else:
        around = (pixels.sum(axis=1, keepdims=True) * (pixels > 0)).sum(axis=0)
        share = total[occurs] / around[occurs]
        raw = np.ones(len(total))
        raw[occurs] = (np.median(share) / share) ** (1.0 if kind == "median_frequency" else 0.5)
    mean = (raw * total).sum() / total.sum()
    return tuple(float(weight) for weight in np.where(occurs, raw / mean, 1.0))


def weigh_pixels(loss: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """Multiply a loss map [N, H, W] by the weights [C] of its labels; values that are not classes take any weight.

    `UNNAMED` pixels take the weight of background.
    """
    return loss if weights is None else loss * weights.to(loss)[labels.long().clamp(0, len(weights) - 1)]

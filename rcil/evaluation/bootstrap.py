"""How certain an IoU is: bootstrap intervals over groups of similar images. Nothing here imports torch."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.9
"""Probability with which an interval should contain the true value; 5 % on either side."""
RESAMPLES = 2000
MIN_GROUPS = 5
"""With fewer groups of similar images, an interval says little."""
_BLOCK = 100
"""Resamples that are drawn at once, which bounds the memory."""

Counts = NDArray[np.int64]
"""Pixels of every class [..., 3, C]: correct, true and predicted ones. They are all that an IoU needs, and a hundred
times smaller than confusion matrices of many classes."""
Interval = tuple[float, float]


def counts_of(matrix: NDArray[np.int64]) -> Counts:
    """The counts [3, C] of a confusion matrix [C, C] of true (row) by predicted class (column)."""
    return np.stack([np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)])


def iou_of(counts: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
    """IoU of every class [..., C] from counts [..., 3, C]; NaN for a class that neither occurs nor is predicted."""
    hits, true, predicted = np.moveaxis(counts, -2, 0)
    union = true + predicted - hits
    iou: NDArray[np.float64] = np.divide(hits, union, out=np.full(hits.shape, np.nan), where=union > 0)
    return iou


def by_group(counts: Counts, groups: NDArray[np.int64]) -> Counts:
    """Sum counts [N, ...] of images over their groups [N]: [G, ...]."""
    sums = np.zeros((int(groups.max(initial=-1)) + 1, *counts.shape[1:]), np.int64)
    np.add.at(sums, groups, counts)
    return sums


def resampled_iou(grouped: Counts, seed: int = 0) -> NDArray[np.float64]:
    """IoU [RESAMPLES, ..., C] of data sets that are drawn from the groups with replacement.

    Whole groups are drawn, because similar images are not independent. All statistics of a resample come from the same
    groups, so that differences of two models on the same images vary as little as they really do.

    Args:
        grouped: From `by_group`, [G, ..., 3, C].
        seed: Seed of the draws.
    """
    count = len(grouped)
    flat = grouped.reshape(count, -1).astype(np.float64)
    generator = np.random.default_rng(seed)
    parts = []
    for _ in range(RESAMPLES // _BLOCK):
        draws = generator.multinomial(count, np.full(count, 1 / count), size=_BLOCK)
        parts.append(iou_of((draws @ flat).reshape(_BLOCK, *grouped.shape[1:])))
    return np.concatenate(parts)


def interval_of(values: NDArray[np.float64], groups: int) -> Interval | None:
    """The interval of a statistic; None if fewer than two groups vary.

    Args:
        values: The statistic in every resample [RESAMPLES]; NaN where it is undefined.
        groups: Number of groups that contribute to it.
    """
    values = values[~np.isnan(values)]
    if groups < 2 or not len(values):
        return None
    tail = _tail(groups)
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def scenes(groups: int) -> str:
    """A number of groups of similar images, in words."""
    return "1 scene" if groups == 1 else f"{groups} different scenes"


def percent_interval(interval: Interval | None) -> str | None:
    """An interval of shares of 1 as text in percent."""
    return None if interval is None else f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"


def _tail(groups: int) -> float:
    """Share of the resamples outside the interval on either side.

    Percentiles of a bootstrap are too narrow for few groups by about the factor between Student's t and the normal
    distribution, times sqrt(n / (n - 1)). Moving the percentiles outwards corrects that.
    """
    normal = NormalDist()
    z, freedom = normal.inv_cdf((1 + CONFIDENCE) / 2), groups - 1
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return normal.cdf(-t * math.sqrt(groups / freedom))

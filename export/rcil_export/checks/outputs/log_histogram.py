"""Quantiles of a stream of numbers in constant memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LOWEST, HIGHEST, PER_DECADE = -12, 3, 100
"""Bins reach from 1e-12 to 1e3; neighbouring edges differ by 2.3 %, which is how exact a quantile is."""
BARS_PER_DECADE = 4
_BINS = (HIGHEST - LOWEST) * PER_DECADE


class LogHistogram:
    """Counts of non-negative numbers in bins of equal ratio; what is below or above has a bin of its own."""

    def __init__(self) -> None:
        self.counts = np.zeros(_BINS + 2, np.int64)
        self.largest = 0.0

    @property
    def total(self) -> int:
        """How many numbers were added."""
        return int(self.counts.sum())

    def add(self, values: NDArray[Any]) -> None:
        """Add numbers of any shape; NaN counts as infinite."""
        if values.size == 0:
            return
        numbers = np.where(np.isnan(values), np.inf, values)
        self.largest = max(self.largest, float(numbers.max()))
        with np.errstate(divide="ignore"):
            places = np.ceil((np.log10(numbers.ravel()) - LOWEST) * PER_DECADE)
        self.counts += np.bincount(np.clip(places, 0, _BINS + 1).astype(np.int64), minlength=_BINS + 2)

    def merge(self, other: LogHistogram) -> None:
        """Add everything that `other` has."""
        self.counts += other.counts
        self.largest = max(self.largest, other.largest)

    def quantile(self, share: float) -> float:
        """The smallest bin edge that at least `share` of the numbers do not exceed; NaN without numbers.

        What lies below the bins counts as 0.
        """
        if not self.total:
            return float("nan")
        reached = int(np.searchsorted(np.cumsum(self.counts), np.ceil(share * self.total)))
        if reached == 0:
            return 0.0
        edge = np.inf if reached > _BINS else 10 ** (LOWEST + reached / PER_DECADE)
        return float(min(edge, self.largest))

    def bars(self) -> tuple[list[float], list[int]]:
        """For a plot: upper edges of coarser bins and their counts; the first holds all below, the last all above."""
        inner = self.counts[1:-1].reshape(-1, PER_DECADE // BARS_PER_DECADE).sum(axis=1)
        edges = [10 ** (LOWEST + index / BARS_PER_DECADE) for index in range(len(inner) + 1)]
        return [*edges, float("inf")], [int(self.counts[0]), *(int(count) for count in inner), int(self.counts[-1])]

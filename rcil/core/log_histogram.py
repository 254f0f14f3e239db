"""Quantiles of a stream of numbers in constant memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BARS_PER_DECADE = 4


class LogHistogram:
    """Counts of non-negative numbers in bins of equal ratio; smaller and larger numbers have a bin of their own.

    A quantile is as exact as a bin is wide: 2.3 % at 100 bins per decade.

    Args:
        low: The bins start at 10**low.
        high: The bins end at 10**high.
        per_decade: Bins per decade, a multiple of `BARS_PER_DECADE`.
    """

    def __init__(self, low: int = -12, high: int = 3, per_decade: int = 100) -> None:
        self._low, self._per_decade = low, per_decade
        self._bins = (high - low) * per_decade
        self.counts = np.zeros(self._bins + 2, np.int64)
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
            bins = np.ceil((np.log10(numbers.ravel()) - self._low) * self._per_decade)
        last = self._bins + 1
        self.counts += np.bincount(np.clip(bins, 0, last).astype(np.int64), minlength=last + 1)

    def merge(self, other: LogHistogram) -> None:
        """Add everything that `other`, which has the same bins, has counted."""
        self.counts += other.counts
        self.largest = max(self.largest, other.largest)

    def quantile(self, share: float) -> float:
        """The smallest bin edge that at least `share` of the numbers do not exceed; NaN without numbers.

        Numbers below the bins count as 0.
        """
        if not self.total:
            return float("nan")
        reached = int(np.searchsorted(np.cumsum(self.counts), np.ceil(share * self.total)))
        if reached == 0:
            return 0.0
        edge = np.inf if reached > self._bins else 10 ** (self._low + reached / self._per_decade)
        return float(min(edge, self.largest))

    def bars(self) -> tuple[list[float], list[int]]:
        """Upper edges of coarser bins and their counts, for a plot; the first and last bars are open."""
        inner = self.counts[1:-1].reshape(-1, self._per_decade // BARS_PER_DECADE).sum(axis=1)
        edges = [10 ** (self._low + index / BARS_PER_DECADE) for index in range(len(inner) + 1)]
        return [*edges, float("inf")], [int(self.counts[0]), *(int(count) for count in inner), int(self.counts[-1])]

"""Sums over the last seconds, in memory that does not grow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BINS = 60


class Window:
    """Adds up what came within the last `seconds`, to a sixtieth of them.

    Args:
        seconds: Length of the window.
        width: How many numbers come at a time.
    """

    def __init__(self, seconds: float, width: int) -> None:
        self._length = seconds / BINS
        self._sums = np.zeros((BINS, width))
        self._places = np.full(BINS, -1, np.int64)
        self._first = self._newest = -1

    def add(self, time: float, values: NDArray[np.float64]) -> None:
        """Numbers [width] of a time in seconds, in the order of time."""
        place = max(int(time / self._length), self._newest)
        slot = place % BINS
        if self._places[slot] != place:
            self._places[slot], self._sums[slot] = place, 0
        self._sums[slot] += values
        self._newest = place
        self._first = place if self._first < 0 else self._first

    def total(self) -> NDArray[np.float64]:
        """Sums [width] over the window that ends with the newest numbers."""
        inside = (self._places >= 0) & (self._places > self._newest - BINS)
        total: NDArray[np.float64] = self._sums[inside].sum(axis=0)
        return total

    @property
    def is_full(self) -> bool:
        """Whether as many seconds as the window is long have gone by."""
        return self._newest - self._first >= BINS - 1

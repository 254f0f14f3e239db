"""Where two masks differ: which class became which, and how sure the first artefact was there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rcil.core.log_histogram import LogHistogram

NO_CLASS = "no class"
"""What a mask value is called that no class has."""


@dataclass(frozen=True)
class Swap:
    """Pixels to which the first artefact gave one class and the second another."""

    first: str
    second: str
    pixels: int
    margin: float
    """Median distance of the first artefact's two largest logits there, as a share of their range; NaN if unknown."""

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        margin = None if np.isnan(self.margin) else self.margin
        return {"first": self.first, "second": self.second, "pixels": self.pixels, "median_margin": margin}


class Disagreements:
    """Counts differing pixels by their two classes, over any number of images.

    Args:
        names: Classes by row.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = (*names, NO_CLASS)
        self._counts = np.zeros((len(self.names), len(self.names)), np.int64)
        self._margins: dict[tuple[int, int], LogHistogram] = defaultdict(LogHistogram)

    def add(self, first: NDArray[np.int64], second: NDArray[np.int64], margins: NDArray[np.float32] | None) -> None:
        """Add the differing pixels of an image.

        Args:
            first: Their rows in the first mask [pixels]; -1 is no class.
            second: Their rows in the second mask [pixels]; -1 is no class.
            margins: Top-2 margin of the first artefact, as a share of its logit range [pixels]; None if unknown.
        """
        last = len(self.names) - 1
        pairs = np.where(first < 0, last, first) * len(self.names) + np.where(second < 0, last, second)
        counts = np.bincount(pairs, minlength=self._counts.size)
        self._counts += counts.reshape(self._counts.shape)
        if margins is not None:
            for pair in np.flatnonzero(counts):
                self._margins[divmod(int(pair), len(self.names))].add(margins[pairs == pair])

    def swaps(self) -> tuple[Swap, ...]:
        """Every pair that occurs, the most frequent first."""
        found = [(int(i), int(j)) for i, j in zip(*np.nonzero(self._counts), strict=True)]
        found.sort(key=lambda pair: (-int(self._counts[pair]), pair))
        return tuple(
            Swap(
                self.names[i],
                self.names[j],
                int(self._counts[i, j]),
                self._margins[i, j].quantile(0.5) if (i, j) in self._margins else float("nan"),
            )
            for i, j in found
        )


def top2_margins(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Distance of the two largest logits [classes, pixels] -> [pixels]; a single class has an infinite lead."""
    if logits.shape[0] < 2:
        return np.full(logits.shape[1], np.inf, np.float32)
    second, first = np.partition(logits, -2, axis=0)[-2:]
    lead: NDArray[np.float32] = first - second
    return lead

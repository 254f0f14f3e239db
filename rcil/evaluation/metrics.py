"""Confusion matrix and intersection over union."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rcil.data.types import IGNORE


@dataclass
class Confusion:
    """A confusion matrix of pixels: true class (row) by predicted class (column)."""

    classes: int
    matrix: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.matrix = np.zeros((self.classes, self.classes), np.int64)

    def update(self, truth: NDArray[np.uint8], predicted: NDArray[np.uint8]) -> None:
        """Add the pixels of a mask [H, W] and its prediction; ignored pixels do not count."""
        valid = truth != IGNORE
        pairs = truth[valid].astype(np.int64) * self.classes + predicted[valid]
        self.matrix += np.bincount(pairs, minlength=self.classes**2).reshape(self.matrix.shape)

    @property
    def iou(self) -> NDArray[np.float64]:
        """IoU of every class; NaN for a class that neither occurs nor is predicted."""
        hits = np.diag(self.matrix)
        union = self.matrix.sum(axis=0) + self.matrix.sum(axis=1) - hits
        iou: NDArray[np.float64] = np.divide(hits, union, out=np.full(self.classes, np.nan), where=union > 0)
        return iou

    @property
    def pixel_accuracy(self) -> float:
        """Share of correctly classified pixels; NaN without pixels."""
        total = self.matrix.sum()
        return float(np.trace(self.matrix) / total) if total else float("nan")


def mean_iou(iou: NDArray[np.float64], rows: Sequence[int]) -> float:
    """Mean over some classes, without those that are NaN; NaN if none remains."""
    values = iou[list(rows)]
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else float("nan")

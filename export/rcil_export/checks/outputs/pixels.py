"""Comparing two predictions of one image: errors of logits, differing pixels, ties, and which classes swapped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rcil.core.log_histogram import LogHistogram
from rcil.model.class_match import ClassMatch, Rows

Logits = NDArray[np.float32]
Mask = NDArray[np.int64]
Flags = NDArray[np.bool_]
NO_CLASS = "no class"
"""The name of mask values that belong to no class."""


@dataclass(frozen=True)
class PixelComparison:
    """The comparison of one image, over the common classes."""

    mask_a: Mask
    """Common rows [H, W]; -1 where the class is not common, or the value is not a class."""
    mask_b: Mask
    errors: Logits | None
    """|a - b| as a share of the range of a's logits [classes, H, W]; None if one artefact gives no logits."""
    spread: float
    """Range of a's logits; NaN without logits of a."""
    differs: Flags
    """Another class, and not a tie [H, W]."""
    tied: Flags
    """Another class, but a tie [H, W]."""
    known: Flags
    """Both classes are common [H, W]; only these pixels count. If both artefacts have the same classes, all pixels do,
    and a value that is not a class differs from everything."""
    margins: NDArray[np.float32] | None
    """Top-2 margin of a at the pixels that differ, as a share of the range, in the order of `mask_a[differs]`."""


def compare_pixels(
    match: ClassMatch, logits: tuple[Logits | None, Logits | None], masks: tuple[Mask, Mask], *, tie: float
) -> PixelComparison:
    """Compare the predictions of two artefacts for one image.

    If both have the same classes, their masks are compared. Otherwise the class is the common class with the largest
    logit; without logits, only pixels with common classes count.

    Args:
        match: Which class rows correspond.
        logits: Logits of both [classes, H, W], each in its own rows, or None.
        masks: Masks of both [H, W], each in its own rows.
        tie: A pixel that differs is a tie if the logits of the two chosen classes are closer than this share of the
            range, in a (in b, if a has no logits).
    """
    a, b = (
        None if values is None else values[rows]
        for values, rows in zip(logits, (match.old_rows, match.new_rows), strict=True)
    )
    mask_a, mask_b = (
        _common_mask(mask, values, rows, complete=match.complete)
        for mask, values, rows in zip(masks, (a, b), (match.old_rows, match.new_rows), strict=True)
    )
    named = (mask_a >= 0) & (mask_b >= 0)
    known = np.ones_like(named) if match.complete else named
    other = named & (mask_a != mask_b)
    spread = float("nan") if a is None else range_of(a)
    tied = np.zeros_like(other)
    if a is not None:
        tied[other] = _closer(a[:, other], mask_a[other], mask_b[other], tie * spread)
    elif b is not None:
        tied[other] = _closer(b[:, other], mask_a[other], mask_b[other], tie * range_of(b))
    differs = (other & ~tied) | (known & ~named)
    errors = None
    if a is not None and b is not None:
        with np.errstate(invalid="ignore"):
            errors = np.abs(a - b) / np.float32(spread)
        errors[~np.isfinite(errors)] = np.inf
    margins = None if a is None else top2_margins(a[:, differs]) / np.float32(spread)
    return PixelComparison(mask_a, mask_b, errors, spread, differs, tied, known, margins)


def range_of(logits: Logits) -> float:
    """Largest minus smallest finite value, never zero."""
    finite = logits[np.isfinite(logits)]
    return max(float(finite.max()) - float(finite.min()), 1e-30) if finite.size else 1e-30


def _common_mask(mask: Mask, logits: Logits | None, rows: Rows, *, complete: bool) -> Mask:
    if not complete and logits is not None:
        return np.asarray(logits.argmax(0), np.int64)
    table = np.full(rows.max() + 2, -1, np.int64)
    table[rows] = np.arange(len(rows))
    common: Mask = table[np.where((mask >= 0) & (mask <= rows.max()), mask, rows.max() + 1)]
    return common


def _closer(logits: Logits, first: Mask, second: Mask, distance: float) -> Flags:
    """Whether the logits of two rows are within `distance`, for every pixel of the logits [classes, pixels]."""
    at = np.arange(logits.shape[1])
    close: Flags = np.abs(logits[first, at] - logits[second, at]) <= distance
    return close


def top2_margins(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Difference of the two largest logits [classes, pixels] -> [pixels]; infinite for a single class."""
    if logits.shape[0] < 2:
        return np.full(logits.shape[1], np.inf, np.float32)
    second, first = np.partition(logits, -2, axis=0)[-2:]
    lead: NDArray[np.float32] = first - second
    return lead


@dataclass(frozen=True)
class Swap:
    """Pixels to which the first artefact gave one class and the second another."""

    first: str
    second: str
    pixels: int
    margin: float
    """Median difference of the first artefact's two largest logits there, as a share of their range; NaN if unknown."""

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        margin = None if np.isnan(self.margin) else self.margin
        return {"first": self.first, "second": self.second, "pixels": self.pixels, "median_margin": margin}


class Disagreements:
    """Counts differing pixels by their two classes, over any number of images.

    Args:
        names: Names of the classes by row.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = (*names, NO_CLASS)
        self._counts = np.zeros((len(self.names), len(self.names)), np.int64)
        self._margins: dict[tuple[int, int], LogHistogram] = defaultdict(LogHistogram)

    def add(self, first: NDArray[np.int64], second: NDArray[np.int64], margins: NDArray[np.float32] | None) -> None:
        """Add the differing pixels of an image.

        Args:
            first: Their rows in the first mask [pixels]; -1 is not a class.
            second: Their rows in the second mask [pixels]; -1 is not a class.
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
        """All pairs of classes that occur, the most frequent first."""
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

"""How far two masks of one size overlap, class by class, in whole pixels."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image
from rcil.model.class_match import ClassMatch
from rcil_serve.runtime.backends.protocol import Mask
from rcil_serve.runtime.painter import BACKGROUND

Pixels = NDArray[np.int64]


class Overlap(NamedTuple):
    """Of every class in a matching."""

    both: Pixels
    """Pixels that have the class in both masks [classes]."""
    either: Pixels
    """Pixels that have it in one of them at least [classes]."""

    def iou(self) -> list[float | None]:
        """Intersection over union; None for a class that is in neither mask."""
        return [float(both / either) if either else None for both, either in zip(self.both, self.either, strict=True)]


def pair_counts(old: Mask, new: Mask, counts: tuple[int, int], where: Image | None = None) -> Pixels:
    """Pixels by their row in one mask and their row in another.

    Args:
        old: Rows [H, W].
        new: Rows [H, W] of the same picture, or of the next one.
        counts: Number of classes in `old` and in `new`.
        where: Count only where this [H, W] is not zero.

    Returns:
        [counts[0], counts[1]].
    """
    if old.dtype == new.dtype == np.uint8:
        planes = [np.ascontiguousarray(old), np.ascontiguousarray(new)]
        pairs = cv2.calcHist(planes, [0, 1], where, list(counts), [0, counts[0], 0, counts[1]])
        return np.rint(np.asarray(pairs)).astype(np.int64).reshape(counts)
    flat = old.astype(np.int64) * counts[1] + new
    chosen = flat.ravel() if where is None else flat[where > 0]
    return np.bincount(chosen, minlength=counts[0] * counts[1]).reshape(counts)


def plain_overlap(pairs: Pixels, matching: ClassMatch) -> Overlap:
    """Overlap of the classes that two models share, as the masks have it; see `overlap_of` for the arguments."""
    both = pairs[matching.old_rows, matching.new_rows]
    return Overlap(both, pairs.sum(axis=1)[matching.old_rows] + pairs.sum(axis=0)[matching.new_rows] - both)


def overlap_of(pairs: Pixels, matching: ClassMatch) -> Overlap:
    """Overlap of the classes that two models share, for judging whether they are forgotten.

    What an old class loses to a new one counts against it, as that is how classes are forgotten. The background is the
    exception: a new class is expected to come out of it, so pixels of classes that one of the models does not know are
    left out there.

    Args:
        pairs: From `pair_counts` with `matching.counts`.
        matching: Of the two models.
    """
    both, either = plain_overlap(pairs, matching)
    background = (matching.old_rows == BACKGROUND) & (matching.new_rows == BACKGROUND)
    unknown = pairs[BACKGROUND, matching.added_rows].sum() + pairs[matching.gone_rows, BACKGROUND].sum()
    return Overlap(both, either - unknown * background)

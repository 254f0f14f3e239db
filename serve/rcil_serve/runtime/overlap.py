"""Overlap of two masks of the same size, per class, in pixels."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image
from rcil.model.class_match import ClassMatch
from rcil_serve.runtime.backends import Mask
from rcil_serve.runtime.painter import BACKGROUND

Pixels = NDArray[np.int64]


class Overlap(NamedTuple):
    """Overlap of every class in a matching."""

    both: Pixels
    """Pixels that have the class in both masks [classes]."""
    either: Pixels
    """Pixels that have the class in at least one mask [classes]."""

    def iou(self) -> list[float | None]:
        """Intersection over union; None for a class that is in neither mask."""
        return [float(both / either) if either else None for both, either in zip(self.both, self.either, strict=True)]


def pair_counts(old: Mask, new: Mask, counts: tuple[int, int], where: Image | None = None) -> Pixels:
    """Count pixels by their rows in two masks.

    Args:
        old: Class rows [H, W].
        new: Class rows [H, W] of the same image or the next one.
        counts: Number of classes in `old` and in `new`.
        where: If given, count only where this [H, W] is not zero.

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
    """Overlap of the classes that two models share, without exceptions; see `overlap_of` for the arguments."""
    both = pairs[matching.old_rows, matching.new_rows]
    return Overlap(both, pairs.sum(axis=1)[matching.old_rows] + pairs.sum(axis=0)[matching.new_rows] - both)


def overlap_of(pairs: Pixels, matching: ClassMatch) -> Overlap:
    """Overlap of the classes that two models share, to judge whether they are forgotten.

    Pixels that an old class loses to a new class count against the old class, because that is forgetting. The
    background is an exception: new classes are expected to emerge from it, so its pixels that belong to a class of only
    one model are ignored.

    Args:
        pairs: Result of `pair_counts` with `matching.counts`.
        matching: Classes of the two models.
    """
    both, either = plain_overlap(pairs, matching)
    background = (matching.old_rows == BACKGROUND) & (matching.new_rows == BACKGROUND)
    unknown = pairs[BACKGROUND, matching.added_rows].sum() + pairs[matching.gone_rows, BACKGROUND].sum()
    return Overlap(both, either - unknown * background)

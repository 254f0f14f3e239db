"""Choose a few images to show that differ from each other. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rcil.evaluation.similar_images import ALIKE, unit_vectors

MIN_SHOWN = 3
"""Pictures to show even if all images look alike."""


@dataclass(frozen=True)
class Wish:
    """Images worth showing for one reason, the most interesting first."""

    images: Sequence[int]
    captions: Sequence[str]
    """Why each of the images is shown."""
    count: int
    """Number of images to show for this reason."""


def choose(wishes: Sequence[Wish], thumbnails: NDArray[np.integer]) -> list[tuple[int, str]]:
    """Choose images with their captions, none of which look alike.

    The first image of a wish is its most interesting one. The others are those that differ most from what was chosen,
    among the first third of the wish.

    Args:
        wishes: What to show, most important first.
        thumbnails: From `thumbnail`, of every image [N, SIDE * SIDE].
    """
    vectors = unit_vectors(thumbnails)
    chosen: dict[int, str] = {}

    def likeness(index: int) -> float:
        return float((vectors[list(chosen)] @ vectors[index]).max()) if chosen else -1.0

    for wish in wishes:
        captions = dict(zip(wish.images, wish.captions, strict=True))
        for number in range(wish.count):
            new = [index for index in captions if index not in chosen and likeness(index) < ALIKE]
            if not new:
                break
            index = new[0] if number == 0 else min(new[: max(wish.count, len(captions) // 3)], key=likeness)
            chosen[index] = captions[index]
    for wish in wishes:
        for index, caption in zip(wish.images, wish.captions, strict=True):
            if len(chosen) < MIN_SHOWN:
                chosen.setdefault(index, caption)
    return list(chosen.items())


def by_class_score(
    scores: NDArray[np.float64], sizes: NDArray[np.int64], name: str, *, worst: int, typical: int, best: int
) -> list[Wish]:
    """Wishes for the worst, typical and best images of a class, each for at most a third of the images.

    Args:
        scores: IoU of the class in every image [N], 0 to 1; NaN where it does not occur.
        sizes: Pixels of the class in every image [N]; among equal scores, the largest come first.
        name: Name of the class.
        worst: Number of images with the lowest IoU.
        typical: Number of images around the median.
        best: Number of images with the highest IoU.
    """
    seen = np.flatnonzero(~np.isnan(scores))
    if not len(seen):
        return []
    order = seen[np.lexsort((-sizes[seen], scores[seen]))]
    reverse = seen[np.lexsort((-sizes[seen], -scores[seen]))]
    middle = order[np.argsort(np.abs(scores[order] - np.median(scores[order])), kind="stable")]

    def wish(images: NDArray[np.intp], what: str, count: int) -> Wish:
        captions = [f"{what} for {name}: IoU {100 * scores[index]:.0f} %" for index in images]
        return Wish([int(index) for index in images], captions, min(count, -(-len(images) // 3)))

    return [wish(order, "poor", worst), wish(reverse, "good", best), wish(middle, "typical", typical)]

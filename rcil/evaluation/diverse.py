"""Choose a few images to show that differ from each other. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


def choose(wishes: Iterable[Wish], groups: NDArray[np.int64]) -> list[tuple[int, str]]:
    """Choose images with their captions, at most one of each group of similar images.

    Args:
        wishes: What to show, most important first.
        groups: Group of every image [N].
    """
    wishes = list(wishes)
    chosen: dict[int, str] = {}
    used: set[int] = set()
    for wish in wishes:
        fresh = (pair for pair in zip(wish.images, wish.captions, strict=True) if int(groups[pair[0]]) not in used)
        _take(fresh, wish.count, chosen, used, groups)
    for wish in wishes:
        rest = (pair for pair in zip(wish.images, wish.captions, strict=True) if pair[0] not in chosen)
        _take(rest, MIN_SHOWN - len(chosen), chosen, used, groups)
    return list(chosen.items())


def _take(
    pairs: Iterable[tuple[int, str]], count: int, chosen: dict[int, str], used: set[int], groups: NDArray[np.int64]
) -> None:
    """Take `count` of the pairs; `pairs` must be lazy, so that it sees which groups were used meanwhile."""
    for _, (index, caption) in zip(range(count), pairs, strict=False):
        chosen[index] = caption
        used.add(int(groups[index]))


def by_class_score(scores: NDArray[np.float64], name: str, *, worst: int, typical: int, best: int) -> list[Wish]:
    """Wishes for the worst, typical and best images of a class.

    Args:
        scores: IoU of the class in every image [N], 0 to 1; NaN where it does not occur.
        name: Name of the class.
        worst: Number of images with the lowest IoU.
        typical: Number of images around the median.
        best: Number of images with the highest IoU.
    """
    seen = np.flatnonzero(~np.isnan(scores))
    if not len(seen):
        return []
    order = seen[np.argsort(scores[seen], kind="stable")]
    middle = order[np.argsort(np.abs(scores[order] - np.median(scores[order])), kind="stable")]

    def wish(images: NDArray[np.intp], what: str, count: int) -> Wish:
        captions = [f"{what} for {name}: IoU {100 * scores[index]:.0f} %" for index in images]
        return Wish([int(index) for index in images], captions, count)

    return [wish(order, "poor", worst), wish(order[::-1], "good", best), wish(middle, "typical", typical)]

"""Which training images are held out for validation.

Every step holds out the same share of its images, exactly, and an image that several steps have is held out by all of
them or by none: otherwise a step would be validated on images that another step trained on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rcil.data.types import Sample

ROUNDS = 1000
"""Rounds of the search for exact counts, beyond one per held-out image."""
Counts = NDArray[np.float64]


def draw(purpose: str, name: str, seed: int) -> float:
    """A pseudo-random number in [0, 1), which depends only on its arguments."""
    digest = hashlib.sha256(f"{purpose}/{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def choose_held_out(steps: Sequence[Sequence[str]], seed: int, share: float) -> frozenset[str]:
    """Names of the held-out images of a task.

    Every image draws a number from its name, and those below `share` are held out. Then images whose numbers are
    nearest to `share` change sides until every step holds out `held_out_count` of its images, so that images added
    later move few others. Steps that share most of their images may leave no such choice; then the counts are as near
    as the search finds, usually off by one image.

    Args:
        steps: Image names of each step; a name may be in several steps.
        seed: Seed of the draw.
        share: Share of the images of each step that is held out.
    """
    members: dict[str, list[int]] = {}
    for index, names in enumerate(steps):
        for name in names:
            members.setdefault(name, []).append(index)
    groups: dict[tuple[int, ...], list[tuple[float, str]]] = {}
    for name, found in members.items():
        groups.setdefault(tuple(found), []).append((draw("held out", name, seed), name))
    if not groups:
        return frozenset()
    together = sorted(groups)
    ranked = [sorted(groups[found]) for found in together]
    held = np.array([sum(number < share for number, _ in images) for images in ranked], float)
    belongs = np.array([[index in found for index in range(len(steps))] for found in together], float)
    targets = np.array([held_out_count(len(names), share) for names in steps], float)
    held = _balanced(held, np.array([len(images) for images in ranked], float), belongs, targets)
    return frozenset(name for images, count in zip(ranked, held, strict=True) for _, name in images[: int(count)])


def hold_out(samples: Sequence[Sample], held: frozenset[str]) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """Split the samples of a step into training and held-out images."""
    return tuple(s for s in samples if s.name not in held), tuple(s for s in samples if s.name in held)


def held_out_count(images: int, share: float) -> int:
    """The rounded share; at least one image and at most all but one, of two or more, unless the share is 0."""
    return min(max(round(share * images), 1), images - 1) if images > 1 and share > 0 else 0


def _balanced(held: Counts, sizes: Counts, belongs: Counts, targets: Counts) -> Counts:
    """The held-out counts of groups of images [G], changed until every step has its target.

    This is a tabu search. Every round moves the one image that most reduces the squared deviation of the steps from
    their targets, or increases it least. A move is not undone for up to ten rounds, which leads out of local minima.

    Args:
        held: Held-out images of each group; the images of a group are in the same steps [G].
        sizes: Images of each group [G].
        belongs: 1 where the images of a group are in a step [G, S].
        targets: Held-out images that each step needs [S].
    """
    count = len(held)
    moves = np.concatenate([belongs, -belongs])  # one image more, or one fewer, of each group: [2G, S]
    squares = (moves**2).sum(axis=1)
    forbidden = np.zeros(2 * count)
    best, smallest = held, np.inf
    for now in range(ROUNDS + int(held.sum())):
        deviation = held @ belongs - targets
        if (size := float((deviation**2).sum())) < smallest:
            best, smallest = held.copy(), size
        if size == 0:
            break
        possible = np.concatenate([held < sizes, held > 0]) & (forbidden <= now)
        if not possible.any():
            continue  # until a move is allowed again
        move = int(np.where(possible, 2 * moves @ deviation + squares, np.inf).argmin())
        held[move % count] += 1 if move < count else -1
        forbidden[(move + count) % (2 * count)] = now + 1 + now % 11
    return best

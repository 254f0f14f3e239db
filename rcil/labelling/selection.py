"""Which frames are worth labelling: descriptors, scores and the greedy choice, as pure functions on arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image

Floats = NDArray[np.float32]
Rule = Literal["mixed", "uncertain", "diverse", "disagree"]

THUMBNAIL = (8, 12)
"""Height and width of the thumbnails in descriptors."""
DUPLICATE = 0.03
"""Frames whose descriptors are closer than this are near-duplicates."""


@dataclass(frozen=True)
class Choice:
    """One chosen frame."""

    index: int
    distance: float | None
    """Distance to the nearest frame chosen before; None for the first."""


def descriptor(image: Image, shares: Floats) -> NDArray[np.float16]:
    """What a frame looks like and shows, [D]; half precision, because all frames of a video are kept.

    The Euclidean distance of two descriptors combines the RMS difference of the thumbnails, from 0 to 1, with the
    Hellinger distance of the class shares, from 0 to 1.

    Args:
        image: RGB [H, W, 3].
        shares: Share of the pixels of each class, [classes].
    """
    small = cv2.resize(image, THUMBNAIL[::-1], interpolation=cv2.INTER_AREA)
    look = np.asarray(small, np.float32).ravel() / 255
    return np.concatenate([look / np.sqrt(look.size), np.sqrt(shares / 2)]).astype(np.float16)


def percentile_ranks(scores: Floats) -> Floats:
    """The share of frames whose score is not larger, [N], from 1 / N to 1; equal scores have equal ranks."""
    ordered = np.sort(scores)
    return (np.searchsorted(ordered, scores, side="right") / len(scores)).astype(np.float32)


def choose(descriptors: NDArray[np.float16], values: Floats, count: int, *, spread: bool) -> tuple[list[Choice], int]:
    """Choose frames greedily, most valuable first, without near-duplicates of those chosen before.

    Returns the chosen frames, and the number of other frames that are near-duplicates of one of them.

    Args:
        descriptors: [N, D] of all frames.
        values: Value of every frame by itself, [N], positive.
        count: Maximum number of frames.
        spread: Multiply the value with the distance to the nearest frame chosen before. With equal values this is
            farthest-point sampling (k-center), which starts with the frame that is farthest from the mean.
    """
    start = np.linalg.norm(descriptors - descriptors.mean(0, dtype=np.float32), axis=1)
    nearest = np.full(len(descriptors), np.inf, np.float32)
    chosen: list[Choice] = []
    while len(chosen) < count:
        gain = values * (nearest if chosen else start) if spread else values.copy()
        gain[nearest < DUPLICATE] = -np.inf
        if not chosen and spread:
            gain = gain + 1e-6 * values  # identical frames have no distance, but one of them is chosen
        index = int(gain.argmax())
        if gain[index] == -np.inf:
            break
        chosen.append(Choice(index, float(nearest[index]) if chosen else None))
        gaps = np.linalg.norm(descriptors - descriptors[index].astype(np.float32), axis=1)
        nearest = np.minimum(nearest, gaps).astype(np.float32)
    return chosen, int((nearest < DUPLICATE).sum()) - len(chosen)

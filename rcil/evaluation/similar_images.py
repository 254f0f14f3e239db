"""Groups of images that look alike, such as consecutive frames of a video. Nothing here imports torch."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image

SIDE = 16
"""Height and width of a thumbnail."""
ALIKE = 0.94
"""Correlation of two thumbnails from which on their images count as the same scene.

A car that drives through a street keeps this correlation for about half a second; frames that are a second apart
usually have a lower one."""


def thumbnail(image: Image) -> NDArray[np.uint8]:
    """A tiny grey version [SIDE * SIDE] of an RGB image [H, W, 3]."""
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    return np.asarray(cv2.resize(grey, (SIDE, SIDE), interpolation=cv2.INTER_AREA), np.uint8).ravel()


def unit_vectors(thumbnails: NDArray[np.integer]) -> NDArray[np.float32]:
    """Vectors [N, SIDE * SIDE] of which the products are the correlations of the thumbnails [N, SIDE * SIDE]."""
    vectors = thumbnails.astype(np.float32)
    vectors -= vectors.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    flat = np.full_like(vectors, 1 / SIDE)  # images of a single colour resemble each other and no others
    unit: NDArray[np.float32] = np.divide(vectors, lengths, out=flat, where=lengths > 0)
    return unit


def group_similar(thumbnails: NDArray[np.integer]) -> NDArray[np.int64]:
    """The group of every image [N], numbered from 0 in order of appearance.

    An image joins the group whose first image it resembles most, if it resembles it enough. Members are compared with
    the first image only, so that a slow pan is cut into several groups instead of becoming a single one.

    Args:
        thumbnails: From `thumbnail`, [N, SIDE * SIDE], in the order of the images.
    """
    vectors = unit_vectors(thumbnails)
    first = np.empty_like(vectors)
    groups = np.empty(len(vectors), np.int64)
    count = 0
    for index, vector in enumerate(vectors):
        correlations = first[:count] @ vector
        nearest = int(correlations.argmax()) if count else 0
        if count and correlations[nearest] >= ALIKE:
            groups[index] = nearest
        else:
            first[count], groups[index] = vector, count
            count += 1
    return groups

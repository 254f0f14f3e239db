"""Regions of a mask: run lengths, boxes, and polygons that draw the mask exactly."""

from __future__ import annotations

from collections.abc import Iterator

import cv2
import numpy as np
import numpy.typing as npt

from rcil.core.masks import Mask

Region = npt.NDArray[np.bool_]
"""The pixels of a class, [height, width]."""
Points = npt.NDArray[np.int64]
"""Vertices on whole pixels, (x, y) [N, 2], N >= 3."""
BACKGROUND = 0


def class_regions(mask: Mask) -> Iterator[tuple[int, Region]]:
    """Every value of the mask except background, with its pixels."""
    for value in np.unique(mask).tolist():
        if value != BACKGROUND:
            yield value, mask == value


def box_of(region: Region) -> tuple[int, int, int, int]:
    """Left, top, width and height of the smallest box around the pixels."""
    rows, columns = np.flatnonzero(region.any(axis=1)), np.flatnonzero(region.any(axis=0))
    left, top = int(columns[0]), int(rows[0])
    return left, top, int(columns[-1]) - left + 1, int(rows[-1]) - top + 1


def run_lengths(pixels: npt.NDArray[np.bool_]) -> list[int]:
    """Alternating run lengths of pixels [N], which start with those outside the region, possibly 0 of them."""
    changes = np.flatnonzero(np.diff(pixels)) + 1
    edges = np.concatenate([[0], changes, [pixels.size]])
    runs: list[int] = np.diff(edges).tolist()
    return [0, *runs] if pixels[0] else runs


def polygons(mask: Mask) -> list[tuple[int, Points]]:
    """Outlines with their values. Filled in this order with `cv2.fillPoly`, they give exactly the mask.

    Each 4-connected patch of one value gives its outer outline, large patches first, so that a patch inside the hole of
    another is drawn after it. Background has outlines only inside such holes.
    """
    patches = [patch for value in np.unique(mask).tolist() for patch in _patches(mask, value)]
    canvas = np.zeros_like(mask)
    kept = []
    for _, value, outline in sorted(patches, key=lambda patch: -patch[0]):
        x, y = outline[0]
        if value != BACKGROUND or canvas[y, x] != BACKGROUND:
            cv2.fillPoly(canvas, [outline.astype(np.int32)], value)
            kept.append((value, outline))
    return kept


def _patches(mask: Mask, value: int) -> Iterator[tuple[int, int, Points]]:
    """Number of pixels inside the outline, value and outline of each 4-connected patch."""
    count, labels, boxes, _ = cv2.connectedComponentsWithStats((mask == value).astype(np.uint8), connectivity=4)
    for number in range(1, count):
        left, top, width, height = (int(side) for side in boxes[number, :4])
        patch = (labels[top : top + height, left : left + width] == number).astype(np.uint8)
        (outline,), _ = cv2.findContours(patch, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
        cv2.fillPoly(patch, [outline], 1)
        points = outline.reshape(-1, 2).astype(np.int64) + np.array([left, top])
        padded = np.concatenate([points, points[:1].repeat(max(0, 3 - len(points)), axis=0)])
        yield int(patch.sum(dtype=np.int64)), value, padded

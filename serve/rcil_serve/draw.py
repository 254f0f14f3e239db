"""Drawing masks: one look-up and one blend, plus a legend."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.checkpoint.metadata import ClassInfo

Image = NDArray[np.uint8]


def lut_of(classes: Sequence[ClassInfo]) -> Image:
    """Colours by class id, [256, 3] RGB; ids without a class stay black."""
    lut = np.zeros((256, 3), np.uint8)
    for c in classes:
        if c.id < 256:
            lut[c.id] = c.colour
    return lut


def overlay(
    image: Image, mask: Image, lut: Image, alpha: float = 0.5, *, background: int = 0, ignore: int = 255
) -> Image:
    """Blend class colours into an image; background and ignored pixels stay as they are.

    Args:
        image: [H, W, 3] RGB.
        mask: [H, W] class ids.
        lut: From `lut_of`.
        alpha: Weight of the colour, 0 to 1.
        background: The id that is not drawn.
        ignore: Another id that is not drawn.
    """
    blended = cv2.addWeighted(image, 1 - alpha, lut[mask], alpha, 0)
    keep = (mask == background) | (mask == ignore)
    blended[keep] = image[keep]
    return np.asarray(blended, np.uint8)


def legend(classes: Sequence[ClassInfo], width: int, row: int = 26) -> Image:
    """Swatches with names in as many rows as fit `width`, [H, width, 3] RGB on white."""
    font, scale = cv2.FONT_HERSHEY_SIMPLEX, 0.5
    items: list[tuple[int, int, ClassInfo]] = []
    x, y = 8, 0
    for c in classes:
        needed = 24 + cv2.getTextSize(c.name, font, scale, 1)[0][0] + 16
        if x + needed > width and x > 8:
            x, y = 8, y + row
        items.append((x, y, c))
        x += needed
    canvas = np.full((y + row, width, 3), 255, np.uint8)
    for left, top, c in items:
        cv2.rectangle(canvas, (left, top + 6), (left + 16, top + row - 6), c.colour, -1)
        cv2.putText(canvas, c.name, (left + 24, top + row - 8), font, scale, (32, 32, 32), 1, cv2.LINE_AA)
    return canvas

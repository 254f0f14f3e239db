"""Pictures of predictions beside the ground truth, with right and wrong pixels told apart. No torch here."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.drawing import Image, grid, legend, lut_of, overlay
from rcil.core.palette import Colour
from rcil.data.types import IGNORE
from rcil.model.metadata import ClassInfo

Rows = NDArray[np.uint8]
Kinds = tuple[tuple[str, Colour], ...]
"""Kinds of pixels with their colours; the first one is not drawn."""
PANEL = 420
"""Longest side of each panel."""
ENLARGED = 3
"""Maximum factor by which small images are enlarged."""
ERRORS: Kinds = (
    ("right", (0, 0, 0)),
    ("error: class missed", (230, 25, 75)),
    ("error: class where it is not", (240, 50, 230)),
    ("error: another class", (255, 150, 0)),
)
_RIGHT, _MISSED, _FALSE, _CONFUSED = range(len(ERRORS))


def errors(truth: Rows, predicted: Rows) -> Rows:
    """The kind of every pixel [H, W], an index into `ERRORS`; ignored pixels count as right."""
    conditions = [(truth == predicted) | (truth == IGNORE), predicted == 0, truth == 0]
    return np.select(conditions, [_RIGHT, _MISSED, _FALSE], _CONFUSED).astype(np.uint8)


def draw_evaluation(image: Image, truth: Rows, predicted: Rows, classes: Sequence[ClassInfo]) -> Image:
    """Draw image, ground truth, prediction and errors side by side, with a legend below [H, W, 3].

    Args:
        image: RGB [H, W, 3].
        truth: Class rows [H, W]; 255 is ignored.
        predicted: Class rows [H, W].
        classes: The classes in row order.
    """
    panels = Panels(image, classes)
    wrong = errors(truth, predicted)
    drawn = [panels.image, panels.rows(truth), panels.rows(predicted), panels.errors(truth, wrong, ERRORS)]
    picture = grid([drawn], ("image", "ground truth", "prediction", "errors"))
    return with_legends(picture, seen(classes, truth, predicted), shown_kinds(ERRORS, wrong))


class Panels:
    """Panels of one size from an image and masks of its size.

    Args:
        image: RGB [H, W, 3].
        classes: The classes in row order.
    """

    def __init__(self, image: Image, classes: Sequence[ClassInfo]) -> None:
        factor = min(ENLARGED, PANEL / max(image.shape[:2]))
        height, width = (max(1, round(side * factor)) for side in image.shape[:2])
        self._size = width, height
        self._lut = lut_of({row: c.colour for row, c in enumerate(classes)})
        self.image: Image = np.asarray(cv2.resize(image, self._size, interpolation=cv2.INTER_AREA), np.uint8)
        grey = cv2.cvtColor(self.image, cv2.COLOR_RGB2GRAY)
        self.grey: Image = np.asarray(cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB), np.uint8)

    def rows(self, rows: Rows) -> Image:
        """The image with class colours."""
        return overlay(self.image, self._resized(rows), self._lut)

    def kinds(self, kinds: Rows, palette: Kinds) -> Image:
        """The grey image with the colours of the kinds."""
        colours = lut_of(dict(enumerate(colour for _, colour in palette)))
        return overlay(self.grey, self._resized(kinds), colours, 0.75)

    def errors(self, truth: Rows, kinds: Rows, palette: Kinds) -> Image:
        """The grey image with faint class colours where the prediction is right, and strong ones where it is wrong."""
        right = overlay(self.grey, self._resized(np.where(kinds == 0, truth, np.uint8(0))), self._lut, 0.3)
        colours = lut_of(dict(enumerate(colour for _, colour in palette)))
        return overlay(right, self._resized(kinds), colours, 0.9)

    def _resized(self, rows: Rows) -> Rows:
        return np.asarray(cv2.resize(rows, self._size, interpolation=cv2.INTER_NEAREST), np.uint8)


def seen(classes: Sequence[ClassInfo], *masks: Rows) -> list[tuple[str, Colour]]:
    """Names and colours of the classes in the masks, without background."""
    rows = set[int]().union(*(np.unique(mask).tolist() for mask in masks))
    return [(c.name, c.colour) for row, c in enumerate(classes) if row and row in rows]


def shown_kinds(palette: Kinds, kinds: Rows) -> list[tuple[str, Colour]]:
    """The kinds that occur, without the first one."""
    return [palette[kind] for kind in np.unique(kinds) if kind]


def with_legends(picture: Image, *entries: Sequence[tuple[str, Colour]]) -> Image:
    """The picture with one legend per list of entries below it; empty ones are left out."""
    return np.vstack([picture, *(legend(listed, picture.shape[1]) for listed in entries if listed)])

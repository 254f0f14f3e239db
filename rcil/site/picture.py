"""Pictures of where an old and a new model differ."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.drawing import Image, grid, legend, lut_of, overlay
from rcil.core.palette import Colour
from rcil.model.metadata import ClassInfo
from rcil.site.forgetting import Rows, Views

PANEL = 420
"""Longest side of each of the four pictures."""
ENLARGED = 3
"""Maximum factor by which small images are enlarged."""
TITLES = ("image", "old model", "new model", "difference")
KINDS: tuple[tuple[str, Colour], ...] = (
    ("same", (0, 0, 0)),
    ("background -> new class", (60, 180, 75)),
    ("old class -> background", (230, 25, 75)),
    ("old class -> other old class", (245, 130, 48)),
    ("old class -> new class", (200, 60, 220)),
    ("background -> old class", (0, 160, 230)),
)
"""The kinds of change of a pixel, with their colours, in the order of the values of `difference`."""
_SAME, _LEARNED, _LOST, _CONFUSED, _TAKEN, _INVENTED = range(len(KINDS))


def difference(old: Rows, new: Rows, count: int) -> NDArray[np.uint8]:
    """The kind of change of every pixel [H, W], an index into `KINDS`.

    Args:
        old: The old model's rows [H, W].
        new: The new model's rows [H, W].
        count: Number of classes of the old model, including background (row 0).
    """
    was_background, became_new = old == 0, new >= count
    conditions = [old == new, was_background & became_new, was_background, became_new, new == 0]
    return np.select(conditions, [_SAME, _LEARNED, _INVENTED, _TAKEN, _LOST], _CONFUSED).astype(np.uint8)


def draw_difference(views: Views, classes: tuple[ClassInfo, ...], count: int) -> Image:
    """Draw image, both predictions and the difference side by side, with a legend below [H, W, 3].

    Args:
        views: An image with the predictions of both models.
        classes: Classes of the new model, in row order.
        count: Number of classes of the old model.
    """
    factor = min(ENLARGED, PANEL / max(views.image.shape[:2]))
    height, width = (max(1, round(side * factor)) for side in views.image.shape[:2])

    def small(rows: Rows) -> Image:
        return np.asarray(cv2.resize(rows, (width, height), interpolation=cv2.INTER_NEAREST), np.uint8)

    image = np.asarray(cv2.resize(views.image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
    lut = lut_of({row: c.colour for row, c in enumerate(classes)})
    kinds = small(difference(views.old, views.new, count))
    grey = np.asarray(cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB), np.uint8)
    panels = [
        image,
        overlay(image, small(views.old), lut),
        overlay(image, small(views.new), lut),
        overlay(grey, kinds, lut_of(dict(enumerate(colour for _, colour in KINDS))), 0.75),
    ]
    picture = grid([panels], TITLES)
    seen = [c for row, c in enumerate(classes) if row and row in np.union1d(views.old, views.new)]
    named: list[tuple[str, Colour]] = [(c.name, c.colour) for c in seen]
    shown = [KINDS[kind] for kind in np.unique(kinds) if kind != _SAME]
    parts = [picture, *(legend(entries, picture.shape[1]) for entries in (named, shown) if entries)]
    return np.vstack(parts)

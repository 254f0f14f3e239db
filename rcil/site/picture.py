"""Pictures of what an old and a new model see, what is right and what changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from rcil.core.drawing import Image, grid
from rcil.data.types import IGNORE
from rcil.model.metadata import ClassInfo
from rcil.report.pictures import Kinds, Panels, seen, shown_kinds, with_legends
from rcil.site.forgetting import Rows, Views

KINDS: Kinds = (
    ("same", (0, 0, 0)),
    ("background -> new class", (60, 180, 75)),
    ("old class -> background", (230, 25, 75)),
    ("old class -> other old class", (245, 130, 48)),
    ("old class -> new class", (200, 60, 220)),
    ("background -> old class", (0, 160, 230)),
)
"""The kinds of change of a pixel, with their colours, in the order of the values of `difference`."""
_SAME, _LEARNED, _LOST, _CONFUSED, _TAKEN, _INVENTED = range(len(KINDS))
ERRORS: Kinds = (
    ("right", (0, 0, 0)),
    ("error: new class missed", (230, 25, 75)),
    ("error: new class where it is not", (240, 50, 230)),
    ("error: the old model was right", (255, 150, 0)),
    ("error of both models", (165, 155, 115)),
)
"""The kinds of errors of the new model, with their colours, in the order of the values of `step_errors`."""


def difference(old: Rows, new: Rows, count: int) -> Rows:
    """The kind of change of every pixel [H, W], an index into `KINDS`.

    Args:
        old: The old model's rows [H, W].
        new: The new model's rows [H, W].
        count: Number of classes of the old model, including background (row 0).
    """
    was_background, became_new = old == 0, new >= count
    conditions = [old == new, was_background & became_new, was_background, became_new, new == 0]
    return np.select(conditions, [_SAME, _LEARNED, _INVENTED, _TAKEN, _LOST], _CONFUSED).astype(np.uint8)


def reference(views: Views, unlabelled: Collection[int]) -> Rows:
    """What each pixel should be [H, W]: the mask, completed by the old model's classes that masks do not label.

    Args:
        views: An image with its mask and the predictions of both models.
        unlabelled: Rows of old classes whose labels are missing.
    """
    missing = (views.truth == 0) & np.isin(views.old, list(unlabelled))
    return np.where(missing, views.old, views.truth)


def step_errors(views: Views, expected: Rows, count: int) -> Rows:
    """The kind of error of every pixel [H, W], an index into `ERRORS`; ignored pixels count as right.

    Args:
        views: An image with the predictions of both models.
        expected: From `reference`.
        count: Number of classes of the old model, including background.
    """
    right = (views.new == expected) | (expected == IGNORE)
    conditions = [right, expected >= count, views.new >= count, views.old == expected]
    return np.select(conditions, [0, 1, 2, 3], 4).astype(np.uint8)


def draw_step(views: Views, classes: Sequence[ClassInfo], count: int, labelled: Collection[str]) -> Image:
    """Draw image, ground truth and errors above both predictions and their difference, with a legend [H, W, 3].

    Args:
        views: An image with its mask and the predictions of both models.
        classes: Classes of the new model, in row order.
        count: Number of classes of the old model.
        labelled: Names of old classes that the masks label.
    """
    panels = Panels(views.image, classes)
    unlabelled = [row for row in range(1, count) if classes[row].name not in labelled]
    expected = reference(views, unlabelled)
    wrong, changed = step_errors(views, expected, count), difference(views.old, views.new, count)
    top = [panels.image, panels.rows(views.truth), panels.errors(expected, wrong, ERRORS)]
    bottom = [panels.rows(views.old), panels.rows(views.new), panels.kinds(changed, KINDS)]
    parts = [
        grid([top], ("image", "ground truth", "errors of the new model")),
        grid([bottom], ("old model", "new model", "what changed")),
    ]
    named = seen(classes, views.truth, views.old, views.new)
    return with_legends(np.vstack(parts), named, shown_kinds(ERRORS, wrong), shown_kinds(KINDS, changed))

"""The classes of two models matched by name, and the kinds of change between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import ConfigError
from rcil.core.palette import Colour, free_colour
from rcil.model.class_match import Rows, match_classes
from rcil.model.metadata import ClassInfo
from rcil_serve.runtime.backends import Mask
from rcil_serve.runtime.painter import BACKGROUND
from rcil_serve.runtime.planes import Picture
from rcil_serve.runtime.predictor import Predictor, Segmentation


@dataclass(frozen=True)
class CommonClasses:
    """All classes of either model. An index into `table` is a common row; row 0 is the background of both models."""

    table: tuple[ClassInfo, ...]
    """Classes of the new model in its own order, followed by those that only the old model has."""
    old: Rows
    """Common row of each row of the old model."""
    new: Rows
    """Common row of each row of the new model."""
    added: list[int]
    """Common rows of classes that only the new model has."""
    removed: list[int]
    """Common rows of classes that only the old model has."""

    @property
    def names(self) -> list[str]:
        """Class names in the order of common rows."""
        return [c.name for c in self.table]


def common_classes(old: Sequence[ClassInfo], new: Sequence[ClassInfo]) -> CommonClasses:
    """Build one class table for both models.

    Classes of the new model keep its colours; classes that only the old model has get a colour that is still free.
    """
    if old[BACKGROUND].name != new[BACKGROUND].name:
        raise ConfigError(
            f"the backgrounds differ: '{old[BACKGROUND].name}' in the old model, '{new[BACKGROUND].name}' in the new",
            "Compare models with the same first class.",
        )
    match = match_classes(old, new)
    if len(match.names) == 1:
        raise ConfigError(
            f"the models share no class but {new[BACKGROUND].name}: the old one knows {_listed(old)}, the new one "
            f"{_listed(new)}",
            "Compare a model with a later step of it; classes are matched by name.",
        )
    table = list(new)
    for gone in (old[row] for row in match.gone_rows):
        used = {c.colour for c in table}
        colour = free_colour(gone.name, used) if gone.colour in used else gone.colour
        table.append(gone.model_copy(update={"colour": colour}))
    removed = np.arange(len(new), len(table))
    from_old = np.empty(len(old), np.intp)
    from_old[match.old_rows], from_old[match.gone_rows] = match.new_rows, removed
    return CommonClasses(
        tuple(table), from_old, np.arange(len(new)), sorted(match.added_rows.tolist()), removed.tolist()
    )


def _listed(classes: Sequence[ClassInfo]) -> str:
    names = [c.name for c in classes[BACKGROUND + 1 :]]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") or "nothing else"


@dataclass(frozen=True)
class Kind:
    """One kind of transition; its index in `KINDS` is its number."""

    name: str
    colour: Colour
    meaning: str

    @property
    def hex(self) -> str:
        """The colour as `#rrggbb`, for pages and plots."""
        return "#{:02x}{:02x}{:02x}".format(*self.colour)


KINDS = (
    Kind("same", (128, 136, 144), "both models give the same class"),
    Kind("forgotten", (213, 94, 0), "a class that both know became background: suspected forgetting"),
    Kind("learned", (0, 158, 115), "background became a class that is new"),
    Kind("taken", (204, 121, 167), "a class that both know became a class that is new"),
    Kind("appeared", (86, 180, 233), "background became a class that both know"),
    Kind("swapped", (230, 159, 0), "a class that both know became another one that both know"),
    Kind("lost", (0, 114, 178), "a class that the new model does not have became something else"),
)
"""The colours are those of Okabe and Ito, which are distinct with any colour vision; warm ones mark harm."""
SAME, FORGOTTEN, LEARNED, TAKEN, APPEARED, SWAPPED, LOST = range(len(KINDS))
HARM = (FORGOTTEN, SWAPPED, LOST, TAKEN)
"""Kinds that affect classes of the old model, from the most to the least suspicious."""


def kind_table(classes: CommonClasses) -> NDArray[np.uint8]:
    """Return the kind of every transition, [old common row, new common row]."""
    count = len(classes.table)
    table = np.full((count, count), SWAPPED, np.uint8)
    table[:, BACKGROUND] = FORGOTTEN
    table[BACKGROUND, :] = APPEARED
    table[:, classes.added] = TAKEN
    table[BACKGROUND, classes.added] = LEARNED
    table[classes.removed, :] = LOST
    np.fill_diagonal(table, SAME)
    return table


def kind_classes() -> tuple[ClassInfo, ...]:
    """Return the kinds as a class table for a `Painter`; `same` is the background, which is not painted."""
    return tuple(ClassInfo(name=kind.name, id=row, colour=kind.colour, step=0) for row, kind in enumerate(KINDS))


class Codes:
    """Encodes transitions as numbers: old common row times the number of classes, plus new common row.

    Args:
        classes: Classes of both models.
    """

    def __init__(self, classes: CommonClasses) -> None:
        side = len(classes.table)
        self.side = side
        self._kind = np.uint8 if side**2 <= 2**8 else np.uint16 if side**2 <= 2**16 else np.int32
        self._from_old = (classes.old * side).astype(self._kind)
        self._from_new = classes.new.astype(self._kind)
        rows = np.arange(side).astype(np.uint8 if side <= 256 else np.int32)
        self._old, self._new = rows.repeat(side), np.tile(rows, side)
        self._kinds = kind_table(classes).ravel()

    def of(self, old: Mask, new: Mask) -> Mask:
        """Convert masks with the models' own rows, [H, W] each, to codes [H, W]."""
        return np.asarray(look_up(self._from_old, old) + look_up(self._from_new, new), self._kind)

    def old(self, codes: Mask) -> Mask:
        """Decode codes to the common rows of the old model, [H, W]."""
        return look_up(self._old, codes)

    def new(self, codes: Mask) -> Mask:
        """Decode codes to the common rows of the new model, [H, W]."""
        return look_up(self._new, codes)

    def kinds(self, codes: Mask) -> Mask:
        """Convert codes to kinds of transition [H, W], uint8."""
        return look_up(self._kinds, codes)

    def matrix(self, codes: Mask) -> NDArray[np.int64]:
        """Count pixels [old common row, new common row]."""
        return np.bincount(codes.ravel(), minlength=self.side**2).reshape(self.side, self.side)

    def by_kind(self, matrix: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum a matrix [old common row, new common row] by kind, [kinds]."""
        return np.bincount(self._kinds, weights=matrix.ravel(), minlength=len(KINDS)).astype(np.int64)


def look_up(table: NDArray[np.generic], indices: Mask) -> Mask:
    """Return `table[indices]`. For uint8 indices OpenCV is several times faster than numpy."""
    if indices.dtype != np.uint8:
        return np.asarray(table[indices])
    whole = np.zeros(256, table.dtype)
    whole[: len(table)] = table[:256]
    return np.asarray(cv2.LUT(indices, whole), table.dtype)


class Pair:
    """Runs both models on the same images.

    Args:
        old: The deployed model.
        new: The model that would replace it. Both use the same layout; their input sizes may differ.
    """

    def __init__(self, old: Predictor, new: Predictor) -> None:
        self._old, self._new = old, new
        self.layout = new.layout
        self.classes = common_classes(old.classes, new.classes)
        self.codes = Codes(self.classes)

    def segment_all(self, images: Sequence[Picture]) -> list[Segmentation]:
        """Segment images into codes [H, W], with the confidence of the new model."""
        before, after = self._old.segment_all(images), self._new.segment_all(images)
        return [
            Segmentation(self.codes.of(was.mask, now.mask), now.confidence)
            for was, now in zip(before, after, strict=True)
        ]

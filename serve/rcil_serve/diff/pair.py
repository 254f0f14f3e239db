"""Two models run as one predictor whose classes are transitions from an old class to a new one."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image
from rcil_serve.diff.classes import KINDS, CommonClasses, common_classes, kind_table
from rcil_serve.runtime.backends.protocol import Mask
from rcil_serve.runtime.predictor import Predictor, Segmentation


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

    def segment_all(self, images: Sequence[Image]) -> list[Segmentation]:
        """Segment RGB images [H, W, 3] into codes [H, W], with the confidence of the new model."""
        before, after = self._old.segment_all(images), self._new.segment_all(images)
        return [
            Segmentation(self.codes.of(was.mask, now.mask), now.confidence)
            for was, now in zip(before, after, strict=True)
        ]

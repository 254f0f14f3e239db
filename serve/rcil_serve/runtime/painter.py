"""Paints masks over images in class colours."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.drawing import blend, legend
from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.images import Image
from rcil.model.metadata import ClassInfo
from rcil_serve.runtime.backends import Mask

BACKGROUND = 0
"""Row of the background, which is never painted."""


class Painter:
    """Paints the masks of one model.

    Args:
        classes: Classes of the model, in the order of mask rows.
        alpha: Opacity of the colours, 0 to 1.
        only: Names of the classes to paint; all classes if empty. The background is never painted.
        with_legend: Draw a legend of the painted classes in the lower left corner.
    """

    def __init__(
        self, classes: Sequence[ClassInfo], alpha: float = 0.5, only: Sequence[str] = (), *, with_legend: bool = False
    ) -> None:
        names = [c.name for c in classes]
        for name in only:
            if name not in names:
                raise ConfigError(f"the model has no class '{name}'", did_you_mean(name, names))
        painted = [row for row, c in enumerate(classes) if row != BACKGROUND and (not only or c.name in only)]
        rows = max(256, len(classes))
        self._colours = np.zeros((rows, 3), np.uint8)
        self._untouched = np.full(rows, 255, np.uint8)
        for row in painted:
            self._colours[row] = classes[row].colour
            self._untouched[row] = 0
        self._alpha = alpha
        self._entries = [(classes[row].name, classes[row].colour) for row in painted]
        self._with_legend = with_legend
        self._legends: dict[int, Image] = {}

    def paint(self, image: Image, mask: Mask, grid_size: tuple[int, int] | None = None) -> Image:
        """Paint class rows [H, W] over an RGB image [H, W, 3]; returns a new image.

        `grid_size` is that of the `Segmentation`: the edges of an enlarged mask are drawn smoothly.
        """
        drawn = blend(image, mask, self._colours, self._untouched, self._alpha, grid_size)
        if self._with_legend and self._entries:
            self._add_legend(drawn)
        return drawn

    def _add_legend(self, drawn: Image) -> None:
        width = drawn.shape[1]
        if width not in self._legends:
            self._legends[width] = _panel(self._entries, width)
        panel = self._legends[width][: drawn.shape[0], :width]
        corner = drawn[-panel.shape[0] :, : panel.shape[1]]
        corner[:] = cv2.addWeighted(corner, 0.25, panel, 0.75, 0)


def _panel(entries: list[tuple[str, tuple[int, int, int]]], width: int) -> Image:
    """A legend scaled to an image of this width."""
    scale = min(2.0, max(0.45, width / 1000))
    panel = legend(entries, max(120, round(0.6 * width / scale)))
    sides = round(panel.shape[1] * scale), round(panel.shape[0] * scale)
    return np.asarray(
        cv2.resize(panel, sides, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR), np.uint8
    )


def shares(mask: Mask, count: int) -> NDArray[np.float64]:
    """Share of the pixels that each of `count` class rows covers, [count]."""
    if mask.dtype == np.uint8:
        pixels = cv2.calcHist([np.ascontiguousarray(mask)], [0], None, [256], [0, 256]).ravel()[:count]
        return np.asarray(pixels, np.float64) / mask.size
    return np.bincount(mask.ravel(), minlength=count)[:count] / mask.size

"""Paints masks over images in class colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.drawing import blend, legend
from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.images import Image
from rcil.model.metadata import ClassInfo
from rcil_serve.runtime.backends import Mask
from rcil_serve.runtime.blending import Tables, blend_planes, tables_of
from rcil_serve.runtime.planes import ColourSpace, Picture, Planes, size_of

BACKGROUND = 0
"""Row of the background, which is never painted."""
MIN_RUN = 8
"""Mean length in pixels of the runs of a mask from which on they are added up instead of its pixels."""


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
        self._entries = [(classes[row].name, classes[row].colour) for row in painted] if with_legend else []
        self._tables: dict[ColourSpace, Tables] = {}
        self._legends: dict[tuple[int, int, ColourSpace | None], Picture] = {}

    @overload
    def paint(self, picture: Image, mask: Mask, grid_size: tuple[int, int] | None = None) -> Image: ...
    @overload
    def paint(self, picture: Planes, mask: Mask, grid_size: tuple[int, int] | None = None) -> Planes: ...
    @overload
    def paint(self, picture: Picture, mask: Mask, grid_size: tuple[int, int] | None = None) -> Picture: ...
    def paint(self, picture: Picture, mask: Mask, grid_size: tuple[int, int] | None = None) -> Picture:
        """Paint class rows [H, W] over a picture of this size; returns a new picture of the same kind.

        `grid_size` is that of the `Segmentation`: the edges of an enlarged mask are drawn smoothly.
        """
        drawn: Picture
        if isinstance(picture, Planes):
            drawn = blend_planes(picture, mask, self._tables_for(picture.space), grid_size)
        else:
            drawn = blend(picture, mask, self._colours, self._untouched, self._alpha, grid_size)
        if self._entries:
            self._add_legend(drawn)
        return drawn

    def _tables_for(self, space: ColourSpace) -> Tables:
        if space not in self._tables:
            self._tables[space] = tables_of(self._colours, self._untouched, self._alpha, space)
        return self._tables[space]

    def _add_legend(self, drawn: Picture) -> None:
        """Blend the legend into the lower left corner."""
        space = drawn.space if isinstance(drawn, Planes) else None
        size = size_of(drawn)
        if (*size, space) not in self._legends:
            panel = _panel(self._entries, size)
            self._legends[*size, space] = panel if space is None else Planes.of_rgb(panel, space)
        for plane, panel in zip(_parts(drawn), _parts(self._legends[*size, space]), strict=True):
            corner = plane[-panel.shape[0] :, : panel.shape[1]]
            corner[:] = cv2.addWeighted(corner, 0.25, panel, 0.75, 0)


def _parts(picture: Picture) -> tuple[NDArray[np.uint8], ...]:
    return (picture.y, picture.u, picture.v) if isinstance(picture, Planes) else (picture,)


def _panel(entries: list[tuple[str, tuple[int, int, int]]], size: tuple[int, int]) -> Image:
    """A legend scaled to an image of this size; it begins at even rows and columns, like blocks of chroma."""
    height, width = size
    scale = min(2.0, max(0.45, width / 1000))
    panel = legend(entries, max(120, round(0.6 * width / scale)))
    sides = round(panel.shape[1] * scale), round(panel.shape[0] * scale)
    shown = cv2.resize(panel, sides, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)[:height, :width]
    up = (height - shown.shape[0]) % 2
    right = shown.shape[1] % 2 if shown.shape[1] < width else 0
    return np.asarray(cv2.copyMakeBorder(shown, up, 0, 0, right, cv2.BORDER_REPLICATE), np.uint8)


def shares(mask: Mask, count: int) -> NDArray[np.float64]:
    """Share of the pixels that each of `count` class rows covers, [count]."""
    flat = np.ascontiguousarray(mask).ravel()
    ends = np.flatnonzero(flat[1:] != flat[:-1])  # masks consist of runs of one class; adding up runs is faster
    if len(ends) * MIN_RUN > flat.size:
        return np.bincount(flat, minlength=count)[:count] / flat.size
    lengths = np.diff(ends, prepend=-1, append=flat.size - 1)
    pixels = np.bincount(flat[np.append(ends, flat.size - 1)], lengths, minlength=count)
    return np.asarray(pixels[:count] / flat.size, np.float64)

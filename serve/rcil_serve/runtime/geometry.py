"""Letterboxes and tiles: how an image fits a model's input, and how its mask is mapped back."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import cv2
import numpy as np

from rcil.core.errors import ConfigError
from rcil.core.images import Image
from rcil_serve.runtime.planes import Picture, Planes, resized

if TYPE_CHECKING:  # the process that decodes a file starts in half the time without them
    from rcil_export.graph.shapes import InputShape
    from rcil_serve.runtime.backends import Mask


@dataclass(frozen=True)
class Letterbox:
    """Scales an image, centres it on a canvas, and maps masks back."""

    image: tuple[int, int]
    """Height and width of the image."""
    inner: tuple[int, int]
    """Height and width of the scaled image."""
    canvas: tuple[int, int]
    """Height and width of the model's input."""

    @property
    def corner(self) -> tuple[int, int]:
        """Rows above and columns left of the scaled image."""
        return (self.canvas[0] - self.inner[0]) // 2, (self.canvas[1] - self.inner[1]) // 2

    def place(self, picture: Picture, fill: tuple[int, int, int]) -> Image:
        """Scale a picture and place it on the canvas [h, w, 3], in RGB."""
        if self.inner == self.canvas:
            return _scaled(picture, self.inner)
        canvas = np.empty((*self.canvas, 3), np.uint8)
        top, left = self.corner
        bottom, right = top + self.inner[0], left + self.inner[1]
        for border in (canvas[:top], canvas[bottom:], canvas[top:bottom, :left], canvas[top:bottom, right:]):
            border[:] = fill
        inside = canvas[top:bottom, left:right]
        scaled = _scaled(picture, self.inner, inside)
        if not np.may_share_memory(scaled, inside):  # nothing to resize
            inside[:] = scaled
        return canvas

    def cut(self, plane: Mask) -> Mask:
        """Crop a canvas [h, w] to the part that the scaled image covers."""
        top, left = self.corner
        return plane[top : top + self.inner[0], left : left + self.inner[1]]

    def undo(self, mask: Mask) -> Mask:
        """Map a mask of the canvas [h, w] back to the image [H, W]; each pixel takes the class at its centre."""
        cut = self.cut(mask)
        if self.inner == self.image:
            return np.ascontiguousarray(cut)
        return np.asarray(cv2.resize(cut, self.image[::-1], interpolation=cv2.INTER_NEAREST_EXACT), mask.dtype)


def _scaled(picture: Picture, size: tuple[int, int], out: Image | None = None) -> Image:
    return picture.scaled(size, out) if isinstance(picture, Planes) else resized(picture, size, out)


def letterbox(image: tuple[int, int], canvas: tuple[int, int]) -> Letterbox:
    """Fit an image onto the canvas as large as possible, keeping its aspect ratio."""
    scale = min(canvas[0] / image[0], canvas[1] / image[1])
    inner = (min(canvas[0], max(1, round(image[0] * scale))), min(canvas[1], max(1, round(image[1] * scale))))
    return Letterbox(image, inner, canvas)


def letterbox_for(
    image: tuple[int, int], shape: InputShape, size: tuple[int, int] | None, scale: float = 1.0
) -> Letterbox:
    """Fit an image to a model's input.

    Args:
        image: Height and width of the image.
        shape: Input shape of the model.
        size: Canvas that the user requested. None selects the model's fixed size; a model that accepts several sizes
            gets the image at `scale`, or at the closest scale that it accepts.
        scale: Factor by which the image is resized for a model that accepts several sizes.
    """
    if size is not None:
        if not shape.takes(*size):
            raise ConfigError(
                f"the model accepts {shape} (batch x height x width), not {size[0]}x{size[1]}",
                "Choose another --size, or export the model with --dynamic.",
            )
        return letterbox(image, size)
    if shape.one_size:
        return letterbox(image, (shape.height.low, shape.width.low))
    scale = min(scale, shape.height.high / image[0], shape.width.high / image[1])
    height, width = (max(1, round(side * scale)) for side in image)
    inner = (min(shape.height.high, height), min(shape.width.high, width))
    canvas = (max(inner[0], shape.height.low), max(inner[1], shape.width.low))
    return Letterbox(image, inner, canvas)


@dataclass(frozen=True)
class Tile:
    """A part of an image that is segmented by itself, and the part of its mask that is kept."""

    rows: slice
    columns: slice
    keep_rows: slice
    """Rows of the image, within `rows`."""
    keep_columns: slice

    def kept(self, mask: Mask) -> Mask:
        """Crop the tile's mask to the part that is kept."""
        top, left = self.rows.start, self.columns.start
        return mask[
            self.keep_rows.start - top : self.keep_rows.stop - top,
            self.keep_columns.start - left : self.keep_columns.stop - left,
        ]


def tiles(image: tuple[int, int], tile: int, overlap: int) -> list[Tile]:
    """Cover an image with overlapping square tiles; each pixel is kept by the tile with the nearest centre.

    Args:
        image: Height and width.
        tile: Side of a tile in pixels; a shorter image side is not cut.
        overlap: Minimum overlap of neighbouring tiles in pixels.
    """
    if tile < 1 or not 0 <= overlap < tile:
        raise ConfigError(
            f"tiles of {tile} pixels cannot overlap by {overlap}", "Choose an --overlap smaller than --tile."
        )
    return [
        Tile(rows, columns, keep_rows, keep_columns)
        for rows, keep_rows in _spans(image[0], tile, overlap)
        for columns, keep_columns in _spans(image[1], tile, overlap)
    ]


def _spans(length: int, tile: int, overlap: int) -> list[tuple[slice, slice]]:
    """Along one axis, the span that each tile reads and the span that it keeps."""
    if length <= tile:
        return [(slice(0, length), slice(0, length))]
    count = -(-(length - overlap) // (tile - overlap))
    starts = [round(index * (length - tile) / (count - 1)) for index in range(count)]
    cuts = [0, *((a + tile + b) // 2 for a, b in pairwise(starts)), length]
    return [
        (slice(start, start + tile), slice(low, high))
        for start, (low, high) in zip(starts, pairwise(cuts), strict=True)
    ]

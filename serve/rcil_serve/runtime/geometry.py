"""Where an image goes in a model's input, and how its mask comes back: letterboxes and tiles."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np

from rcil.core.errors import ConfigError
from rcil.core.images import Image
from rcil_export.graph.shapes import Extent, InputShape
from rcil_serve.runtime.backends.protocol import Mask


@dataclass(frozen=True)
class Letterbox:
    """An image scaled by one factor and centred on a canvas, and the way back."""

    image: tuple[int, int]
    """Height and width of the image."""
    inner: tuple[int, int]
    """Of the scaled image."""
    canvas: tuple[int, int]
    """Of the model's input."""

    @property
    def corner(self) -> tuple[int, int]:
        """Rows above and columns left of the scaled image."""
        return (self.canvas[0] - self.inner[0]) // 2, (self.canvas[1] - self.inner[1]) // 2

    def place(self, image: Image, fill: tuple[int, int, int]) -> Image:
        """[H, W, 3] -> the canvas [h, w, 3]."""
        scaled = _scaled(image, self.inner)
        if self.inner == self.canvas:
            return scaled
        canvas = np.empty((*self.canvas, 3), np.uint8)
        canvas[:] = fill
        top, left = self.corner
        canvas[top : top + self.inner[0], left : left + self.inner[1]] = scaled
        return canvas

    def cut(self, plane: Mask) -> Mask:
        """The part of a plane of the canvas [h, w] that the image covers, still scaled."""
        top, left = self.corner
        return plane[top : top + self.inner[0], left : left + self.inner[1]]

    def undo(self, mask: Mask) -> Mask:
        """A mask of the canvas [h, w] -> of the image [H, W]: every pixel takes the class at its own centre."""
        cut = self.cut(mask)
        if self.inner == self.image:
            return np.ascontiguousarray(cut)
        return np.asarray(cv2.resize(cut, self.image[::-1], interpolation=cv2.INTER_NEAREST_EXACT), mask.dtype)


def _scaled(image: Image, size: tuple[int, int]) -> Image:
    """Halved by averaging as often as it can be, the rest interpolated: a quarter of the time of one exact average."""
    height, width = image.shape[:2]
    if (height, width) == size:
        return image
    if height >= 2 * size[0] and width >= 2 * size[1]:
        half = cv2.resize(image, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
        return _scaled(np.asarray(half, np.uint8), size)
    return np.asarray(cv2.resize(image, size[::-1], interpolation=cv2.INTER_LINEAR), np.uint8)


def letterbox(image: tuple[int, int], canvas: tuple[int, int]) -> Letterbox:
    """The largest the image can get on the canvas with its sides in proportion."""
    scale = min(canvas[0] / image[0], canvas[1] / image[1])
    inner = (min(canvas[0], max(1, round(image[0] * scale))), min(canvas[1], max(1, round(image[1] * scale))))
    return Letterbox(image, inner, canvas)


def letterbox_for(image: tuple[int, int], shape: InputShape, size: tuple[int, int] | None) -> Letterbox:
    """How an image goes into a model.

    Args:
        image: Height and width of the image.
        shape: What the model takes. An image that fits goes in as it is.
        size: Canvas that the user asks for; None: the model's own, or as close to the image as it takes.
    """
    if size is not None:
        if not shape.takes(*size):
            raise ConfigError(
                f"the model takes {shape} (batch x height x width), not {size[0]}x{size[1]}",
                "Choose another --size, or export the model with --dynamic.",
            )
        return letterbox(image, size)
    if shape.takes(*image):
        return Letterbox(image, image, image)
    if shape.height.fixed and shape.width.fixed:
        return letterbox(image, (shape.height.low, shape.width.low))
    scale = min(1.0, shape.height.high / image[0], shape.width.high / image[1])
    inner = (_within(image[0] * scale, shape.height), _within(image[1] * scale, shape.width))
    canvas = (max(inner[0], shape.height.low), max(inner[1], shape.width.low))
    return Letterbox(image, inner, canvas)


def _within(side: float, extent: Extent) -> int:
    return min(extent.high, max(1, round(side)))


@dataclass(frozen=True)
class Tile:
    """A part of an image to run by itself, and the part of it that is kept."""

    rows: slice
    columns: slice
    keep_rows: slice
    """In the image, inside `rows`."""
    keep_columns: slice

    def kept(self, mask: Mask) -> Mask:
        """What stays of the tile's own mask."""
        top, left = self.rows.start, self.columns.start
        return mask[
            self.keep_rows.start - top : self.keep_rows.stop - top,
            self.keep_columns.start - left : self.keep_columns.stop - left,
        ]


def tiles(image: tuple[int, int], tile: int, overlap: int) -> list[Tile]:
    """Squares of side `tile` that cover the image and overlap; each pixel is kept by the tile whose middle is nearest.

    Args:
        image: Height and width.
        tile: Side of a tile; a shorter side of the image is taken whole.
        overlap: Pixels that neighbours share at least.
    """
    if tile < 1 or not 0 <= overlap < tile:
        raise ConfigError(
            f"tiles of {tile} pixels cannot overlap by {overlap}", "Choose an --overlap below the --tile."
        )
    return [
        Tile(rows, columns, keep_rows, keep_columns)
        for rows, keep_rows in _spans(image[0], tile, overlap)
        for columns, keep_columns in _spans(image[1], tile, overlap)
    ]


def _spans(length: int, tile: int, overlap: int) -> list[tuple[slice, slice]]:
    """Along one axis: what each tile reads and what of it is kept."""
    if length <= tile:
        return [(slice(0, length), slice(0, length))]
    count = -(-(length - overlap) // (tile - overlap))
    starts = [round(place * (length - tile) / (count - 1)) for place in range(count)]
    cuts = [0, *((a + tile + b) // 2 for a, b in pairwise(starts)), length]
    return [
        (slice(start, start + tile), slice(low, high))
        for start, (low, high) in zip(starts, pairwise(cuts), strict=True)
    ]

"""Draws masks over images, legends and grids of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.palette import Colour

Image = NDArray[np.uint8]


def lut_of(colours: Mapping[int, Colour]) -> Image:
    """Colours by class id, [256, 3] RGB; ids without a class are black."""
    lut = np.zeros((256, 3), np.uint8)
    for class_id, colour in colours.items():
        if class_id < len(lut):
            lut[class_id] = colour
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
        background: An id that is not drawn.
        ignore: Another id that is not drawn.
    """
    untouched = np.zeros(256, np.uint8)
    untouched[[background, ignore]] = 255
    return blend(image, mask, lut, untouched, alpha)


def blend(
    image: Image,
    mask: NDArray[Any],
    colours: Image,
    untouched: Image,
    alpha: float,
    grid_size: tuple[int, int] | None = None,
) -> Image:
    """A new image with class colours blended in, from tables that are prepared once for many images.

    Args:
        image: [H, W, 3] RGB.
        mask: Class rows [H, W].
        colours: RGB by class row, [rows, 3]; at least 256 rows.
        untouched: By class row, [rows]: 255 where the image stays as it is, 0 elsewhere.
        alpha: Weight of the colour, 0 to 1.
        grid_size: Height and width of the mask before it was enlarged to the image. Its pixels are blocks in the mask;
            their edges are drawn smoothly.
    """
    if grid_size is not None and grid_size[0] < mask.shape[0] and grid_size[1] < mask.shape[1]:
        return _blend_smoothly(image, mask, colours, untouched, alpha, grid_size)
    painted, keep = look_up(mask, colours), look_up(mask, untouched)
    drawn = np.asarray(cv2.addWeighted(image, 1 - alpha, painted, alpha, 0), np.uint8)
    cv2.copyTo(image, keep, drawn)
    return drawn


def _blend_smoothly(
    image: Image, mask: NDArray[Any], colours: Image, untouched: Image, alpha: float, grid_size: tuple[int, int]
) -> Image:
    """`blend` for an enlarged mask: its colours and its opacity are enlarged with interpolation.

    The nearest pixel to the centre of a block gives the mask before it was enlarged, so that smoothing over time, which
    happens at full size, is kept. Painting at the small size also saves what the interpolation costs.
    """
    small = np.asarray(cv2.resize(mask, grid_size[::-1], interpolation=cv2.INTER_NEAREST_EXACT))
    kept = (255 - np.rint((255 - untouched.astype(np.float64)) * alpha)).astype(np.uint8)
    added = np.where(untouched[:, None] > 0, 0, np.rint(colours * alpha)).astype(np.uint8)
    planes = look_up(small, added), look_up(small, kept)
    sides = image.shape[1::-1]
    light, weight = (cv2.resize(softened(plane), sides, interpolation=cv2.INTER_LINEAR) for plane in planes)
    weights = cv2.merge((weight, weight, weight))
    cv2.multiply(image, weights, dst=weights, scale=1 / 255)  # in place: new memory for a frame costs more than this
    return np.asarray(cv2.add(weights, light, dst=light), np.uint8)


def softened(plane: Image) -> Image:
    """Blur the edges of a small mask just enough to hide its blocks; OpenCV is twice as fast with these weights."""
    return np.asarray(cv2.GaussianBlur(plane, (3, 3), 0), np.uint8)  # 1 2 1, in both directions


def look_up(mask: NDArray[Any], table: Image) -> Image:
    """`table[mask]` for a table [rows] or [rows, 3]; OpenCV's look-ups are several times faster than numpy's."""
    if mask.dtype != np.uint8:
        return np.asarray(table[mask], np.uint8)
    if table.ndim == 1:
        return np.asarray(cv2.LUT(mask, table[:256]), np.uint8)
    return np.asarray(cv2.applyColorMap(mask, np.ascontiguousarray(table[:256, None])), np.uint8)


def drawable(text: str) -> str:
    """The text without lone surrogates, which crash OpenCV; file names and arguments can contain them."""
    return text.encode("utf-8", "replace").decode()


def legend(entries: Sequence[tuple[str, Colour]], width: int, row: int = 26) -> Image:
    """Colour swatches with names, wrapped into rows of `width` pixels, [H, width, 3] RGB on white."""
    font, scale = cv2.FONT_HERSHEY_SIMPLEX, 0.5
    placed: list[tuple[int, int, str, Colour]] = []
    x, y = 8, 0
    for name, colour in ((drawable(name), colour) for name, colour in entries):
        needed = 24 + cv2.getTextSize(name, font, scale, 1)[0][0] + 16
        if x + needed > width and x > 8:
            x, y = 8, y + row
        placed.append((x, y, name, colour))
        x += needed
    canvas = np.full((y + row, width, 3), 255, np.uint8)
    for left, top, name, colour in placed:
        cv2.rectangle(canvas, (left, top + 6), (left + 16, top + row - 6), colour, -1)
        cv2.putText(canvas, name, (left + 24, top + row - 8), font, scale, (32, 32, 32), 1, cv2.LINE_AA)
    return canvas


def fitted(image: Image, size: tuple[int, int], grey: int = 255) -> Image:
    """The image in its own proportions, in the middle of a canvas of this height and width."""
    factor = min(size[0] / image.shape[0], size[1] / image.shape[1])
    height, width = (max(1, round(side * factor)) for side in image.shape[:2])
    canvas = np.full((*size, 3), grey, np.uint8)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    canvas[top : top + height, left : left + width] = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    return canvas


def grid(rows: Sequence[Sequence[Image]], titles: Sequence[str] = (), *, margin: int = 4) -> Image:
    """Images of one size [H, W, 3] in rows and columns on white, with a title above each column."""
    height, width = rows[0][0].shape[:2]
    columns = max(len(row) for row in rows)
    top = 30 if titles else 0
    cell_h, cell_w = height + 2 * margin, width + 2 * margin
    canvas = np.full((top + len(rows) * cell_h, columns * cell_w, 3), 255, np.uint8)
    for j, title in enumerate(titles):
        corner = (j * cell_w + margin, 21)
        cv2.putText(canvas, drawable(title), corner, cv2.FONT_HERSHEY_SIMPLEX, 0.55, (30, 30, 30), 1, cv2.LINE_AA)
    for i, row in enumerate(rows):
        for j, image in enumerate(row):
            y, x = top + i * cell_h + margin, j * cell_w + margin
            canvas[y : y + height, x : x + width] = image
    return canvas

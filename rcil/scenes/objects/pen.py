"""Draw one upright object in metres relative to its foot, with antialiasing and an alpha channel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np

from rcil.scenes.objects.materials import Bytes, Colour, Floats

Point = tuple[float, float]
"""Metres to the right of the foot and above it."""
_BITS = 4
_BELOW = 0.15
"""Metres below the foot that a drawing may use, for the near edge of an object."""


class Pen:
    """A cut-out of the image, premultiplied by its coverage: `rgb` [h, w, 3] and `alpha` [h, w].

    Positions have sub-pixel precision, so that slowly moving objects do not jump.

    Args:
        foot: Pixel (column, row) of the origin.
        scale: Pixels per metre.
        reach: Maximum extent of the drawing in metres, to both sides and upwards.
        size: Image height and width; parts outside are clipped.
    """

    def __init__(self, foot: Point, scale: float, reach: Point, size: tuple[int, int]) -> None:
        self.foot = foot
        self.scale = scale
        self.left = max(0, math.floor(foot[0] - reach[0] * scale) - 1)
        self.top = max(0, math.floor(foot[1] - reach[1] * scale) - 1)
        right = min(size[1], math.ceil(foot[0] + reach[0] * scale) + 1)
        bottom = min(size[0], math.ceil(foot[1] + _BELOW * scale) + 1)
        shape = max(0, bottom - self.top), max(0, right - self.left)
        self.rgb: Bytes = np.zeros((*shape, 3), np.uint8)
        self.alpha: Bytes = np.zeros(shape, np.uint8)

    @property
    def inside(self) -> bool:
        """Whether any part of the reach lies in the image."""
        return self.alpha.size > 0

    def poly(self, points: Sequence[Point], colour: Colour) -> None:
        """A filled polygon."""
        corners = np.array([self._fixed(p) for p in points], np.int32)
        cv2.fillPoly(self.rgb, [corners], colour, cv2.LINE_AA, _BITS)
        cv2.fillPoly(self.alpha, [corners], 255, cv2.LINE_AA, _BITS)

    def box(self, left: float, low: float, right: float, high: float, colour: Colour) -> None:
        """An upright rectangle."""
        self.poly([(left, low), (right, low), (right, high), (left, high)], colour)

    def line(self, start: Point, end: Point, width: float, colour: Colour) -> None:
        """A straight bar of a width in metres."""
        (x0, y0), (x1, y1) = start, end
        dx, dy = x1 - x0, y1 - y0
        long = math.hypot(dx, dy) or 1.0
        nx, ny = -dy / long * width / 2, dx / long * width / 2
        self.poly([(x0 + nx, y0 + ny), (x1 + nx, y1 + ny), (x1 - nx, y1 - ny), (x0 - nx, y0 - ny)], colour)

    def disc(self, centre: Point, radii: Point, colour: Colour) -> None:
        """A filled ellipse with upright axes."""
        middle = self._fixed(centre)
        axes = tuple(max(1, round(r * self.scale * (1 << _BITS))) for r in radii)
        cv2.ellipse(self.rgb, middle, axes, 0, 0, 360, colour, -1, cv2.LINE_AA, _BITS)
        cv2.ellipse(self.alpha, middle, axes, 0, 0, 360, 255, -1, cv2.LINE_AA, _BITS)

    def texture(self, tile: Floats, density: float, offset: Point, amount: float) -> None:
        """Vary the brightness of the drawing by a tile of `density` texels per metre."""
        drawn = self._drawn()
        self._multiply(drawn, 1 + np.float32(amount) * self._sample(drawn, tile, density, offset))

    def fray(self, tile: Floats, density: float, offset: Point, depth: float) -> None:
        """Erode the border by a tile, `depth` metres deep."""
        drawn = self._drawn()
        width = max(3, 2 * round(depth * self.scale / 2) + 1)
        alpha = self.alpha[drawn]
        if alpha.size == 0:
            return
        solid = cv2.blur(alpha, (width, width), borderType=cv2.BORDER_CONSTANT).astype(np.float32)
        keep = (solid + np.float32(55) * self._sample(drawn, tile, density, offset) > 118).astype(np.uint8)
        alpha *= keep
        self.rgb[drawn] *= keep[..., None]

    def bulge(self, centre: Point, radii: Point, side: float) -> None:
        """Shade the drawing as a ball that is lit from above and from `side` (-1 left, 1 right)."""
        drawn = self._drawn()
        columns = np.arange(drawn[1].start, drawn[1].stop, dtype=np.float32)
        rows = np.arange(drawn[0].start, drawn[0].stop, dtype=np.float32)
        x = (columns + np.float32(self.left - self.foot[0] + 0.5)) / np.float32(self.scale) - np.float32(centre[0])
        y = (np.float32(self.foot[1] - self.top - 0.5) - rows) / np.float32(self.scale) - np.float32(centre[1])
        across = np.float32(0.34) * (x / np.float32(radii[0]) - np.float32(0.35 * side)) ** 2
        down = np.float32(0.34) * (y / np.float32(radii[1]) - np.float32(0.4)) ** 2
        self._multiply(drawn, np.maximum(np.float32(1.12) - across - down[:, None], np.float32(0.35)))

    def _drawn(self) -> tuple[slice, slice]:
        """Rows and columns of the bounding box of the drawing."""
        left, top, width, height = cv2.boundingRect(self.alpha)
        return slice(top, top + height), slice(left, left + width)

    def _multiply(self, part: tuple[slice, slice], factor: Floats) -> None:
        """Scale the brightness of a part by [h, w], without changing its coverage."""
        if factor.size:
            scaled = cv2.multiply(self.rgb[part], cv2.merge([factor, factor, factor]), dtype=cv2.CV_8U)
            self.rgb[part] = scaled

    def _sample(self, part: tuple[slice, slice], tile: Floats, density: float, offset: Point) -> Floats:
        """The tile sampled over a part; it moves and scales with the object."""
        rows, columns = part
        size = columns.stop - columns.start, rows.stop - rows.start
        if 0 in size:
            return np.zeros(size[::-1], np.float32)
        step, side = density / self.scale, tile.shape[0]
        # cv2 addresses texels with 16 bits, so bring the corner near the origin; the tile repeats anyway.
        shift_x = (offset[0] + (self.left + columns.start - self.foot[0]) * step) % side
        shift_y = (offset[1] + (self.top + rows.start - self.foot[1]) * step) % side
        matrix = np.array([[step, 0, shift_x], [0, step, shift_y]], np.float32)
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        return np.asarray(cv2.warpAffine(tile, matrix, size, flags=flags, borderMode=cv2.BORDER_WRAP), np.float32)

    def _fixed(self, point: Point) -> tuple[int, int]:
        """Pixel in the cut-out with fractional bits, as cv2 takes it."""
        x = self.foot[0] + point[0] * self.scale - self.left
        y = self.foot[1] - point[1] * self.scale - self.top
        # cv2 counts from pixel centres.
        return round((x - 0.5) * (1 << _BITS)), round((y - 0.5) * (1 << _BITS))

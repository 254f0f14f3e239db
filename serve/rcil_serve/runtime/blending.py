"""Blends class colours into planes, the counterpart of `rcil.core.drawing.blend` for RGB."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.drawing import look_up, softened
from rcil.core.images import Image
from rcil_serve.runtime.planes import ColourSpace, Plane, Planes, half, halved

SPREAD = 2
"""How many pixels of a small mask an edge spreads, when it is softened and enlarged."""


class Tables(NamedTuple):
    """What painting does with a pixel, by class row."""

    kept: Plane
    """Weight of the image from 0 to 255, [rows]."""
    added: tuple[Plane, Plane, Plane]
    """Values to add to luma and chroma, each [rows]."""


def tables_of(colours: Image, untouched: Plane, alpha: float, space: ColourSpace) -> Tables:
    """Prepare painting; see `rcil.core.drawing.blend` for the arguments."""
    kept = np.rint(255 - (255 - untouched.astype(np.float64)) * alpha)
    matrix = space.from_rgb().astype(np.float64)
    values = colours @ matrix[:, :3].T + matrix[:, 3]
    added = np.rint(values * (1 - kept / 255)[:, None]).astype(np.uint8)
    y, u, v = (np.ascontiguousarray(column) for column in added.T)
    return Tables(kept.astype(np.uint8), (y, u, v))


def blend_planes(
    picture: Planes, mask: NDArray[Any], tables: Tables, grid_size: tuple[int, int] | None = None
) -> Planes:
    """New planes with class colours blended in. Work is done only within the rectangle that holds painted classes.

    A block of chroma at the edge of a class gets the mean of what its four pixels would get.

    Args:
        picture: The image [H, W].
        mask: Class rows [H, W].
        tables: From `tables_of`, for the colour space of the picture.
        grid_size: As for `rcil.core.drawing.blend`.
    """
    smooth = grid_size is not None and grid_size[0] < mask.shape[0] and grid_size[1] < mask.shape[1]
    grid = mask
    if smooth and grid_size is not None:
        grid = np.asarray(cv2.resize(mask, grid_size[::-1], interpolation=cv2.INTER_NEAREST_EXACT))
    weights = look_up(grid, 255 - tables.kept)
    painted = Planes.empty(picture.size, picture.space)
    part = _painted_part(weights, picture.size)
    if part is None or part.pixels != (slice(0, picture.size[0]), slice(0, picture.size[1])):
        picture.copy_to(painted)
    if part is not None:
        kept = np.asarray(cv2.bitwise_not(weights[part.cells]), np.uint8)
        blended = _blend_smoothly if smooth else _blend_exactly
        blended(picture.part(*part.pixels), kept, grid[part.cells], tables, painted.part(*part.pixels))
    return painted


class _Part(NamedTuple):
    """A rectangle of an image."""

    cells: tuple[slice, slice]
    """Its rows and columns in the mask before it was enlarged."""
    pixels: tuple[slice, slice]
    """Its rows and columns in the image."""


def _painted_part(weights: Plane, size: tuple[int, int]) -> _Part | None:
    """The part of an image of this size that holds all weights [h, w] above 0; None if there are none."""
    left, top, width, height = cv2.boundingRect(weights)
    if not width:
        return None
    rows = _span(top, top + height, weights.shape[0], size[0])
    columns = _span(left, left + width, weights.shape[1], size[1])
    return _Part((rows[0], columns[0]), (rows[1], columns[1]))


def _span(first: int, end: int, cells: int, pixels: int) -> tuple[slice, slice]:
    """Cells that include [first, end) and what interpolation spreads it to, and their pixels in whole blocks."""
    if pixels % 2:
        return slice(0, cells), slice(0, pixels)
    unit = cells // math.gcd(cells, pixels // 2)
    low = max(0, (first - SPREAD) // unit * unit)
    high = min(cells, -(-(end + SPREAD) // unit) * unit)
    return slice(low, high), slice(low * pixels // cells, high * pixels // cells)


def _blend_smoothly(picture: Planes, kept: Plane, grid: NDArray[Any], tables: Tables, out: Planes) -> None:
    """Blend a mask that is smaller than the image; its weights and colours are enlarged with interpolation."""
    kept, *added = (softened(plane) for plane in (kept, *(look_up(grid, table) for table in tables.added)))
    weights = _enlarged(kept, picture.size)
    _mix(picture.y, weights, _enlarged(added[0], picture.size), out.y)
    _mix_chroma(picture, weights, [_at_half(plane, picture.size) for plane in added[1:]], out)


def _blend_exactly(picture: Planes, kept: Plane, mask: NDArray[Any], tables: Tables, out: Planes) -> None:
    """Blend a mask of the size of the image."""
    _mix(picture.y, kept, look_up(mask, tables.added[0]), out.y)
    _mix_chroma(picture, kept, [halved(look_up(mask, table)) for table in tables.added[1:]], out)


def _mix_chroma(picture: Planes, kept: Plane, added: Sequence[Plane], out: Planes) -> None:
    weights = halved(kept)
    _mix(picture.u, weights, added[0], out.u)
    _mix(picture.v, weights, added[1], out.v)


def _mix(plane: Plane, kept: Plane, added: Plane, out: Plane) -> None:
    """`plane * kept / 255 + added`, in place of new memory, which costs more than the work."""
    cv2.multiply(plane, kept, dst=out, scale=1 / 255)
    cv2.add(out, added, dst=out)


def _enlarged(plane: Plane, size: tuple[int, int]) -> Plane:
    return np.asarray(cv2.resize(plane, size[::-1], interpolation=cv2.INTER_LINEAR), np.uint8)


def _at_half(plane: Plane, size: tuple[int, int]) -> Plane:
    """The plane at the size of the chroma of an image. At odd sides, blocks are halves and centres are elsewhere."""
    if size[0] % 2 or size[1] % 2:
        return halved(_enlarged(plane, size))
    return _enlarged(plane, half(size))

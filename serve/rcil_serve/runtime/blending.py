"""Blends class colours into planes, the counterpart of `rcil.core.drawing.blend` for RGB."""

from __future__ import annotations

from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.drawing import look_up, softened
from rcil.core.images import Image
from rcil_serve.runtime.planes import ColourSpace, Plane, Planes, half, halved


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
    """New planes with class colours blended in.

    A block of chroma at the edge of a class gets the mean of what its four pixels would get.

    Args:
        picture: The image [H, W].
        mask: Class rows [H, W].
        tables: From `tables_of`, for the colour space of the picture.
        grid_size: As for `rcil.core.drawing.blend`.
    """
    painted = Planes.empty(picture.size, picture.space)
    smooth = grid_size is not None and grid_size[0] < mask.shape[0] and grid_size[1] < mask.shape[1]
    if smooth and grid_size is not None:
        small = np.asarray(cv2.resize(mask, grid_size[::-1], interpolation=cv2.INTER_NEAREST_EXACT))
        kept, *added = (softened(look_up(small, table)) for table in (tables.kept, *tables.added))
        luma = [_enlarged(plane, picture.size) for plane in (kept, added[0])]
        chroma = [halved(luma[0]), *(_at_half(plane, picture.size) for plane in added[1:])]
    else:
        luma = [look_up(mask, table) for table in (tables.kept, tables.added[0])]
        chroma = [halved(luma[0]), *(halved(look_up(mask, table)) for table in tables.added[1:])]
    _mix(picture.y, luma[0], luma[1], painted.y)
    _mix(picture.u, chroma[0], chroma[1], painted.u)
    _mix(picture.v, chroma[0], chroma[2], painted.v)
    return painted


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

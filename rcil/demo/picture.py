"""The picture of the demo: scenes in rows; image, truth and what each model sees in columns."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from rcil.demo.scenes import make_scene
from rcil.drawing import Image, grid, lut_of, overlay
from rcil.palette import colour_of

_LUT = lut_of({index: colour_of(index) for index in range(256)})


def draw(columns: dict[str, Callable[[Image], Image]], seeds: list[int], scale: int = 2) -> Image:
    """A titled grid [H, W, 3] RGB.

    Args:
        columns: Title -> a function from an image to its mask; image and truth come first by themselves.
        seeds: One scene a row.
        scale: How much each scene is enlarged.
    """
    rows = []
    for seed in seeds:
        image, truth = make_scene(seed)
        masks = [truth, *(predict(image) for predict in columns.values())]
        cells = [image, *(overlay(image, mask, _LUT, 0.65) for mask in masks)]
        rows.append([_enlarge(cell, scale) for cell in cells])
    return grid(rows, ["image", "truth", *columns])


def _enlarge(image: Image, scale: int) -> Image:
    return np.asarray(cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_NEAREST), np.uint8)

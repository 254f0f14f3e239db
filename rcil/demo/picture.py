"""The picture of the demo: scenes in rows; image, truth and what each model sees in columns."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.demo.scenes import make_scene
from rcil.palette import colour_of

Image = NDArray[np.uint8]
_LUT = np.array([colour_of(index) for index in range(256)], np.uint8)


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
        cells = [image, *(_blend(image, mask) for mask in masks)]
        rows.append(
            np.hstack([np.pad(_enlarge(cell, scale), ((4, 4), (4, 4), (0, 0)), constant_values=255) for cell in cells])
        )
    titles = ["image", "truth", *columns]
    width = rows[0].shape[1] // len(titles)
    header = np.full((34, rows[0].shape[1], 3), 255, np.uint8)
    for index, title in enumerate(titles):
        cv2.putText(
            header, title, (index * width + 6, 24), cv2.FONT_HERSHEY_SIMPLEX, 0.55, (30, 30, 30), 1, cv2.LINE_AA
        )
    return np.vstack([header, *rows])


def _blend(image: Image, mask: Image) -> Image:
    tinted = cv2.addWeighted(image, 0.35, _LUT[mask], 0.65, 0)
    return np.where(mask[..., None] > 0, tinted, image).astype(np.uint8)


def _enlarge(image: Image, scale: int) -> Image:
    return np.asarray(cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_NEAREST), np.uint8)

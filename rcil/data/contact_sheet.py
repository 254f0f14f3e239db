"""Draw overlays of a dataset, and a contact sheet of them."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from rcil.core.drawing import Image, grid, legend, lut_of, overlay
from rcil.core.images import read_rgb
from rcil.core.masks import read_mask
from rcil.data.scan import id_table
from rcil.data.types import Sample, SegmentationData

ALPHA = 0.55
"""Opacity of the class colours."""


def draw_sample(data: SegmentationData, sample: Sample) -> Image:
    """Draw a mask over its image [H, W, 3]."""
    lut = lut_of({index: spec.colour for index, spec in enumerate(data.classes)})
    mask = id_table(data)[read_mask(sample.mask)]
    return overlay(read_rgb(sample.image), mask, lut, ALPHA)


def contact_sheet(data: SegmentationData, samples: Sequence[Sample], *, columns: int = 4, cell: int = 240) -> Image:
    """Draw overlays of evenly spread samples in a grid, with a legend below."""
    chosen = [samples[i] for i in np.linspace(0, len(samples) - 1, min(len(samples), 3 * columns)).astype(int)]
    cells = [_fit(draw_sample(data, sample), cell) for sample in chosen]
    sheet = grid([cells[start : start + columns] for start in range(0, len(cells), columns)])
    return np.vstack([sheet, legend([(c.name, c.colour) for c in data.classes], sheet.shape[1])])


def _fit(image: Image, side: int) -> Image:
    """Fit the image into a white square, keeping its aspect ratio."""
    height, width = image.shape[:2]
    scale = side / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    canvas = np.full((side, side, 3), 255, np.uint8)
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    top, left = (side - size[1]) // 2, (side - size[0]) // 2
    canvas[top : top + size[1], left : left + size[0]] = small
    return canvas

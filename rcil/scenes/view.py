"""A pinhole camera above flat ground."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rcil.scenes.types import Floats

FOCAL = 0.9
"""Focal length as a share of the image width, about 58 degrees across."""
MAX_DISTANCE = 250.0
"""Metres at which the ground plane ends; the horizon itself would be infinitely far."""


@dataclass(frozen=True)
class View:
    """Projection of world metres to pixels: x to the right of the camera, z ahead of it."""

    size: tuple[int, int]
    """Image height and width."""
    horizon: float
    """Height of the horizon line as a share of the image, from the top."""
    camera_height: float
    """Metres above the ground."""

    @property
    def horizon_row(self) -> int:
        """The first row that shows ground."""
        return round(self.horizon * self.size[0])

    @property
    def focal(self) -> float:
        """Focal length in pixels."""
        return FOCAL * self.size[1]

    def scale(self, z: float) -> float:
        """Pixels per metre at depth z."""
        return self.focal / z

    def foot(self, x: float, z: float) -> tuple[float, float]:
        """Pixel (column, row) of a point on the ground."""
        scale = self.scale(z)
        return self.size[1] / 2 + x * scale, self.horizon * self.size[0] + self.camera_height * scale

    def point_at(self, across: float, down: float) -> tuple[float, float]:
        """Ground point (x, z) seen at a share of the width and a share of the rows below the horizon."""
        rows = down * (1 - self.horizon) * self.size[0]
        z = self.camera_height * self.focal / rows
        return (across - 0.5) * self.size[1] * z / self.focal, z

    def ground(self) -> tuple[Floats, Floats]:
        """World x and z of every pixel below the horizon, each [rows, W]."""
        height, width = self.size
        rows = np.arange(self.horizon_row, height, dtype=np.float32) + np.float32(0.5 - self.horizon * height)
        depth = np.float32(self.camera_height * self.focal) / np.maximum(rows, 1e-3)
        depth = np.minimum(depth, np.float32(MAX_DISTANCE))[:, None]
        columns = (np.arange(width, dtype=np.float32) + np.float32(0.5 - width / 2)) / np.float32(self.focal)
        return depth * columns, np.repeat(depth, width, axis=1)

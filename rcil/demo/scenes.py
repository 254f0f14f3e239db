"""A generated yard: textured ground with balls, crates and cones, deterministic by seed."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

CLASSES = ("background", "ball", "crate", "cone")
COLOURS = ((0, 0, 0), (50, 105, 190), (215, 185, 60), (225, 70, 35))
Image = NDArray[np.uint8]


def make_scene(seed: int, size: int = 128) -> tuple[Image, Image]:
    """One scene: image [size, size, 3] RGB and mask [size, size] of class ids; objects may hide each other."""
    rng = np.random.default_rng(seed)
    canvas = _ground(rng, size)
    mask = np.zeros((size, size), np.uint8)
    for _ in range(rng.integers(4, 7)):
        _place(rng, canvas, mask, int(rng.integers(1, len(CLASSES))))
    light = 1 + 0.35 * _ramp(rng, size)[..., None]
    noisy = canvas * light * rng.uniform(0.75, 1.2) + rng.normal(0, 5, canvas.shape)
    return noisy.clip(0, 255).astype(np.uint8), mask


def _ground(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Blotches of several scales around an earthy colour."""
    blotches = np.zeros((size, size))
    for cells in (4, 12, 40):
        coarse = rng.normal(0, 1, (cells, cells))
        blotches += cv2.resize(coarse, (size, size), interpolation=cv2.INTER_CUBIC)
    base = np.array([110.0, 104.0, 88.0]) + rng.normal(0, 14, 3)
    return np.asarray(base + 12 * blotches[..., None])


def _ramp(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Light that falls from one side, -1 to 1."""
    angle = rng.uniform(0, 2 * np.pi)
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    return np.asarray((np.cos(angle) * x + np.sin(angle) * y) / np.sqrt(2))


def _place(rng: np.random.Generator, canvas: NDArray[np.float64], mask: Image, kind: int) -> None:
    """Draw one object into canvas and mask; colours vary around that of the kind."""
    size = canvas.shape[0]
    centre = rng.uniform(0.12, 0.88, 2) * size
    radius = rng.uniform(0.12, 0.22) * size
    shape = np.zeros((size, size), np.uint8)
    if kind == 1:
        cv2.circle(shape, (int(centre[0]), int(centre[1])), int(radius), 1, -1)
    else:
        cv2.fillPoly(shape, [_corners(rng, kind, centre, radius)], 1)
    inside = shape.astype(bool)
    colour = np.array(COLOURS[kind]) + rng.normal(0, 16, 3)
    canvas[inside] = colour * _shading(rng, kind, centre, radius, size)[inside][:, None]
    mask[inside] = kind


def _corners(rng: np.random.Generator, kind: int, centre: NDArray[np.float64], radius: float) -> NDArray[np.int32]:
    """A turned square for a crate, an upright triangle for a cone."""
    if kind == 2:
        angles = rng.uniform(0, np.pi / 2) + np.arange(4) * np.pi / 2
        points = centre + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    else:
        points = centre + radius * np.array([[0, -1.25], [0.8, 0.85], [-0.8, 0.85]])
    return np.asarray(points.round(), np.int32)


def _shading(
    rng: np.random.Generator, kind: int, centre: NDArray[np.float64], radius: float, size: int
) -> NDArray[np.float64]:
    """Brightness over the canvas: a highlight on balls, planks on crates, a white band on cones."""
    y, x = np.mgrid[0:size, 0:size].astype(np.float64)
    if kind == 1:
        distance = np.hypot(x - centre[0] + 0.3 * radius, y - centre[1] + 0.3 * radius) / radius
        return np.asarray(1.25 - 0.5 * distance)
    if kind == 2:
        angle = rng.uniform(0, np.pi)
        stripes = np.sin((np.cos(angle) * x + np.sin(angle) * y) * 2 * np.pi / max(radius / 2.5, 3))
        return np.asarray(0.85 + 0.15 * np.sign(stripes))
    band = np.abs(y - centre[1] - 0.15 * radius) < 0.22 * radius
    return np.where(band, 1.5, 1.0)

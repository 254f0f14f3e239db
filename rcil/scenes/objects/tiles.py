"""Seamless texture tiles, drawn once per process.

They have a fixed seed; scenes vary their offset, scale and strength.
"""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np

from rcil.scenes.types import Floats

SIDE = 128
"""Texels per side."""


@cache
def noise() -> Floats:
    """Noise of five scales, mean 0, standard deviation 1."""
    rng = np.random.default_rng(1)
    total = np.zeros((SIDE, SIDE), np.float32)
    for cells in (4, 8, 16, 32, 64):
        coarse = np.pad(rng.standard_normal((cells, cells), np.float32), 2, mode="wrap")
        side = SIDE // cells
        fine = cv2.resize(coarse, None, fx=side, fy=side, interpolation=cv2.INTER_CUBIC)
        total += fine[2 * side : -2 * side, 2 * side : -2 * side] / np.float32(cells) ** np.float32(0.25)
    return _normalised(total)


@cache
def leaves() -> Floats:
    """Overlapping leaf blades, each of its own brightness; mean 0, standard deviation 1."""
    rng = np.random.default_rng(2)
    sheet = np.zeros((3 * SIDE, 3 * SIDE), np.float32)
    for _ in range(900):
        x, y = rng.integers(0, SIDE, 2)
        long, turn, tone = int(rng.integers(4, 9)), float(rng.uniform(0, 360)), float(rng.uniform(-1, 1))
        for across in (0, SIDE, 2 * SIDE):
            for down in (0, SIDE, 2 * SIDE):
                centre = (int(x) + across, int(y) + down)
                cv2.ellipse(sheet, centre, (long, max(2, long // 2)), turn, 0, 360, tone, -1)
    return _normalised(sheet[SIDE : 2 * SIDE, SIDE : 2 * SIDE])


@cache
def bricks() -> Floats:
    """Eight courses of staggered bricks with light mortar; mean 0, standard deviation 1."""
    rng = np.random.default_rng(3)
    wall = np.full((SIDE, SIDE), 1.6, np.float32)
    course, brick = SIDE // 8, SIDE // 4
    for row in range(8):
        start = (row % 2) * brick // 2
        for column in range(4):
            tone = rng.normal(-0.3, 0.6)
            across = (np.arange(2, brick) + start + column * brick) % SIDE
            wall[row * course + 2 : (row + 1) * course, across] = tone
    return _normalised(wall + 0.25 * noise())


@cache
def ribs() -> Floats:
    """Upright corrugation, eight waves; mean 0, standard deviation 1."""
    wave = np.sin(np.arange(SIDE, dtype=np.float32) * np.float32(16 * np.pi / SIDE))
    return _normalised(np.tile(wave, (SIDE, 1)) + 0.3 * noise())


def _normalised(tile: Floats) -> Floats:
    result: Floats = np.asarray((tile - tile.mean()) / tile.std(), np.float32)
    result.flags.writeable = False
    return result

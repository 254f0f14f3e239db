"""Colours and texture tiles of the objects and the ground.

Several classes and the clutter share orange, white and wood tones, so that colour alone does not identify a class.
Tiles are seamless and drawn once per process from a fixed seed; scenes vary their offset, scale and strength.
"""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Colour = tuple[float, float, float]
"""RGB, 0 to 255 each."""
TILE_SIDE = 128
"""Texels per side of a tile."""

ORANGE: Colour = (226, 98, 36)
RED: Colour = (192, 44, 40)
YELLOW: Colour = (222, 190, 50)
LIME: Colour = (176, 206, 60)
GREEN: Colour = (70, 118, 52)
BLUE: Colour = (48, 88, 168)
WHITE: Colour = (226, 226, 220)
GREY: Colour = (132, 132, 130)
DARK: Colour = (44, 44, 48)
WOOD: Colour = (168, 124, 76)
BRICK: Colour = (158, 84, 62)
SAND: Colour = (190, 170, 132)
GLASS: Colour = (62, 78, 94)
RUBBER: Colour = (30, 30, 32)

PALETTE: dict[str, tuple[Colour, ...]] = {
    "ground": ((126, 116, 98), (112, 110, 106), SAND, (116, 98, 78), (134, 134, 126)),
    "road": ((78, 78, 80), (96, 94, 92), (112, 106, 100)),
    "wall": (BRICK, SAND, GREY, WHITE, WOOD, (118, 128, 140)),
    "roof": (BRICK, DARK, (104, 74, 64), GREY),
    "foliage": (GREEN, (94, 128, 58), (52, 92, 50), (136, 132, 54), (172, 108, 44)),
    "grass": (GREEN, (94, 128, 58), (118, 134, 66), (78, 104, 62)),
    "jacket": (ORANGE, LIME, YELLOW, BLUE, DARK, RED, GREY, WHITE),
    "trousers": (DARK, BLUE, GREY, ORANGE, (92, 80, 62)),
    "skin": ((224, 178, 146), (164, 114, 84), (96, 66, 50)),
    "car": (WHITE, GREY, DARK, RED, BLUE, ORANGE, YELLOW, GREEN, SAND),
    "crate": (WOOD, WOOD, BRICK, BLUE, GREY, GREEN, ORANGE),
    "ball": (ORANGE, RED, GREEN, BLUE, YELLOW, WHITE, WOOD),
    "safety": (ORANGE, ORANGE, RED, YELLOW),
    "sign": (WHITE, YELLOW, ORANGE, BLUE),
    "clutter": (ORANGE, BLUE, GREEN, RED, GREY, WOOD, DARK, YELLOW),
}


def pick(rng: np.random.Generator, name: str, spread: float = 14.0) -> Colour:
    """A random, varied colour of the palette."""
    options = PALETTE[name]
    return vary(rng, options[int(rng.integers(len(options)))], spread)


def vary(rng: np.random.Generator, colour: Colour, spread: float = 14.0) -> Colour:
    """Vary a colour: the brightness by up to a quarter, and every channel by `spread`."""
    bright = rng.uniform(0.75, 1.2)
    r, g, b = rng.normal(0, spread, 3)
    return colour[0] * bright + r, colour[1] * bright + g, colour[2] * bright + b


def shade(colour: Colour, factor: float) -> Colour:
    """Multiply the brightness of a colour."""
    return colour[0] * factor, colour[1] * factor, colour[2] * factor


@cache
def noise() -> Floats:
    """Noise of five scales, mean 0, standard deviation 1."""
    rng = np.random.default_rng(1)
    total = np.zeros((TILE_SIDE, TILE_SIDE), np.float32)
    for cells in (4, 8, 16, 32, 64):
        coarse = np.pad(rng.standard_normal((cells, cells), np.float32), 2, mode="wrap")
        side = TILE_SIDE // cells
        fine = cv2.resize(coarse, None, fx=side, fy=side, interpolation=cv2.INTER_CUBIC)
        total += fine[2 * side : -2 * side, 2 * side : -2 * side] / np.float32(cells) ** np.float32(0.25)
    return _normalised(total)


@cache
def leaves() -> Floats:
    """Overlapping leaf blades, each of its own brightness; mean 0, standard deviation 1."""
    rng = np.random.default_rng(2)
    sheet = np.zeros((3 * TILE_SIDE, 3 * TILE_SIDE), np.float32)
    for _ in range(900):
        x, y = rng.integers(0, TILE_SIDE, 2)
        long, turn, tone = int(rng.integers(4, 9)), float(rng.uniform(0, 360)), float(rng.uniform(-1, 1))
        for across in (0, TILE_SIDE, 2 * TILE_SIDE):
            for down in (0, TILE_SIDE, 2 * TILE_SIDE):
                centre = (int(x) + across, int(y) + down)
                cv2.ellipse(sheet, centre, (long, max(2, long // 2)), turn, 0, 360, tone, -1)
    return _normalised(sheet[TILE_SIDE : 2 * TILE_SIDE, TILE_SIDE : 2 * TILE_SIDE])


@cache
def bricks() -> Floats:
    """Eight courses of staggered bricks with light mortar; mean 0, standard deviation 1."""
    rng = np.random.default_rng(3)
    wall = np.full((TILE_SIDE, TILE_SIDE), 1.6, np.float32)
    course, brick = TILE_SIDE // 8, TILE_SIDE // 4
    for row in range(8):
        start = (row % 2) * brick // 2
        for column in range(4):
            tone = rng.normal(-0.3, 0.6)
            across = (np.arange(2, brick) + start + column * brick) % TILE_SIDE
            wall[row * course + 2 : (row + 1) * course, across] = tone
    return _normalised(wall + 0.25 * noise())


@cache
def ribs() -> Floats:
    """Upright corrugation, eight waves; mean 0, standard deviation 1."""
    wave = np.sin(np.arange(TILE_SIDE, dtype=np.float32) * np.float32(16 * np.pi / TILE_SIDE))
    return _normalised(np.tile(wave, (TILE_SIDE, 1)) + 0.3 * noise())


def _normalised(tile: Floats) -> Floats:
    result: Floats = np.asarray((tile - tile.mean()) / tile.std(), np.float32)
    result.flags.writeable = False
    return result

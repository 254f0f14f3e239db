"""Base colours of the objects and their variation.

Several classes and the clutter share orange, white and wood tones, so that colour alone does not identify a class.
"""

from __future__ import annotations

import numpy as np

from rcil.scenes.types import Colour

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

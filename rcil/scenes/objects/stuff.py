"""Buildings, trees, bushes and hedges."""

from __future__ import annotations

import math

import numpy as np

from rcil.scenes.objects.materials import GLASS, Floats, bricks, leaves, noise, pick, ribs, shade, vary
from rcil.scenes.objects.pen import Pen


def building(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A block of brick, plaster or cladding with windows, a door, and a gable or a flat roof."""
    half, high = rng.uniform(3.0, 8.0), rng.uniform(3.2, 9.0)
    wall, roof = pick(rng, "wall"), pick(rng, "roof")
    lean = rng.uniform(0.8, 2.2) * rng.choice((-1.0, 1.0))
    edge = math.copysign(half, lean)
    pen.box(-half, 0, half, high, wall)
    pen.poly([(edge, 0), (edge + lean, 0.25), (edge + lean, high), (edge, high)], shade(wall, 0.62))
    tile, density, amount = _skin(rng)
    pen.texture(tile, density, (rng.uniform(0, 128), rng.uniform(0, 128)), amount)
    if rng.random() < 0.5:
        pen.poly([(-half - 0.3, high), (half + 0.3, high), (lean / 2, high + rng.uniform(1.2, 2.6))], roof)
    else:
        pen.box(min(-half, -half + lean), high, max(half, half + lean), high + 0.35, roof)
    _openings(pen, rng, half, high)


def _skin(rng: np.random.Generator) -> tuple[Floats, float, float]:
    """Tile, texels per metre and strength of a wall."""
    kind = rng.integers(3)
    if kind == 0:
        return bricks(), rng.uniform(25, 45), 0.16
    if kind == 1:
        return ribs(), rng.uniform(20, 40), 0.12
    return noise(), rng.uniform(8, 16), 0.07


def _openings(pen: Pen, rng: np.random.Generator, half: float, high: float) -> None:
    """Rows of windows and one door."""
    glass, door = vary(rng, GLASS, 18), pick(rng, "car")
    wide, pitch = rng.uniform(0.7, 1.3), rng.uniform(2.0, 3.2)
    for floor in range(int(high // 2.8)):
        low = floor * 2.8 + 1.0
        for x in np.arange(-half + 0.8, half - wide - 0.3, pitch):
            pen.box(float(x) - 0.1, low - 0.1, float(x) + wide + 0.1, low + 1.3, shade(glass, 1.9))
            pen.box(float(x), low, float(x) + wide, low + 1.2, glass)
    at = rng.uniform(-half + 1.2, half - 1.2)
    gate = rng.uniform(0.6, 1.6)
    pen.box(max(-half, at - gate), 0, min(half, at + gate), rng.uniform(2.1, 2.7), door)


def tree(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A trunk with a crown of overlapping clumps."""
    high, spread, leaf = rng.uniform(4.0, 7.5), rng.uniform(1.2, 2.4), pick(rng, "foliage")
    clumps = [(0.0, 0.0, 1.0)] + [
        (rng.uniform(-0.8, 0.8), rng.uniform(-0.7, 0.7), rng.uniform(0.4, 0.7)) for _ in range(7)
    ]
    middle = high - spread
    for x, y, size in clumps:
        tone = shade(leaf, 1.0 + 0.22 * y)
        pen.disc((x * spread, middle + y * spread), (size * spread, size * spread * 0.9), tone)
    _foliage(pen, rng, (0, middle), spread * 1.5, 0.5)
    pen.line((0, 0), (rng.normal(0, 0.15), middle - spread * 0.55), 0.1 * spread, (74.0, 58.0, 44.0))


def bush(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A round clipped bush, small enough to pass for a ball."""
    r = rng.uniform(0.35, 1.1)
    pen.disc((0, r * 0.92), (r * rng.uniform(0.95, 1.25), r), pick(rng, "foliage"))
    _foliage(pen, rng, (0, r), r, 0.18)


def hedge(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A long low box of leaves."""
    half, high, leaf = rng.uniform(1.5, 4.0), rng.uniform(0.8, 1.7), pick(rng, "foliage")
    pen.box(-half, 0, half, high, leaf)
    pen.poly([(-half, high), (half, high), (half - 0.2, high + 0.2), (-half + 0.2, high + 0.2)], shade(leaf, 1.25))
    _foliage(pen, rng, (0, high / 2), half * 1.4, 0.25)


def _foliage(pen: Pen, rng: np.random.Generator, middle: tuple[float, float], reach: float, depth: float) -> None:
    """Add leaf texture, light from above and a frayed border to the drawing."""
    offset = (float(rng.uniform(0, 128)), float(rng.uniform(0, 128)))
    density = float(rng.uniform(28, 45) if depth < 0.3 else rng.uniform(12, 20))
    pen.texture(leaves(), density, offset, 0.30)
    pen.bulge(middle, (reach, reach), float(rng.uniform(-1, 1)))
    pen.fray(leaves(), density, offset, depth)

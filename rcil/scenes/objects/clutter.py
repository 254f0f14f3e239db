"""Background objects that resemble a class in colour or shape."""

from __future__ import annotations

import numpy as np

from rcil.scenes.objects import tiles
from rcil.scenes.objects.colours import DARK, GREY, RUBBER, SAND, WHITE, WOOD, pick, shade, vary
from rcil.scenes.objects.pen import Pen


def drum(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A banded barrel: the colours of a cone without its taper."""
    half, high, paint = rng.uniform(0.26, 0.38), rng.uniform(0.8, 1.1), pick(rng, "clutter")
    pen.box(-half, 0, half, high, paint)
    pen.disc((0, high), (half, 0.09), shade(paint, 1.2))
    for low in (0.3, 0.62)[: int(rng.integers(0, 3))]:
        pen.box(-half, low * high, half, (low + 0.13) * high, vary(rng, WHITE))
    pen.bulge((0, high / 2), (half * 1.6, high * 2), float(rng.uniform(-1, 1)))


def container(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A corrugated box as large and bright as a van, without wheels."""
    half, high, paint = rng.uniform(1.2, 3.0), rng.uniform(1.6, 2.5), pick(rng, "car")
    lean = 0.7 * rng.choice((-1.0, 1.0))
    edge = half if lean > 0 else -half
    pen.box(-half, 0, half, high, paint)
    pen.poly([(edge, 0), (edge + lean, 0.2), (edge + lean, high + 0.06), (edge, high)], shade(paint, 0.62))
    pen.texture(tiles.ribs(), 60, (rng.uniform(0, 128), 0), 0.13)
    pen.box(-half, high - 0.1, half, high, shade(paint, 0.75))
    pen.box(-half, 0, half, 0.12, shade(paint, 0.6))


def pallets(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A stack of flat wooden pallets: the boards of a crate with air between."""
    half, wood = rng.uniform(0.5, 0.7), vary(rng, WOOD)
    for layer in range(int(rng.integers(2, 7))):
        low = layer * 0.17
        pen.box(-half, low, half, low + 0.11, shade(wood, 0.35))
        pen.box(-half, low + 0.11, half, low + 0.17, wood)
        for x in (-half + 0.08, 0.0, half - 0.08):
            pen.box(x - 0.08, low, x + 0.08, low + 0.11, shade(wood, 0.85))
    pen.texture(tiles.noise(), 40, (rng.uniform(0, 128), rng.uniform(0, 128)), 0.12)


def bollard(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A post in safety colours, which resembles a person in a vest or a distant cone."""
    half, high, paint = rng.uniform(0.07, 0.16), rng.uniform(0.8, 1.4), pick(rng, "jacket")
    pen.box(-half, 0, half, high, paint)
    pen.disc((0, high), (half, half), shade(paint, 1.1))
    pen.box(-half, high * 0.7, half, high * 0.82, vary(rng, WHITE))


def lamp_post(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """The pole of a sign without the sign."""
    high, metal = rng.uniform(3.0, 6.0), vary(rng, GREY)
    arm = rng.uniform(0.4, 1.0) * rng.choice((-1.0, 1.0))
    pen.line((0, 0), (0, high), 0.11, metal)
    pen.line((0, high), (arm, high + 0.15), 0.08, metal)
    pen.line((arm * 0.7, high + 0.12), (arm, high + 0.15), 0.16, DARK)


def heap(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A triangular heap of sand or rubble."""
    half, high = rng.uniform(0.7, 1.8), rng.uniform(0.4, 1.0)
    ridge = np.linspace(-1, 1, 13)
    outline = [(float(x) * half, max(0.0, (1 - abs(float(x)) ** 1.3) * high + rng.normal(0, 0.04))) for x in ridge]
    pen.poly(outline, vary(rng, SAND if rng.random() < 0.5 else GREY))
    pen.texture(tiles.noise(), 50, (rng.uniform(0, 128), rng.uniform(0, 128)), 0.16)


def tyre(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A tyre, which resembles a ball."""
    r = rng.uniform(0.3, 0.55)
    pen.disc((0, r), (r, r), vary(rng, RUBBER, 6))
    pen.disc((0, r), (r * 0.55, r * 0.55), pick(rng, "clutter"))
    pen.disc((0, r), (r * 0.2, r * 0.2), vary(rng, GREY))
    pen.bulge((0, r), (r * 1.4, r * 1.4), float(rng.uniform(-1, 1)))

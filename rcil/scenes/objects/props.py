"""Crates, barriers, cones, signs and balls; and clutter: background objects that resemble a class."""

from __future__ import annotations

import math

import numpy as np

from rcil.scenes.objects.materials import (
    DARK,
    GREY,
    RED,
    RUBBER,
    SAND,
    WHITE,
    WOOD,
    Colour,
    noise,
    pick,
    ribs,
    shade,
    vary,
)
from rcil.scenes.objects.pen import Pen


def crate(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """One or two stacked boxes with slats, seen from a little above; a brick-red one resembles a small wall."""
    low = 0.0
    for _ in range(int(rng.integers(1, 3))):
        wide, high = rng.uniform(0.8, 1.4), rng.uniform(0.6, 0.95)
        _box(pen, pick(rng, "crate"), low, wide, high, 0.3 * rng.choice((-1.0, 1.0)))
        low += high
    pen.texture(noise(), 40, (rng.uniform(0, 128), rng.uniform(0, 128)), 0.12)


def _box(pen: Pen, paint: Colour, low: float, wide: float, high: float, lean: float) -> None:
    half, lift, top = wide / 2, 0.14, low + high
    edge = math.copysign(half, lean)
    pen.poly([(edge, low), (edge + lean, low + lift), (edge + lean, top + lift), (edge, top)], shade(paint, 0.6))
    pen.poly([(-half, top), (half, top), (half + lean, top + lift), (-half + lean, top + lift)], shade(paint, 1.2))
    pen.box(-half, low, half, top, shade(paint, 0.5))
    slats = 4
    for slat in range(slats):
        bottom = low + high * (slat + 0.06) / slats
        pen.box(-half, bottom, half, bottom + high * 0.88 / slats, shade(paint, 0.95 + 0.08 * (slat % 2)))
    pen.line((-half + 0.08, low + 0.05), (half - 0.08, top - 0.05), 0.1, shade(paint, 0.82))
    for x in (-half + 0.06, half - 0.06):
        pen.line((x, low), (x, top), 0.12, shade(paint, 1.1))


def barrier(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """Striped boards on legs, or a moulded block in the colours of concrete and plastic."""
    half = rng.uniform(0.8, 1.3)
    paint = pick(rng, "safety")
    if rng.random() < 0.6:
        for x in (-half * 0.8, half * 0.8):
            pen.line((x, 0), (x, 1.0), 0.09, vary(rng, GREY))
            pen.line((x - 0.22, 0.03), (x + 0.22, 0.03), 0.08, DARK)
        for low in (0.32, 0.72)[: int(rng.integers(1, 3))]:
            _striped_board(pen, half, low, low + 0.28, paint)
        _striped_board(pen, half, 0.72, 1.0, paint)
    else:
        block = vary(rng, GREY, 8) if rng.random() < 0.5 else paint
        pen.poly([(-half, 0), (half, 0), (half, 0.2), (half - 0.06, 0.9), (-half + 0.06, 0.9), (-half, 0.2)], block)
        pen.poly([(-half, 0), (half, 0), (half, 0.22), (-half, 0.22)], shade(block, 0.75))
        for x in np.arange(-half + 0.3, half - 0.2, 0.6):
            pen.box(float(x), 0.4, float(x) + 0.28, 0.56, vary(rng, WHITE) if block != paint else shade(block, 0.7))
    pen.texture(noise(), 40, (rng.uniform(0, 128), rng.uniform(0, 128)), 0.09)


def _striped_board(pen: Pen, half: float, low: float, high: float, paint: Colour) -> None:
    """A board with slanted stripes."""
    pen.box(-half, low, half, high, WHITE)
    slant = high - low
    for x in np.arange(-half, half - slant, 0.5):
        left, right = float(x), min(float(x) + 0.25, half - slant)
        pen.poly([(left, low), (right, low), (right + slant, high), (left + slant, high)], paint)


def cone(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A traffic cone with reflecting bands; from far a triangle like a warning sign."""
    high, wide = rng.uniform(0.7, 1.15), rng.uniform(0.17, 0.26)
    paint, band = pick(rng, "safety"), vary(rng, WHITE)
    pen.poly([(-wide - 0.12, -0.05), (wide + 0.12, -0.05), (wide + 0.05, 0.1), (-wide - 0.05, 0.1)], shade(paint, 0.7))

    def ring(low: float, top: float, colour: Colour) -> None:
        a, b = wide * (1 - 0.86 * low), wide * (1 - 0.86 * top)
        pen.poly([(-a, low * high), (a, low * high), (b, top * high), (-b, top * high)], colour)

    ring(0.04, 1.0, paint)
    for low in (0.3, 0.6)[: int(rng.integers(0, 3))]:
        ring(low, low + 0.15, band)
    pen.bulge((0, 0.6 * high), (0.5, 1.4), float(rng.uniform(-1, 1)))


def sign(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A board on a post, or a warning triangle that stands on the ground."""
    rim = vary(rng, RED) if rng.random() < 0.7 else pick(rng, "safety")
    face, ink = pick(rng, "sign"), vary(rng, DARK)
    shape = rng.choice(("triangle", "disc", "diamond", "board", "floor"))
    if shape == "floor":
        _triangle(pen, 0.0, rng.uniform(0.4, 0.55), rim, face, ink)
        return
    centre, reach = rng.uniform(1.6, 2.3), rng.uniform(0.34, 0.48)
    pen.line((0, 0), (0, centre), 0.07, vary(rng, GREY))
    if shape == "triangle":
        _triangle(pen, centre - reach * 0.6, reach, rim, face, ink)
    elif shape == "disc":
        pen.disc((0, centre), (reach, reach), rim)
        pen.disc((0, centre), (reach * 0.72, reach * 0.72), face)
        pen.box(-reach * 0.45, centre - 0.06, reach * 0.45, centre + 0.06, ink)
    elif shape == "diamond":
        for size, colour in ((1.15, ink), (1.0, face)):
            r = reach * size
            pen.poly([(0, centre - r), (r, centre), (0, centre + r), (-r, centre)], colour)
        pen.line((0, centre - reach * 0.4), (0, centre + reach * 0.4), 0.1, ink)
    else:
        pen.box(-reach * 1.3, centre - reach * 0.7, reach * 1.3, centre + reach * 0.7, ink)
        pen.box(-reach * 1.2, centre - reach * 0.6, reach * 1.2, centre + reach * 0.6, face)
        for row in (-0.25, 0.2):
            pen.box(-reach, centre + reach * row, reach * 0.8, centre + reach * (row + 0.16), ink)


def _triangle(pen: Pen, low: float, reach: float, rim: Colour, face: Colour, ink: Colour) -> None:
    for size, colour in ((1.0, rim), (0.66, face)):
        r, bottom = reach * size, low + reach * 0.52 * (1 - size)
        pen.poly([(-r, bottom), (r, bottom), (0, bottom + 1.75 * r)], colour)
    pen.box(-0.05, low + 0.4 * reach, 0.05, low + 0.95 * reach, ink)


def ball(pen: Pen, rng: np.random.Generator, phase: float) -> None:
    """A large play ball, plain or with panels; a green one resembles a clipped bush."""
    r = rng.uniform(0.32, 0.55)
    first, second = pick(rng, "ball"), pick(rng, "ball")
    pen.disc((0, r), (r, r), first)
    kind = rng.integers(3)
    if kind == 0:
        pen.disc((0, r), (r * (0.35 + 0.3 * abs(math.sin(phase / 2))), r * 0.985), second)
    elif kind == 1:
        pen.disc((0, r), (r * 0.985, r * 0.32), second)
    pen.bulge((0, r), (r, r), float(rng.uniform(-1, 1)))


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
    pen.texture(ribs(), 60, (rng.uniform(0, 128), 0), 0.13)
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
    pen.texture(noise(), 40, (rng.uniform(0, 128), rng.uniform(0, 128)), 0.12)


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
    pen.texture(noise(), 50, (rng.uniform(0, 128), rng.uniform(0, 128)), 0.16)


def tyre(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A tyre, which resembles a ball."""
    r = rng.uniform(0.3, 0.55)
    pen.disc((0, r), (r, r), vary(rng, RUBBER, 6))
    pen.disc((0, r), (r * 0.55, r * 0.55), pick(rng, "clutter"))
    pen.disc((0, r), (r * 0.2, r * 0.2), vary(rng, GREY))
    pen.bulge((0, r), (r * 1.4, r * 1.4), float(rng.uniform(-1, 1)))

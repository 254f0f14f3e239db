"""People and vehicles."""

from __future__ import annotations

import math

import numpy as np

from rcil.scenes.objects.materials import (
    DARK,
    GLASS,
    GREY,
    LIME,
    RED,
    RUBBER,
    WHITE,
    YELLOW,
    Colour,
    noise,
    pick,
    shade,
    vary,
)
from rcil.scenes.objects.pen import Pen


def person(pen: Pen, rng: np.random.Generator, phase: float) -> None:
    """A standing or walking person, often in the orange and yellow of cones and signs."""
    tall = rng.uniform(0.88, 1.08)
    jacket, trousers, skin = pick(rng, "jacket"), pick(rng, "trousers"), pick(rng, "skin")
    step = 0.26 * math.sin(phase)
    for side in (-1, 1):
        pen.line((0.08 * side, 0.85 * tall), (0.09 * side + side * step, 0.03), 0.16, trousers)
        pen.line((0.09 * side + side * step - 0.05, 0.03), (0.09 * side + side * step + 0.12, 0.03), 0.09, DARK)
        pen.line((0.23 * side, 1.40 * tall), (0.29 * side - side * step, 0.82 * tall), 0.11, shade(jacket, 0.85))
    torso = [(-0.18, 0.80), (0.18, 0.80), (0.25, 1.40), (0.12, 1.48), (-0.12, 1.48), (-0.25, 1.40)]
    pen.poly([(x, y * tall) for x, y in torso], jacket)
    if rng.random() < 0.6:
        band = vary(rng, LIME if rng.random() < 0.5 else WHITE)
        pen.box(-0.20, 0.98 * tall, 0.20, 1.05 * tall, band)
        pen.box(-0.22, 1.18 * tall, 0.22, 1.25 * tall, band)
    pen.disc((0, 1.60 * tall), (0.11, 0.14), skin)
    if rng.random() < 0.6:
        pen.disc((0, 1.70 * tall), (0.145, 0.09), pick(rng, "jacket"))
    else:
        pen.disc((0, 1.69 * tall), (0.115, 0.08), vary(rng, DARK))
    pen.texture(noise(), 60, (rng.uniform(0, 128), 0), 0.10)


def vehicle_side(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A car or a van from the side."""
    _side_view(pen, pick(rng, "car"), rng.random() < 0.35, 1 if rng.random() < 0.5 else -1)
    _dirt(pen, rng)


def vehicle_end(pen: Pen, rng: np.random.Generator, _phase: float) -> None:
    """A car or a van from the front or from behind."""
    _end_view(pen, pick(rng, "car"), rng.random() < 0.35, rear=rng.random() < 0.5)
    _dirt(pen, rng)


def _dirt(pen: Pen, rng: np.random.Generator) -> None:
    pen.texture(noise(), 25, (rng.uniform(0, 128), rng.uniform(0, 128)), 0.06)


def _side_view(pen: Pen, paint: Colour, van: bool, facing: int) -> None:
    if van:
        body = [(-2.3, 0.4), (2.3, 0.4), (2.3, 0.95), (1.95, 1.1), (1.45, 1.95), (-2.25, 2.0)]
        panes = [[(1.05, 1.15), (1.75, 1.15), (1.35, 1.8), (1.05, 1.8)]]
    else:
        body = [
            (-2.1, 0.35), (2.1, 0.35), (2.12, 0.72), (1.3, 0.92), (0.7, 1.4), (-0.95, 1.44), (-1.6, 0.98), (-2.1, 0.9),
        ]  # fmt: skip
        panes = [
            [(0.05, 0.95), (1.1, 0.95), (0.62, 1.32), (0.05, 1.34)],
            [(-0.06, 0.95), (-1.35, 0.98), (-0.88, 1.35), (-0.06, 1.35)],
        ]
    turned = [(facing * x, y) for x, y in body]
    pen.poly(turned, paint)
    pen.poly([(facing * x, y) for x, y in [(-2.1, 0.35), (2.1, 0.35), (2.1, 0.55), (-2.1, 0.55)]], shade(paint, 0.72))
    for pane in panes:
        pen.poly([(facing * x, y) for x, y in pane], GLASS)
    pen.box(facing * 2.1 - 0.08, 0.6, facing * 2.1 + 0.02, 0.75, YELLOW)
    pen.box(-facing * 2.1 - 0.02, 0.65, -facing * 2.1 + 0.08, 0.85, RED)
    for x in (-1.35, 1.35):
        pen.disc((x, 0.33), (0.36, 0.36), RUBBER)
        pen.disc((x, 0.33), (0.19, 0.19), GREY)


def _end_view(pen: Pen, paint: Colour, van: bool, rear: bool) -> None:
    top = 2.0 if van else 1.45
    for x in (-0.72, 0.72):
        pen.box(x - 0.13, 0.0, x + 0.13, 0.45, RUBBER)
    pen.poly([(-0.9, 0.95), (0.9, 0.95), (0.72, top), (-0.72, top)], paint)
    pen.poly([(-0.74, 1.0), (0.74, 1.0), (0.62, top - 0.12), (-0.62, top - 0.12)], GLASS)
    pen.box(-0.92, 0.28, 0.92, 1.0, paint)
    pen.box(-0.92, 0.28, 0.92, 0.48, shade(paint, 0.65))
    pen.box(-0.26, 0.5, 0.26, 0.62, WHITE)
    for x in (-0.72, 0.72):
        pen.box(x - 0.16, 0.7, x + 0.16, 0.85, RED if rear else WHITE)

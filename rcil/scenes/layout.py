"""The layout of a scene in world metres, and the pinhole camera above flat ground that looks at it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rcil.scenes.objects.kinds import KINDS, kinds_of
from rcil.scenes.objects.materials import Floats

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


@dataclass(frozen=True)
class Road:
    """A straight band on the ground."""

    x: float
    z: float
    angle: float
    """Direction in radians: 0 away from the camera, pi / 2 across the view."""
    half_width: float

    def offset(self, x: float, z: float) -> float:
        """Distance from the centre line in metres."""
        return (x - self.x) * math.cos(self.angle) - (z - self.z) * math.sin(self.angle)


@dataclass(frozen=True)
class Thing:
    """One object."""

    kind: str
    x: float
    z: float
    style: int
    """Seed of the appearance, which does not depend on the position."""
    phase: float = 0.0
    lift: float = 0.0
    """Metres above the ground."""


@dataclass(frozen=True)
class Layout:
    """The objects and the geometry of a scene."""

    view: View
    road: Road | None
    grass: bool
    ground_style: int
    sun: tuple[float, float]
    """Offset of a shadow's tip, in metres right and away per metre of height."""
    things: tuple[Thing, ...]


def plan(rng: np.random.Generator, size: tuple[int, int], counts: dict[str, int], clutter: int) -> Layout:
    """Place the given number of objects per class, and some clutter."""
    view = View(size, float(rng.uniform(0.24, 0.40)), float(rng.uniform(2.4, 4.2)))
    road = _road(rng) if "road" in counts else None
    away = rng.uniform(0.5, 1.2) * rng.choice((-0.6, 1.0))
    sun = (float(rng.uniform(-1.4, 1.4)), float(away))
    wanted = [name for name, number in counts.items() if name != "road" for _ in range(number)]
    wanted += ["background"] * clutter
    taken: list[tuple[float, float]] = []
    things = tuple(_place(rng, view, road, taken, name) for name in wanted)
    grass = "vegetation" in counts and bool(rng.random() < 0.5)
    return Layout(view, road, grass, int(rng.integers(1 << 31)), sun, things)


def _road(rng: np.random.Generator) -> Road:
    """Draw a road away from the camera or across the view, through visible ground."""
    angle = rng.uniform(-0.5, 0.5) if rng.random() < 0.5 else rng.uniform(1.25, 1.9)
    return Road(float(rng.uniform(-2, 2)), float(rng.uniform(8, 13)), float(angle), float(rng.uniform(1.8, 3.2)))


def _place(
    rng: np.random.Generator, view: View, road: Road | None, taken: list[tuple[float, float]], class_name: str
) -> Thing:
    """The best of a few random positions: away from other objects, and on or off the road as the kind requires.

    Objects still hide each other; only complete burial becomes rare.
    """
    options = kinds_of(class_name)
    name = options[int(rng.integers(len(options)))]
    kind = KINDS[name]
    best = (-math.inf, 0.5, 0.5)
    for across, down in rng.random((6, 2)):
        spot = 0.05 + 0.9 * float(across), kind.rows[0] + (kind.rows[1] - kind.rows[0]) * float(down)
        score = min((math.hypot(spot[0] - x, spot[1] - y) for x, y in taken), default=1.0)
        if road is not None:
            on_road = abs(road.offset(*view.point_at(*spot))) < road.half_width + (
                0 if kind.on_road else kind.reach[0] / 2
            )
            score += 0.3 if on_road == kind.on_road else 0.0
        best = max(best, (score, *spot))
    taken.append(best[1:])
    x, z = view.point_at(*best[1:])
    return Thing(name, x, z, int(rng.integers(1 << 31)), float(rng.uniform(0, 2 * math.pi)))

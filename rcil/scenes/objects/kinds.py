"""The kinds of objects: class, drawing function, extent and position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rcil.scenes.objects import people_vehicles, props, stuff
from rcil.scenes.objects.pen import Pen
from rcil.scenes.occurrence import CLASSES

Draw = Callable[[Pen, np.random.Generator, float], None]
"""Draws one object; the float is the stride phase in radians."""


@dataclass(frozen=True)
class Kind:
    """One kind of object."""

    of: str
    """Class name, which several kinds may share."""
    draw: Draw
    reach: tuple[float, float]
    """Maximum extent of the drawing in metres, to both sides and upwards."""
    rows: tuple[float, float]
    """Range of its foot, as a share of the rows below the horizon: 0 is infinitely far, 1 the lower edge."""
    on_road: bool = False

    @property
    def class_id(self) -> int:
        """The mask value."""
        return CLASSES.index(self.of)


KINDS = {
    "building": Kind("building", stuff.building, (10.5, 12.0), (0.06, 0.19)),
    "tree": Kind("vegetation", stuff.tree, (4.5, 9.0), (0.10, 0.34)),
    "bush": Kind("vegetation", stuff.bush, (1.6, 2.3), (0.20, 0.85)),
    "hedge": Kind("vegetation", stuff.hedge, (4.3, 2.1), (0.12, 0.40)),
    "person": Kind("person", people_vehicles.person, (0.8, 2.0), (0.25, 0.92), True),
    "vehicle_side": Kind("vehicle", people_vehicles.vehicle_side, (2.5, 2.2), (0.18, 0.62), True),
    "vehicle_end": Kind("vehicle", people_vehicles.vehicle_end, (1.2, 2.2), (0.18, 0.62), True),
    "crate": Kind("crate", props.crate, (1.2, 2.3), (0.28, 0.92)),
    "barrier": Kind("barrier", props.barrier, (1.5, 1.2), (0.25, 0.85), True),
    "cone": Kind("cone", props.cone, (0.5, 1.3), (0.35, 0.95), True),
    "sign": Kind("sign", props.sign, (0.8, 3.1), (0.25, 0.90)),
    "ball": Kind("ball", props.ball, (0.7, 1.2), (0.35, 0.95)),
    "drum": Kind("background", props.drum, (0.6, 1.3), (0.30, 0.90)),
    "container": Kind("background", props.container, (4.0, 2.8), (0.10, 0.35)),
    "pallets": Kind("background", props.pallets, (0.9, 1.3), (0.30, 0.90)),
    "bollard": Kind("background", props.bollard, (0.4, 1.7), (0.30, 0.90)),
    "lamp_post": Kind("background", props.lamp_post, (1.3, 6.6), (0.10, 0.45)),
    "heap": Kind("background", props.heap, (2.0, 1.4), (0.20, 0.70)),
    "tyre": Kind("background", props.tyre, (0.7, 1.3), (0.35, 0.90)),
}


def kinds_of(class_name: str) -> tuple[str, ...]:
    """Names of the kinds of a class."""
    return tuple(name for name, kind in KINDS.items() if kind.of == class_name)

"""Parts of the picture, as polygons in shares of its width and height, so that they hold at every resolution."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import ConfigError
from rcil.core.images import Image
from rcil_serve.runtime.backends import Mask

PICTURE = "the picture"
"""Name of the zone that is the whole picture."""
OUTLINE = (255, 255, 255)
HINT = 'Write corners as shares of width and height: "dock=0.1,0.5 0.6,0.5 0.6,1 0.1,1".'


class _Area(NamedTuple):
    """The pixels of a zone in pictures of one size."""

    rows: slice
    columns: slice
    inside: NDArray[np.uint8]
    """255 inside the polygon, else 0, [rows, columns]."""
    pixels: int


@dataclass(frozen=True)
class Zone:
    """A named polygon."""

    name: str
    corners: tuple[tuple[float, float], ...]
    """x and y of every corner, from 0 to 1."""

    def share(self, mask: Mask, row: int) -> float:
        """Share of the zone that a class row covers in a mask [H, W]."""
        area = _area(self, mask.shape[0], mask.shape[1])
        covered = (mask[area.rows, area.columns] == row).astype(np.uint8)
        return cv2.countNonZero(cv2.bitwise_and(covered, area.inside)) / area.pixels

    def draw(self, image: Image, colour: tuple[int, int, int] = OUTLINE) -> None:
        """Draw the outline and the name into an RGB image [H, W, 3], in place."""
        points = _points(self, image.shape[0], image.shape[1])
        scale = max(0.45, image.shape[1] / 1200)
        thick = max(1, round(2 * scale))
        cv2.polylines(image, [points], isClosed=True, color=(0, 0, 0), thickness=thick + 2, lineType=cv2.LINE_AA)
        cv2.polylines(image, [points], isClosed=True, color=colour, thickness=thick, lineType=cv2.LINE_AA)
        height = cv2.getTextSize(self.name, cv2.FONT_HERSHEY_SIMPLEX, scale, thick)[0][1]
        corners = points.reshape(-1, 2)
        x, y = (int(value) for value in corners[corners.sum(axis=1).argmin()])
        at = (x + 6 * thick, y + height + 5 * thick)
        cv2.putText(image, self.name, at, cv2.FONT_HERSHEY_SIMPLEX, scale, (0, 0, 0), thick + 3, cv2.LINE_AA)
        cv2.putText(image, self.name, at, cv2.FONT_HERSHEY_SIMPLEX, scale, colour, thick, cv2.LINE_AA)


WHOLE = Zone(PICTURE, ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)))


def parse_zone(text: str) -> Zone:
    """Parse `dock=0.1,0.5 0.6,0.5 0.6,1 0.1,1`."""
    name, equals, corners = text.partition("=")
    name = " ".join(name.split())
    pairs = re.findall(r"([^\s,;]+)\s*,\s*([^\s,;]+)", corners)
    try:
        points = tuple((float(x), float(y)) for x, y in pairs)
    except ValueError as error:
        raise ConfigError(f"the zone '{text}' has a corner that is not two numbers", HINT) from error
    if not name or not equals or len(points) < 3 or re.sub(r"([^\s,;]+)\s*,\s*([^\s,;]+)", "", corners).strip(" ;"):
        raise ConfigError(f"the zone '{text}' is not a name with three corners or more", HINT)
    if name in (PICTURE, PICTURE.removeprefix("the ")):
        raise ConfigError(f"'{name}' is the name of the whole picture", "Choose another name for the zone.")
    if not all(0 <= value <= 1 for point in points for value in point):
        raise ConfigError(f"the zone '{name}' reaches beyond the picture", HINT)
    if cv2.contourArea(np.array(points, np.float32)) < 1e-5:
        raise ConfigError(f"the zone '{name}' has no area", HINT)
    return Zone(name, points)


def parse_zones(texts: Sequence[str]) -> tuple[Zone, ...]:
    """Parse several zones; no name may come twice."""
    zones = tuple(parse_zone(text) for text in texts)
    names = [zone.name for zone in zones]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"there are two zones '{name}'", "Give each zone a name of its own.")
    return zones


def _points(zone: Zone, height: int, width: int) -> NDArray[np.int32]:
    """The corners in pixels, [corners, 1, 2]."""
    scaled = np.array(zone.corners) * (max(1, width - 1), max(1, height - 1))
    return np.rint(scaled).astype(np.int32).reshape(-1, 1, 2)


@lru_cache(maxsize=64)
def _area(zone: Zone, height: int, width: int) -> _Area:
    inside = np.zeros((height, width), np.uint8)
    cv2.fillPoly(inside, [_points(zone, height, width)], 255)
    left, top, across, down = cv2.boundingRect(inside)
    rows, columns = slice(top, top + down), slice(left, left + across)
    cut = np.ascontiguousarray(inside[rows, columns])
    return _Area(rows, columns, cut, cv2.countNonZero(cut))

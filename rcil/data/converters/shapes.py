"""Points of boxes and ellipses, and pixels of run lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rcil.core.reading import DataError

_STEPS = 90
"""Vertices of the polygon that stands for an ellipse."""


def rotated_box(
    left: float, top: float, right: float, bottom: float, angle: float, pivot: tuple[float, float] | None = None
) -> npt.NDArray[np.float64]:
    """Corners of a box [4, 2], turned clockwise by degrees about its centre or another point."""
    corners = np.array([(left, top), (right, top), (right, bottom), (left, bottom)], np.float64)
    if not angle:
        return corners
    centre = np.array(pivot or ((left + right) / 2, (top + bottom) / 2))
    cosine, sine = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    return np.asarray((corners - centre) @ np.array([[cosine, sine], [-sine, cosine]]) + centre, np.float64)


def expand_runs(counts: Sequence[int], size: tuple[int, int], source: str, hint: str) -> npt.NDArray[np.bool_]:
    """Pixels [height * width] of alternating run lengths, which start with pixels outside the region."""
    if sum(counts) != size[0] * size[1] or min(counts, default=0) < 0:
        raise DataError(f"{source}: the run lengths do not cover {size[1]} x {size[0]} pixels", hint)
    return np.repeat(np.arange(len(counts)) % 2 == 1, counts)


def ellipse(centre: tuple[float, float], radii: tuple[float, float], angle: float) -> npt.NDArray[np.float64]:
    """Points [N, 2] of an ellipse, turned clockwise by degrees about its centre."""
    turn, theta = np.linspace(0, 2 * np.pi, _STEPS, endpoint=False)[:, None], np.deg2rad(angle)
    x_axis = np.array([np.cos(theta), np.sin(theta)]) * radii[0]
    y_axis = np.array([-np.sin(theta), np.cos(theta)]) * radii[1]
    return np.asarray(np.array(centre) + np.cos(turn) * x_axis + np.sin(turn) * y_axis, np.float64)

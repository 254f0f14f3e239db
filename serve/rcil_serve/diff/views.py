"""Two views of a comparison as a video, and the sink that counts and draws every frame."""

from __future__ import annotations

import time
from typing import Literal, Protocol, get_args

import cv2
import numpy as np

from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.images import Image
from rcil_serve.diff.panels import CAPTION, GAP, Panels, beside, caption, key, scaled
from rcil_serve.diff.tally import Shares, Tally
from rcil_serve.diff.transitions import FORGOTTEN, SAME, CommonClasses
from rcil_serve.runtime.backends import Mask
from rcil_serve.stream.frames import Frame, Sound, Stages
from rcil_serve.stream.outputs.movie import Movie
from rcil_serve.stream.pipeline import SegmentedFrame

ViewName = Literal["side", "wipe", "none"]
VIEWS: tuple[ViewName, ...] = get_args(ViewName)
MAX_WIDTH = 1920
MIN_WIDTH = 320
"""Panels of smaller sources are enlarged to this width so that captions fit."""
SWEEP_SECONDS = 4.0
"""Time that the wipe line takes from one edge to the other."""


class View(Protocol):
    """Draws frames of one size."""

    size: tuple[int, int]
    """Height and width of the drawn frames; both are even."""

    def draw(self, frame: Frame, codes: Mask, shares: Shares) -> Image:
        """Draw a frame from its codes [H, W] and the shares of its pixels by kind, as RGB."""


class SideView:
    """Shows old, new and changes side by side.

    Args:
        source: Height and width of the source's frames.
        panels: Draws the masks and changes.
        classes: Classes of both models, for the legend.
        titles: Captions of the old and the new model.
    """

    def __init__(
        self, source: tuple[int, int], panels: Panels, classes: CommonClasses, titles: tuple[str, str]
    ) -> None:
        self._panels = panels
        self._panel = fitting(source, MIN_WIDTH, (MAX_WIDTH - 2 * GAP) // 3)
        self._titles = [caption(title, self._panel[1]) for title in titles]
        width = 3 * self._panel[1] + 2 * GAP
        self._key = key(classes, width)
        self.size = CAPTION + self._panel[0] + self._key.shape[0], width

    def draw(self, frame: Frame, codes: Mask, shares: Shares) -> Image:
        """See `View.draw`."""
        head = beside([*self._titles, caption(_changed(shares), self._panel[1])])
        return np.vstack([head, self._panels.three(frame.pixels, codes, self._panel), self._key])


class WipeView:
    """Shows one image with a moving line: old model on the left, new model on the right, changes outlined.

    Args:
        source: Height and width of the source's frames.
        panels: Draws the masks and changes.
        classes: Classes of both models, for the legend.
        titles: Captions of the old and the new model.
    """

    def __init__(
        self, source: tuple[int, int], panels: Panels, classes: CommonClasses, titles: tuple[str, str]
    ) -> None:
        self._panels = panels
        self._panel = fitting(source, 2 * MIN_WIDTH, MAX_WIDTH)
        self._titles = np.hstack([caption(title, self._panel[1] // 2) for title in titles])
        self._key = key(classes, self._panel[1])
        self.size = 2 * CAPTION + self._panel[0] + self._key.shape[0], self._panel[1]

    def draw(self, frame: Frame, codes: Mask, shares: Shares) -> Image:
        """See `View.draw`."""
        image, fewer = scaled(frame.pixels, codes, self._panel)
        cut = line_at(frame.time, self._panel[1])
        picture = np.hstack(
            [self._panels.old(image[:, :cut], fewer[:, :cut]), self._panels.new(image[:, cut:], fewer[:, cut:])]
        )
        picture = self._panels.outlined(picture, fewer)
        thickness = max(2, self._panel[1] // 480)
        cv2.line(picture, (cut, 0), (cut, self._panel[0]), (255, 255, 255), thickness)
        return np.vstack([self._titles, picture, caption(_changed(shares), self._panel[1]), self._key])


class DiffSink:
    """Counts every frame, and optionally draws it into a video with the timestamps and sound of the source.

    Args:
        tally: Counts the transitions.
        stages: Records how long painting and encoding take.
        view: Draws the frames; None if there is no video.
        movie: The video, of the size of the view; None if there is no video.
    """

    def __init__(self, tally: Tally, stages: Stages, view: View | None, movie: Movie | None) -> None:
        self._tally, self._stages, self._view, self._movie = tally, stages, view, movie

    def write(self, seen: SegmentedFrame) -> None:
        """See `Sink.write`. The mask holds codes."""
        shares = self._tally.add(seen.frame, seen.found.mask)
        if self._view is not None and self._movie is not None:
            start = time.perf_counter()
            drawn = self._view.draw(seen.frame, seen.found.mask, shares)
            painted = time.perf_counter()
            self._movie.write(drawn, seen.frame)
            self._stages.paint.add(painted - start)
            self._stages.encode.add(time.perf_counter() - painted)

    def write_sound(self, sound: Sound) -> None:
        """See `Sink.write_sound`."""
        if self._movie is not None:
            self._movie.write_sound(sound)

    def finish(self) -> None:
        """Complete the video and rename it."""
        if self._movie is not None:
            self._movie.finish()

    def abandon(self) -> None:
        """Close the video after an error; the frames written so far can be played."""
        if self._movie is not None:
            self._movie.abandon()


def open_view(
    name: str, source: tuple[int, int], panels: Panels, classes: CommonClasses, titles: tuple[str, str]
) -> View | None:
    """Create the view with this name; None for `none`."""
    if name not in VIEWS:
        raise unknown_view(name)
    kinds: dict[str, type[SideView | WipeView]] = {"side": SideView, "wipe": WipeView}
    return kinds[name](source, panels, classes, titles) if name in kinds else None


def unknown_view(name: str) -> ConfigError:
    """The error for a name that is not in `VIEWS`."""
    return ConfigError(f"unknown view '{name}'", did_you_mean(name, VIEWS))


def line_at(time: float, width: int) -> int:
    """Column of the wipe line at a time in seconds; at least one pixel remains on either side."""
    phase = time / SWEEP_SECONDS % 2
    return min(width - 1, max(1, round(width * (phase if phase < 1 else 2 - phase))))


def fitting(source: tuple[int, int], min_width: int, max_width: int) -> tuple[int, int]:
    """Height and width with the aspect ratio of the source and a width within these bounds, both even."""
    height, width = source
    shown = min(max(width, min_width), max_width)
    return max(2, 2 * round(height * shown / width / 2)), shown - shown % 2


def _changed(shares: Shares) -> str:
    return f"changes {100 * (1 - shares[SAME]):.1f} %, forgotten {100 * shares[FORGOTTEN]:.1f} %"

"""Agreement, flicker and drift over a sliding window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image
from rcil.model.metadata import ClassInfo
from rcil_serve.runtime.backends.protocol import Mask
from rcil_serve.runtime.painter import BACKGROUND
from rcil_serve.watch.measures.classes import Matching, match
from rcil_serve.watch.measures.overlap import Overlap, Pixels, overlap_of, pair_counts
from rcil_serve.watch.measures.shares import Reference


class Measure(StrEnum):
    """What can raise an alarm."""

    AGREEMENT = "agreement"
    """IoU of a class between the previous step and the current one."""
    DRIFT = "drift"
    """Relative change of a class's share of the picture against the reference."""
    FLICKER = "flicker"
    """Share of a class's pixels that come and go where the picture stands still."""
    SILENCE = "silence"
    """Seconds without a frame."""


@dataclass(frozen=True)
class Reading:
    """One measure of one class."""

    measure: Measure
    name: str
    """Of the class; empty where the measure is about the source."""
    value: float | None
    """None where there is nothing to measure."""
    firm: bool = True
    """Whether there is enough to judge by; other values are shown and raise no alarm."""


BINS = 60


class Window:
    """Adds up what came within the last `seconds`, to a sixtieth of them.

    Args:
        seconds: Length of the window.
        width: How many numbers come at a time.
    """

    def __init__(self, seconds: float, width: int) -> None:
        self._length = seconds / BINS
        self._sums = np.zeros((BINS, width))
        self._places = np.full(BINS, -1, np.int64)
        self._first = self._newest = -1

    def add(self, time: float, values: NDArray[np.float64]) -> None:
        """Numbers [width] of a time in seconds, in the order of time."""
        place = max(int(time / self._length), self._newest)
        slot = place % BINS
        if self._places[slot] != place:
            self._places[slot], self._sums[slot] = place, 0
        self._sums[slot] += values
        self._newest = place
        self._first = place if self._first < 0 else self._first

    def total(self) -> NDArray[np.float64]:
        """Sums [width] over the window that ends with the newest numbers."""
        inside = (self._places >= 0) & (self._places > self._newest - BINS)
        total: NDArray[np.float64] = self._sums[inside].sum(axis=0)
        return total

    @property
    def is_full(self) -> bool:
        """Whether as many seconds as the window is long have gone by."""
        return self._newest - self._first >= BINS - 1


BLUR = 5
"""Side of the square over which grey values are averaged, so that the noise of a camera does not count as motion."""
REACH = 9
"""Side of the square around a moved pixel that counts as moved too: a model looks around a pixel to name it."""


class Stillness:
    """Compares pictures with the ones before them.

    Args:
        levels: Of 255 grey levels, by how many a pixel may change and still count as still.
    """

    def __init__(self, levels: float) -> None:
        self._levels = levels
        self._before: Image | None = None

    def since_last(self, pixels: Image) -> Image | None:
        """255 where the picture [H, W, 3] did not move since the last call, else 0, [H, W]; None for the first one."""
        grey = np.asarray(cv2.blur(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), (BLUR, BLUR)), np.uint8)
        before, self._before = self._before, grey
        if before is None or before.shape != grey.shape:
            return None
        moved = (cv2.absdiff(grey, before) > self._levels).astype(np.uint8)
        reached = cv2.dilate(moved, np.ones((REACH, REACH), np.uint8))
        return np.asarray(255 * (1 - reached), np.uint8)


FLICKER_SIGHTS = 25
"""Frames that must show a class before its flicker is judged, so that coming into sight once is no flicker."""


class OverlapWindow:
    """Overlap of classes, pixels added up over a window.

    Args:
        matching: Of the two kinds of masks that are compared.
        seconds: Length of the window.
        min_share: Share of the picture from which on a comparison counts as a sight of a class.
        sights: From how many sights within the window on a class is firm.
    """

    def __init__(self, matching: Matching, seconds: float, min_share: float, sights: int = 1) -> None:
        self._matching, self._min_share, self._sights = matching, min_share, sights
        self._window = Window(seconds, 3 * len(matching.names))

    def add(self, time: float, pairs: Pixels, picture: int) -> None:
        """One comparison.

        Args:
            time: Seconds.
            pairs: From `pair_counts`.
            picture: Pixels of the whole picture.
        """
        overlap = overlap_of(pairs, self._matching)
        seen = overlap.either >= max(1.0, self._min_share * picture)
        self._window.add(time, np.concatenate([overlap.both, overlap.either, seen]).astype(np.float64))

    def values(self) -> list[tuple[str, float | None, bool]]:
        """Name, IoU and firmness of every class."""
        both, either, seen = self._window.total().astype(np.int64).reshape(3, -1)
        return list(
            zip(self._matching.names, Overlap(both, either).iou(), (seen >= self._sights).tolist(), strict=True)
        )


class AgreementMeter:
    """IoU of every old class between the previous step and the current one; see `OverlapWindow`."""

    def __init__(self, matching: Matching, seconds: float, min_share: float) -> None:
        self._matching = matching
        self._window = OverlapWindow(matching, seconds, min_share)

    def add(self, time: float, previous: Mask, current: Mask) -> None:
        """Masks [H, W] of both models of one picture."""
        self._window.add(time, pair_counts(previous, current, self._matching.counts), current.size)

    def readings(self) -> list[Reading]:
        """One of every old class."""
        return [Reading(Measure.AGREEMENT, name, iou, firm) for name, iou, firm in self._window.values()]


class FlickerMeter:
    """How much of a class comes and goes from frame to frame where nothing moves: 1 - IoU of neighbouring masks.

    Args:
        classes: Of the current model.
        seconds: Length of the window.
        min_share: See `OverlapWindow`.
        still: Grey levels up to which a pixel counts as still.
    """

    def __init__(self, classes: Sequence[ClassInfo], seconds: float, min_share: float, still: float) -> None:
        self._matching = match(classes, classes)
        self._window = OverlapWindow(self._matching, seconds, min_share, FLICKER_SIGHTS)
        self._stillness = Stillness(still)
        self._before: Mask | None = None

    def add(self, time: float, pixels: Image, mask: Mask) -> None:
        """The next picture [H, W, 3] and its mask [H, W]."""
        still = self._stillness.since_last(pixels)
        if still is not None and self._before is not None:
            self._window.add(time, pair_counts(self._before, mask, self._matching.counts, still), mask.size)
        self._before = mask

    def readings(self) -> list[Reading]:
        """One of every class of the current model."""
        return [
            Reading(Measure.FLICKER, name, None if iou is None else 1 - iou, firm)
            for name, iou, firm in self._window.values()
        ]


class DriftMeter:
    """Relative change of a class's mean share against a reference: -1 it is gone, 0 as before, 1 twice as much.

    Args:
        classes: Of the current model; the background is left out.
        reference: The shares to compare with.
        seconds: Length of the window; nothing is firm before it is full.
        min_share: A class is firm if the reference has it on this share of the picture.
    """

    def __init__(self, classes: Sequence[ClassInfo], reference: Reference, seconds: float, min_share: float) -> None:
        self._names = [info.name for info in classes]
        self._reference, self._min_share = reference, min_share
        self._window = Window(seconds, len(self._names) + 1)

    def add(self, time: float, shares: NDArray[np.float64]) -> None:
        """Shares of all classes in the next picture [classes]."""
        self._reference.add(time, self._names, shares)
        self._window.add(time, np.append(shares, 1))

    def readings(self) -> list[Reading]:
        """One of every class but the background."""
        *sums, frames = self._window.total()
        return [
            self._reading(name, share / frames if frames else 0.0)
            for row, (name, share) in enumerate(zip(self._names, sums, strict=True))
            if row != BACKGROUND
        ]

    def _reading(self, name: str, share: float) -> Reading:
        known = (self._reference.shares or {}).get(name)
        if not known:
            return Reading(Measure.DRIFT, name, None, firm=False)
        firm = known >= self._min_share and self._window.is_full
        return Reading(Measure.DRIFT, name, float(share / known - 1), firm)

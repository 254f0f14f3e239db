"""Meters of agreement, flicker and drift over a sliding window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image
from rcil.model.class_match import ClassMatch, match_classes
from rcil.model.metadata import ClassInfo
from rcil_serve.runtime.backends import Mask
from rcil_serve.runtime.overlap import Overlap, Pixels, overlap_of, pair_counts
from rcil_serve.runtime.painter import BACKGROUND
from rcil_serve.watch.shares import Reference

BINS = 60
"""Number of bins of a sliding window."""
BLUR = 5
"""Side of the box blur that keeps camera noise from counting as motion."""
REACH = 9
"""Side of the square around a moved pixel that also counts as moved, because a model uses its surroundings."""
FLICKER_SIGHTS = 25
"""Frames that must show a class before its flicker is judged, so that a single appearance does not count."""


class Measure(StrEnum):
    """A quantity that can raise an alarm."""

    AGREEMENT = "agreement"
    """IoU of a class between the previous step and the current one."""
    DRIFT = "drift"
    """Relative change of a class's share of the image, compared with the reference."""
    FLICKER = "flicker"
    """Share of a class's pixels that flicker where the image is still."""
    SILENCE = "silence"
    """Seconds without a frame."""
    COVERAGE = "coverage"
    """Share of a zone that a class covers, as a rule asks for it."""


@dataclass(frozen=True)
class Reading:
    """Value of one measure for one class."""

    measure: Measure
    name: str
    """Name of the class, or the text of the rule; empty if the measure concerns the source."""
    value: float | None
    """None if there is nothing to measure."""
    firm: bool = True
    """Whether there is enough data to judge; other readings are reported but raise no alarm."""


class Window:
    """Sums values over the last `seconds` in constant memory, with a resolution of one sixtieth.

    Args:
        seconds: Length of the window.
        width: Number of values per addition.
    """

    def __init__(self, seconds: float, width: int) -> None:
        self._length = seconds / BINS
        self._sums = np.zeros((BINS, width))
        self._bins = np.full(BINS, -1, np.int64)
        self._first = self._newest = -1

    def add(self, time: float, values: NDArray[np.float64]) -> None:
        """Add values [width] at a time in seconds; times must not decrease."""
        index = max(int(time / self._length), self._newest)
        slot = index % BINS
        if self._bins[slot] != index:
            self._bins[slot], self._sums[slot] = index, 0
        self._sums[slot] += values
        self._newest = index
        self._first = index if self._first < 0 else self._first

    def total(self) -> NDArray[np.float64]:
        """Sums [width] over the window that ends with the newest values."""
        inside = (self._bins >= 0) & (self._bins > self._newest - BINS)
        total: NDArray[np.float64] = self._sums[inside].sum(axis=0)
        return total

    @property
    def is_full(self) -> bool:
        """Whether the window covers its full length."""
        return self._newest - self._first >= BINS - 1


class Stillness:
    """Finds the still parts of consecutive images.

    Args:
        levels: Grey levels, of 255, by which a still pixel may change.
    """

    def __init__(self, levels: float) -> None:
        self._levels = levels
        self._before: Image | None = None

    def since_last(self, pixels: Image) -> Image | None:
        """255 where the image [H, W, 3] is still since the last call, else 0, [H, W]; None for the first image."""
        grey = np.asarray(cv2.blur(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), (BLUR, BLUR)), np.uint8)
        before, self._before = self._before, grey
        if before is None or before.shape != grey.shape:
            return None
        moved = (cv2.absdiff(grey, before) > self._levels).astype(np.uint8)
        reached = cv2.dilate(moved, np.ones((REACH, REACH), np.uint8))
        return np.asarray(255 * (1 - reached), np.uint8)


class OverlapWindow:
    """Overlap of classes, summed over a window.

    Args:
        matching: Classes of the two masks that are compared.
        seconds: Length of the window.
        min_share: Minimum share of the image for a class to count as seen.
        sights: Number of times a class must be seen within the window for a firm reading.
    """

    def __init__(self, matching: ClassMatch, seconds: float, min_share: float, sights: int = 1) -> None:
        self._matching, self._min_share, self._sights = matching, min_share, sights
        self._window = Window(seconds, 3 * len(matching.names))

    def add(self, time: float, pairs: Pixels, picture: int) -> None:
        """Add one comparison.

        Args:
            time: Time in seconds.
            pairs: Result of `pair_counts`.
            picture: Number of pixels of the image.
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

    def __init__(self, matching: ClassMatch, seconds: float, min_share: float) -> None:
        self._matching = matching
        self._window = OverlapWindow(matching, seconds, min_share)

    def add(self, time: float, previous: Mask, current: Mask) -> None:
        """Add the masks [H, W] of both models for one image."""
        self._window.add(time, pair_counts(previous, current, self._matching.counts), current.size)

    def readings(self) -> list[Reading]:
        """One reading per old class."""
        return [Reading(Measure.AGREEMENT, name, iou, firm) for name, iou, firm in self._window.values()]


class FlickerMeter:
    """Flicker of each class in still regions: 1 - IoU of consecutive masks.

    Args:
        classes: Classes of the current model.
        seconds: Length of the window.
        min_share: See `OverlapWindow`.
        still: Grey levels by which a still pixel may change.
    """

    def __init__(self, classes: Sequence[ClassInfo], seconds: float, min_share: float, still: float) -> None:
        self._matching = match_classes(classes, classes)
        self._window = OverlapWindow(self._matching, seconds, min_share, FLICKER_SIGHTS)
        self._stillness = Stillness(still)
        self._before: Mask | None = None

    def add(self, time: float, pixels: Image, mask: Mask) -> None:
        """Add the next image [H, W, 3] and its mask [H, W]."""
        still = self._stillness.since_last(pixels)
        if still is not None and self._before is not None:
            self._window.add(time, pair_counts(self._before, mask, self._matching.counts, still), mask.size)
        self._before = mask

    def readings(self) -> list[Reading]:
        """One reading per class of the current model."""
        return [
            Reading(Measure.FLICKER, name, None if iou is None else 1 - iou, firm)
            for name, iou, firm in self._window.values()
        ]


class DriftMeter:
    """Relative change of a class's mean share: -1 if it disappeared, 0 if unchanged, 1 if it doubled.

    Args:
        classes: Classes of the current model; the background is ignored.
        reference: Class shares to compare with.
        seconds: Length of the window; readings are firm once it is full.
        min_share: Minimum share of a class in the reference for a firm reading.
    """

    def __init__(self, classes: Sequence[ClassInfo], reference: Reference, seconds: float, min_share: float) -> None:
        self._names = [info.name for info in classes]
        self._reference, self._min_share = reference, min_share
        self._window = Window(seconds, len(self._names) + 1)

    def add(self, time: float, shares: NDArray[np.float64]) -> None:
        """Add the shares of all classes in the next image [classes]."""
        self._reference.add(time, self._names, shares)
        self._window.add(time, np.append(shares, 1))

    def readings(self) -> list[Reading]:
        """One reading per class except the background."""
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

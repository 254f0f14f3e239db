"""The items that travel through the pipeline, and what is counted and timed along the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from rcil.core.errors import RcilError
from rcil.core.images import Image


class SourceError(RcilError):
    """A source that cannot be opened, is damaged or went away."""

    exit_code = 6


class OutputError(RcilError):
    """A result that cannot be written."""

    exit_code = 1


@dataclass(frozen=True)
class Frame:
    """One picture of a source, upright."""

    index: int
    """Its place among the frames that the source delivers."""
    pts: int
    """Presentation time in units of the source's time base."""
    time: float
    """The same in seconds."""
    pixels: Image
    """RGB [H, W, 3]."""
    ready: float
    """`time.perf_counter` when it was decoded."""
    name: str = ""
    """Of its file, where every frame is a file."""


@dataclass(frozen=True)
class Sound:
    """A packet of the source's audio."""

    packet: Any


Item = Frame | Sound


@dataclass(frozen=True)
class SourceInfo:
    """What is known before the first frame."""

    name: str
    """For messages and receipts, without credentials."""
    size: tuple[int, int]
    """Height and width, upright."""
    rate: Fraction
    """Frames a second, on average or as announced."""
    time_base: Fraction
    """Seconds of one unit of `Frame.pts`."""
    frames: int | None = None
    """How many will come; None where nobody knows."""
    live: bool = False
    """Whether frames come when they come: a slow consumer loses frames instead of falling behind."""
    sound: Any = None
    """PyAV's audio stream, to copy its parameters."""


@dataclass
class Counts:
    """Every frame that came is counted in one of the first three."""

    read: int = 0
    """Decoded and wanted."""
    corrupt: int = 0
    """Damaged, so that there is no picture."""
    left_out: int = 0
    """Decoded but not wanted: before the start, after the end, or between strides."""
    dropped: int = 0
    """Of those that were read: overtaken by newer frames of a live source."""
    inferred: int = 0
    written: int = 0
    reconnects: int = 0
    gaps: list[tuple[float, float]] = field(default_factory=list)
    """Start and length in seconds of the times without frames, of a live source; the latest ones."""
    gap_seconds: float = 0.0
    """Of all of them together; `reconnects` is how many there were."""
    problems: list[str] = field(default_factory=list)
    """What the user should know about the source, in words."""
    gone: str = ""
    """Why a live source ended for good; empty while it has not."""


MIN_SECONDS, MAX_SECONDS, STEP = 1e-6, 1e4, 1.01
"""Seconds; bins are one percent wide."""


class Latencies:
    """Percentiles to one percent of their value, of any number of times."""

    def __init__(self) -> None:
        self._counts = np.zeros(int(math.log(MAX_SECONDS / MIN_SECONDS) / math.log(STEP)) + 2, np.int64)
        self.count = 0
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Note one time."""
        place = int(math.log(max(seconds, MIN_SECONDS) / MIN_SECONDS) / math.log(STEP))
        self._counts[min(place, len(self._counts) - 1)] += 1
        self.count += 1
        self.total += seconds

    def percentile(self, percent: float) -> float:
        """The time in seconds that so many percent stay below; 0 where nothing was noted."""
        if not self.count:
            return 0.0
        place = int(np.searchsorted(self._counts.cumsum(), percent / 100 * self.count))
        return float(MIN_SECONDS * STEP ** (place + 0.5))

    def as_document(self) -> dict[str, float]:
        """JSON-ready, in milliseconds."""
        document = {f"p{percent}_ms": round(1000 * self.percentile(percent), 3) for percent in (50, 95, 99)}
        return {"count": self.count, **document, "mean_ms": round(1000 * self.total / max(1, self.count), 3)}


@dataclass
class Stages:
    """Of a pipeline."""

    decode: Latencies = field(default_factory=Latencies)
    infer: Latencies = field(default_factory=Latencies)
    paint: Latencies = field(default_factory=Latencies)
    encode: Latencies = field(default_factory=Latencies)
    write: Latencies = field(default_factory=Latencies)
    """Everything after inference: painting, encoding, masks, records."""
    lag: Latencies = field(default_factory=Latencies)
    """From the decoded frame to its last output."""

    def as_document(self) -> dict[str, dict[str, float]]:
        """JSON-ready."""
        return {name: getattr(self, name).as_document() for name in self.__dataclass_fields__}

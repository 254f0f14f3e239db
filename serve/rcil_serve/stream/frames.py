"""The items that travel through the pipeline, and what is counted and timed along the way."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from rcil.core.errors import ConfigError, RcilError
from rcil.core.images import Image
from rcil.core.log_histogram import LogHistogram
from rcil_serve.runtime.planes import BT601, ColourSpace, Picture, as_rgb


class SourceError(RcilError):
    """A source cannot be opened, is damaged, or was lost."""

    exit_code = 6


class OutputError(RcilError):
    """A result cannot be written."""

    exit_code = 1


@dataclass(frozen=True)
class Frame:
    """One frame of a source, upright."""

    index: int
    """Index among the frames that the source delivers."""
    pts: int
    """Presentation timestamp in units of the source's time base."""
    time: float
    """Presentation time in seconds."""
    picture: Picture
    """The image, as planes if the source stores it so."""
    ready: float
    """Value of `time.perf_counter` after decoding."""
    name: str = ""
    """File name, if the source consists of image files."""

    @functools.cached_property
    def pixels(self) -> Image:
        """RGB [H, W, 3], converted when somebody asks for it."""
        return as_rgb(self.picture)


@dataclass(frozen=True)
class Sound:
    """An audio or subtitle packet of the source, ready for an MP4 file."""

    packet: Any
    track: int = 0
    """Index in `SourceInfo.tracks`."""


Item = Frame | Sound


@dataclass(frozen=True)
class SourceInfo:
    """Properties of a source that are known before the first frame."""

    name: str
    """Name for messages and receipts, without credentials."""
    size: tuple[int, int]
    """Height and width of the upright frames."""
    rate: Fraction
    """Frame rate in fps, average or announced."""
    time_base: Fraction
    """Duration of one unit of `Frame.pts` in seconds."""
    frames: int | None = None
    """Expected number of frames; None if unknown."""
    live: bool = False
    """Whether the source is live, so that a slow consumer drops frames instead of falling behind."""
    tracks: tuple[Any, ...] = ()
    """Audio and subtitle tracks for outputs; see `rcil_serve.stream.sources.tracks.Track`."""
    aspect: Fraction = Fraction(1)
    """Width of a pixel divided by its height; outputs state it, so that players show the picture undistorted."""
    space: ColourSpace = BT601
    """Colour space of the first frame, in which videos are written."""
    timed: bool = True
    """Whether the source states times. If not, frames have the time of their arrival, and `rate` is only assumed."""

    @property
    def summary(self) -> str:
        """Size and frame rate for messages: `640x480, 25.000 fps`."""
        pixels = "" if self.aspect == 1 else f", pixels {self.aspect.numerator}:{self.aspect.denominator}"
        pace = f"{float(self.rate):.3f} fps" if self.timed else "times of arrival"
        return f"{self.size[1]}x{self.size[0]}{pixels}, {pace}"


@dataclass
class Counts:
    """Frame counts. Every received frame is counted in exactly one of `read`, `corrupt` and `left_out`."""

    read: int = 0
    """Frames that were decoded and selected."""
    corrupt: int = 0
    """Damaged frames that could not be decoded."""
    left_out: int = 0
    """Frames that were not selected: before the start, after the end, or between strides."""
    dropped: int = 0
    """Frames of a live source that were read and then displaced by newer ones."""
    inferred: int = 0
    written: int = 0
    reconnects: int = 0
    gaps: list[tuple[float, float]] = field(default_factory=list)
    """Start and length in seconds of the latest interruptions of a live source."""
    gap_seconds: float = 0.0
    """Total length of all interruptions; `reconnects` is their number."""
    deinterlaced: int = 0
    """Frames that are interlaced and were deinterlaced."""
    tone_mapped: int = 0
    """HDR frames that were mapped to SDR."""
    discontinuities: int = 0
    """Number of times that the timestamps of the source restarted, wrapped around or jumped."""
    jumps: list[tuple[float, float]] = field(default_factory=list)
    """Time and length in seconds of the latest discontinuities."""
    notices: list[str] = field(default_factory=list)
    """What a reader should know about the source although no frame is lost."""
    problems: list[str] = field(default_factory=list)
    """Messages about problems with the source."""
    gone: str = ""
    """Why a live source was lost for good; empty otherwise."""


class Latencies:
    """Percentiles of any number of durations, from a microsecond to three hours, to within one percent."""

    def __init__(self) -> None:
        self._histogram = LogHistogram(low=-6, high=4, per_decade=232)
        self.total = 0.0

    @property
    def count(self) -> int:
        """Number of durations."""
        return self._histogram.total

    def add(self, seconds: float) -> None:
        """Add one duration."""
        self._histogram.add(np.array(seconds))
        self.total += seconds

    def percentile(self, percent: float) -> float:
        """Return a percentile in seconds; 0 if there are no durations."""
        return self._histogram.quantile(percent / 100) if self.count else 0.0

    def as_document(self) -> dict[str, float]:
        """Count, percentiles and mean in milliseconds, JSON-ready."""
        document = {f"p{percent}_ms": round(1000 * self.percentile(percent), 3) for percent in (50, 95, 99)}
        return {"count": self.count, **document, "mean_ms": round(1000 * self.total / max(1, self.count), 3)}


@dataclass
class Stages:
    """Durations of the stages of a pipeline."""

    decode: Latencies = field(default_factory=Latencies)
    infer: Latencies = field(default_factory=Latencies)
    paint: Latencies = field(default_factory=Latencies)
    encode: Latencies = field(default_factory=Latencies)
    write: Latencies = field(default_factory=Latencies)
    """All work after inference: painting, encoding, masks and records."""
    lag: Latencies = field(default_factory=Latencies)
    """Time from decoding a frame to writing its last output."""

    def as_document(self) -> dict[str, dict[str, float]]:
        """Durations by stage, JSON-ready."""
        return {name: getattr(self, name).as_document() for name in self.__dataclass_fields__}


class Source(Protocol):
    """Delivers frames in order of time. It can be iterated once."""

    info: SourceInfo
    counts: Counts

    def __iter__(self) -> Iterator[Item]:
        """Yield the selected frames, with audio packets in between."""

    def stop(self) -> None:
        """Stop soon; may be called from any thread. A live source that waits for data stops after its timeout."""

    def close(self) -> None:
        """Release all resources, after iteration has ended."""


@dataclass(frozen=True)
class Selection:
    """Which frames to process."""

    stride: int = 1
    """Process every Nth frame."""
    start: float = 0.0
    """Time of the first frame, in seconds since the start of the source."""
    end: float | None = None
    """Time in seconds since the start of the source at which processing stops."""
    most: int | None = None
    """Maximum number of frames."""

    def __post_init__(self) -> None:
        if self.stride < 1:
            raise ConfigError(f"the stride is {self.stride}", "Choose 1 or more.")
        if self.start < 0 or (self.end is not None and self.end <= self.start):
            raise ConfigError(
                f"there are no frames between {self.start:g} s and {self.end if self.end is not None else 'the end'}",
                "Choose --end after --start.",
            )
        if self.most is not None and self.most < 1:
            raise ConfigError(f"the maximum number of frames is {self.most}", "Choose 1 or more.")

    def wants(self, index: int, time: float, taken: int) -> bool:
        """Whether a frame is selected.

        Args:
            index: Index of the frame in the source.
            time: Time of the frame in seconds.
            taken: Number of frames selected before.
        """
        inside = time >= self.start and (self.end is None or time < self.end)
        return inside and index % self.stride == 0 and not self.over(time, taken)

    def over(self, time: float, taken: int) -> bool:
        """Whether no later frame will be selected."""
        return (self.end is not None and time >= self.end) or (self.most is not None and taken >= self.most)

    def expected(self, frames: int, rate: float) -> int:
        """Estimate how many of the source's frames are selected."""
        last = frames if self.end is None else min(frames, round(self.end * rate))
        wanted = -(-max(0, last - round(self.start * rate)) // self.stride)
        return wanted if self.most is None else min(wanted, self.most)

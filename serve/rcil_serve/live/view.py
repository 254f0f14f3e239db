"""The newest frame of a run, and what is known about it, for those who look at it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rcil.model.metadata import ClassInfo
from rcil_serve.live.pictures import Pictures
from rcil_serve.runtime.backends import Backend
from rcil_serve.runtime.painter import BACKGROUND, shares
from rcil_serve.stream.frames import Source
from rcil_serve.stream.pipeline import SegmentedFrame

RATE_SECONDS = 5.0
"""Time over which the frame rate is averaged."""
KEPT_EVENTS = 50


@dataclass(frozen=True)
class Shown:
    """A frame that can be shown."""

    number: int
    """Counts the frames of the run from 1."""
    seen: SegmentedFrame
    classes: tuple[ClassInfo, ...]
    lag: float
    """Seconds from decoding the frame to its result."""


@dataclass(frozen=True)
class Said:
    """An event for the list on the page."""

    kind: str
    at: str
    """UTC, as in ISO 8601."""
    time: float
    """Seconds in the source."""
    text: str


@dataclass
class LiveView:
    """Keeps references only: pictures are made when somebody asks for one, so a run that nobody looks at costs nothing.

    Args:
        source: Source of the frames.
        backend: The model, for its description.
        pictures: Makes the pictures.
        alarms: Returns the texts of the alarms that stand.
        watching: Whether alarms can be raised at all.
    """

    source: Source
    backend: Backend
    pictures: Pictures
    alarms: Callable[[], list[str]] = list
    watching: bool = False
    closed: bool = field(default=False, init=False)
    newest: Shown | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._times: deque[float] = deque(maxlen=256)
        self._events: deque[Said] = deque(maxlen=KEPT_EVENTS)
        self._drawing = threading.Lock()
        self._drawn: tuple[int, bytes] = (0, b"")

    def publish(self, seen: SegmentedFrame, classes: tuple[ClassInfo, ...]) -> None:
        """Show a frame from now on."""
        now = time.perf_counter()
        self._times.append(now)
        number = 1 if self.newest is None else self.newest.number + 1
        self.newest = Shown(number, seen, classes, now - seen.frame.ready)

    def add_event(self, kind: str, at: str, seconds: float, text: str) -> None:
        """Add an event to the list."""
        self._events.appendleft(Said(kind, at, round(seconds, 1), text))

    def jpeg(self, shown: Shown) -> bytes:
        """The picture of a frame; made once for all who look."""
        with self._drawing:
            if self._drawn[0] != shown.number:
                found = shown.seen.found
                self._drawn = shown.number, self.pictures.jpeg(shown.seen.frame.pixels, found, shown.classes)
            return self._drawn[1]

    @property
    def rate(self) -> float:
        """Frames per second, lately."""
        now = time.perf_counter()
        recent = [at for at in tuple(self._times) if now - at <= RATE_SECONDS]
        return len(recent) / max(now - recent[0], 1e-3) if len(recent) > 1 else 0.0

    def state(self) -> dict[str, Any]:
        """What the page shows beside the picture, JSON-ready."""
        shown, counts, info, metadata = self.newest, self.source.counts, self.source.info, self.backend.metadata
        age = None if not self._times else round(time.perf_counter() - self._times[-1], 1)
        return {
            "source": info.name,
            "live": info.live,
            "size": [info.size[1], info.size[0]],
            "step": metadata.step,
            "device": self.backend.device,
            "watching": self.watching,
            "frame": 0 if shown is None else shown.number,
            "time": None if shown is None else round(shown.seen.frame.time, 2),
            "age": age,
            "rate": round(self.rate, 1),
            "infer_ms": None if shown is None else round(1000 * shown.seen.infer_seconds, 1),
            "lag_ms": None if shown is None else round(1000 * shown.lag),
            "dropped": counts.dropped,
            "reconnects": counts.reconnects,
            "classes": [] if shown is None else _areas(shown),
            "alarms": self.alarms(),
            "events": [vars(said) for said in tuple(self._events)],
        }


def _areas(shown: Shown) -> list[dict[str, Any]]:
    parts = shares(shown.seen.found.mask, len(shown.classes))
    return [
        {"name": info.name, "colour": list(info.colour), "share": round(float(part), 5)}
        for row, (info, part) in enumerate(zip(shown.classes, parts, strict=True))
        if row != BACKGROUND
    ]

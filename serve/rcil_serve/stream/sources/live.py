"""Cameras and network streams, which can be interrupted and reconnected."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av.error

from rcil_serve.stream.frames import Counts, Item, Selection, SourceError, SourceInfo
from rcil_serve.stream.sources.container import (
    FrameSelector,
    first_frame,
    frame_rate,
    open_container,
    reason,
    turn_of,
    upright_size,
    video_stream,
    whole_frames,
)

TIME_BASE = Fraction(1, 90000)
FIRST_WAIT, MAX_WAIT = 0.5, 30.0
"""Seconds before the first attempt to reconnect, and the limit of the delay, which doubles each time."""
JUMP = round(5 / TIME_BASE)
"""A jump of the camera's clock beyond this means that the clock was adjusted."""
KEPT_GAPS = 100
"""Number of gaps to keep; a live source may run for months."""


@dataclass(frozen=True)
class LiveOptions:
    """When to reconnect, and when to give up."""

    timeout: float = 10.0
    """Seconds without data after which a connection is considered broken."""
    attempts: int = 6
    """Consecutive connections without a frame after which the source is considered lost."""


class LiveSource:
    """Frames of a camera or stream, with capture times relative to the first frame.

    Args:
        address: Address for FFmpeg.
        name: Name for messages, without credentials.
        selection: Which frames to process.
        live: When to reconnect, and when to give up.
        options: Options of FFmpeg's demuxer.
        form: Name of FFmpeg's demuxer; None selects it by the address.
    """

    def __init__(
        self,
        address: str,
        name: str,
        selection: Selection,
        live: LiveOptions,
        options: dict[str, str] | None = None,
        form: str | None = None,
    ) -> None:
        self._address, self._name, self._selection, self._live = address, name, selection, live
        self._options, self._form = options or {}, form
        self._ended = threading.Event()
        self._container: Any = None
        self._failed = 0
        """Consecutive connections without a frame."""
        self._lost: float | None = None
        """Time at which the last connection broke, in seconds since the start; None while frames arrive."""
        self.counts = Counts()
        self._stream = self._connect()
        size = upright_size(first_frame(self._container, self._stream, name, "Check the address and the camera."))
        self.info = SourceInfo(name, size, frame_rate(self._stream), TIME_BASE, frames=selection.most, live=True)

    def _connect(self) -> Any:
        self._container = open_container(self._address, self._name, self._options, self._live.timeout, self._form)
        return video_stream(self._container, self._name)

    def __iter__(self) -> Iterator[Item]:
        begun = time.monotonic()
        selector, last = FrameSelector(self._selection, self.counts, self.info.size), -1
        while not self._ended.is_set():
            times = _Times(round((time.monotonic() - begun) / TIME_BASE))
            for frame in self._frames_of_connection():
                passed = time.monotonic() - begun
                self._came_back(passed)
                now = round(passed / TIME_BASE)
                pts = now if frame.pts is None else times.of(round(frame.pts * frame.time_base / TIME_BASE), now)
                pts = last = max(pts, last + 1)
                selected = selector.select(frame, pts, float(pts * TIME_BASE), turn_of(frame))
                if selector.over:
                    return
                if selected is not None:
                    yield selected
            if not self._ended.is_set() and not self._reconnect(time.monotonic() - begun):
                self.counts.gone = f"{self._name} was lost: {self._live.attempts} attempts to reconnect failed"
                return

    def _frames_of_connection(self) -> Iterator[Any]:
        """Yield intact frames until the connection breaks."""
        try:
            for packet in self._container.demux(self._stream):
                if self._ended.is_set():
                    return
                yield from whole_frames(packet, self.counts)
        except av.error.FFmpegError as error:
            self._note(f"{self._name} was interrupted: {reason(error)}")

    def _reconnect(self, lost_at: float) -> bool:
        """Reconnect with increasing delays. Return False if the source is lost.

        A connection counts as failed until it delivers a frame, as some servers accept connections and send nothing.
        """
        self._lost = lost_at if self._lost is None else self._lost
        while self._failed < self._live.attempts:
            if self._ended.wait(min(FIRST_WAIT * 2 ** min(self._failed, 10), MAX_WAIT)):
                return True
            self._failed += 1
            try:
                self._container.close()
                self._stream = self._connect()
            except SourceError as error:
                self._note(f"attempt {self._failed}: {error.message}")
                continue
            return True
        return False

    def _came_back(self, now: float) -> None:
        """Record the gap that ends with this frame, if there was one."""
        self._failed = 0
        if self._lost is None:
            return
        counts, length = self.counts, now - self._lost
        counts.reconnects += 1
        counts.gap_seconds = round(counts.gap_seconds + length, 3)
        counts.gaps.append((round(self._lost, 3), round(length, 3)))
        del counts.gaps[:-KEPT_GAPS]
        self._lost = None

    def _note(self, text: str) -> None:
        """Add a problem and keep only the latest ones, because a live source may run for months."""
        self.counts.problems.append(text)
        del self.counts.problems[:-20]

    def stop(self) -> None:
        """See `Source.stop`."""
        self._ended.set()

    def close(self) -> None:
        """See `Source.close`."""
        self.stop()
        if self._container is not None:
            self._container.close()


class _Times:
    """Converts the camera's clock to the time of the source within one connection, in units of `TIME_BASE`.

    Args:
        start: Time of the source at which the connection started.
    """

    def __init__(self, start: int) -> None:
        self._base, self._origin = start, 0
        self._last: tuple[int, int] | None = None

    def of(self, taken: int, now: int) -> int:
        """Convert the capture time `taken` of a frame that arrived at `now`.

        Frames may arrive late and in bursts; their capture times stay correct. A clock that runs backwards, or further
        ahead than the elapsed time, was adjusted, so the conversion restarts.
        """
        if self._last is None:
            self._origin = taken
        elif not -JUMP <= taken - self._last[0] <= now - self._last[1] + JUMP:
            self._origin, self._base = taken, now
        self._last = taken, now
        return self._base + taken - self._origin

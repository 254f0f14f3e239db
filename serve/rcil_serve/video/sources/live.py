"""Cameras and streams: they come when they come, break off and come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av.error

from rcil_serve.video.frames import Counts, Frame, Item, SourceError, SourceInfo
from rcil_serve.video.sources.container import fitted, open_container, reason, upright, video_stream, whole_frames
from rcil_serve.video.sources.protocol import Selection

TIME_BASE = Fraction(1, 90000)
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before the first and, doubling, before later attempts to connect again."""


@dataclass(frozen=True)
class LiveOptions:
    """How patient to be."""

    timeout: float = 10.0
    """Seconds without data after which a connection counts as broken."""
    attempts: int = 6
    """Failed attempts in a row after which the source counts as gone."""


class LiveSource:
    """Frames of a camera or a stream, with the times at which they were taken, counted from the first.

    Args:
        address: For FFmpeg.
        name: What messages call it, without credentials.
        selection: Which frames are wanted.
        live: How patient to be.
        options: For FFmpeg's demuxer.
        form: Name of the demuxer; None: found by the address.
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
        self.counts = Counts()
        self._stream = self._connect()
        first = self._first_frame()
        turn = int(first.rotation) % 360
        size = (first.width, first.height) if turn in (90, 270) else (first.height, first.width)
        rate = self._stream.average_rate or self._stream.guessed_rate or Fraction(25)
        self.info = SourceInfo(name, size, Fraction(rate), TIME_BASE, frames=selection.most, live=True)

    def _connect(self) -> Any:
        self._container = open_container(self._address, self._name, self._options, self._live.timeout, self._form)
        return video_stream(self._container, self._name)

    def _first_frame(self) -> Any:
        try:
            return next(frame for frame in self._container.decode(self._stream) if not frame.is_corrupt)
        except (av.error.FFmpegError, StopIteration) as error:
            why = "it ended" if isinstance(error, StopIteration) else reason(error)
            self.close()
            raise SourceError(f"{self._name} gives no picture: {why}", "Check the address and the camera.") from None

    def __iter__(self) -> Iterator[Item]:
        begun = time.monotonic()
        taken, index, last = 0, 0, -1
        while not self._ended.is_set():
            base = round((time.monotonic() - begun) / TIME_BASE)
            origin: int | None = None
            for frame in self._frames_of_connection():
                if frame.pts is None:
                    pts = round((time.monotonic() - begun) / TIME_BASE)
                else:
                    taken_at = round(frame.pts * frame.time_base / TIME_BASE)
                    origin = taken_at if origin is None else origin
                    pts = base + taken_at - origin
                pts = last = max(pts, last + 1)
                seconds = float(pts * TIME_BASE)
                index += 1
                if self._selection.over(seconds, taken):
                    return
                if not self._selection.wants(index - 1, seconds, taken):
                    self.counts.left_out += 1
                    continue
                taken += 1
                self.counts.read += 1
                turned = upright(frame.to_ndarray(format="rgb24"), int(frame.rotation) % 360)
                pixels = fitted(turned, self.info.size)
                yield Frame(index - 1, pts, seconds, pixels, time.perf_counter())
            if not self._ended.is_set() and not self._reconnect(time.monotonic() - begun):
                self.counts.gone = f"{self._name} is gone: {self._live.attempts} attempts to connect again failed"
                return

    def _frames_of_connection(self) -> Iterator[Any]:
        """Whole frames until the connection breaks."""
        try:
            for packet in self._container.demux(self._stream):
                if self._ended.is_set():
                    return
                yield from whole_frames(packet, self.counts)
        except av.error.FFmpegError as error:
            self._note(f"{self._name} broke off: {reason(error)}")

    def _reconnect(self, lost_at: float) -> bool:
        """Connect again, waiting longer each time; the pause is noted as a gap. False if the source is gone."""
        begun, wait = time.monotonic(), FIRST_WAIT
        for attempt in range(1, self._live.attempts + 1):
            if self._ended.wait(wait):
                return True
            wait = min(2 * wait, LONGEST_WAIT)
            try:
                self._container.close()
                self._stream = self._connect()
            except SourceError as error:
                self._note(f"attempt {attempt}: {error.message}")
                continue
            self.counts.reconnects += 1
            self.counts.gaps.append((round(lost_at, 3), round(time.monotonic() - begun, 3)))
            return True
        return False

    def _note(self, text: str) -> None:
        """Keep the latest problems only: a live source may run for months."""
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

"""Cameras and network streams, which can be interrupted and reconnected."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av.error

from rcil_serve.runtime.planes import BT601
from rcil_serve.stream.frames import Counts, Item, Selection, Sound, SourceError, SourceInfo
from rcil_serve.stream.sources.accelerated import CPU
from rcil_serve.stream.sources.clock import BACK, note_discontinuity
from rcil_serve.stream.sources.container import (
    FrameSelector,
    frame_rate,
    open_container,
    pixel_aspect,
    space_of,
    turn_of,
    upright_size,
)
from rcil_serve.stream.sources.errors import reason
from rcil_serve.stream.sources.reader import Reader

TIME_BASE = Fraction(1, 90000)
FIRST_WAIT, MAX_WAIT = 0.5, 30.0
"""Seconds before the first attempt to reconnect, and the limit of the delay, which doubles each time."""
JUMP, BACK_TICKS = round(5 / TIME_BASE), round(BACK / TIME_BASE)
"""A jump of the camera's clock ahead by more, or back by more than this, means that the clock was adjusted."""
KEPT_GAPS = 100
"""Number of gaps to keep; a live source may run for months."""


@dataclass(frozen=True)
class LiveOptions:
    """When to reconnect, and when to give up."""

    timeout: float = 10.0
    """Seconds without data after which a connection is considered broken."""
    attempts: int = 0
    """Consecutive connections without a frame after which the source is considered lost; 0 never gives up."""


class LiveSource:
    """Frames of a camera or stream, with capture times relative to the first frame.

    Args:
        address: Address for FFmpeg.
        name: Name for messages, without credentials.
        selection: Which frames to process.
        live: When to reconnect, and when to give up.
        options: Options of FFmpeg's demuxer.
        form: Name of FFmpeg's demuxer; None selects it by the address.
        container: The first connection, if it is already open.
        with_sound: Whether to deliver sound and subtitles.
        decoder: See `open_decoded`.
    """

    def __init__(
        self,
        address: str,
        name: str,
        selection: Selection,
        live: LiveOptions,
        options: dict[str, str] | None = None,
        form: str | None = None,
        *,
        container: Any = None,
        with_sound: bool = True,
        decoder: str = CPU,
    ) -> None:
        self._address, self._name, self._selection, self._live = address, name, selection, live
        self._options, self._form, self._with_sound, self._decoder = options or {}, form, with_sound, decoder
        self._ended = threading.Event()
        self._failed = 0
        """Consecutive connections without a frame."""
        self._lost: float | None = None
        """Time at which the last connection broke, in seconds since the start; None while frames arrive."""
        self.counts = Counts()
        self._connect(container)
        stream, first = self._reader.video, self._reader.first("Check the address and the camera.")
        self.counts.notices += self._reader.lost
        self.info = SourceInfo(
            name,
            upright_size(first),
            frame_rate(stream),
            TIME_BASE,
            frames=selection.most,
            live=True,
            tracks=self._reader.tracks,
            aspect=pixel_aspect(stream, turn_of(first)),
            space=space_of(first, turn_of(first)) or BT601,
            timed=not self._reader.by_arrival,
        )

    def _connect(self, container: Any = None) -> None:
        if container is None:
            notices: list[str] = []
            container = open_container(
                self._address,
                self._name,
                self._options,
                self._live.timeout,
                self._form,
                decoder=self._decoder,
                notices=notices,
            )
            self.counts.notices += [line for line in notices if line not in self.counts.notices]
        self._reader = Reader(container, self._name, self.counts, live=True, with_sound=self._with_sound)

    def __iter__(self) -> Iterator[Item]:
        begun = time.monotonic()
        selector, last = FrameSelector(self._selection, self.counts, self.info.size), -1
        while not self._ended.is_set():
            times = _Times(round((time.monotonic() - begun) / TIME_BASE), self.counts)
            for item in self._frames_of_connection():
                if isinstance(item, Sound):
                    if self._place_sound(item.packet, times):
                        yield item
                    continue
                passed = time.monotonic() - begun
                self._came_back(passed)
                now = round(passed / TIME_BASE)
                pts = now if item.pts is None else times.of(round(item.pts * item.time_base / TIME_BASE), now)
                pts = last = max(pts, last + 1)
                selected = selector.select(item, pts, float(pts * TIME_BASE), turn_of(item))
                if selector.over:
                    return
                if selected is not None:
                    yield selected
            if not self._ended.is_set() and not self._reconnect(begun):
                return

    def _place_sound(self, packet: Any, times: _Times) -> bool:
        """Give a packet the time of the source, like the frames around it; return whether it is selected.

        Sound before the first frame of a connection is left out, and sound that differs from that of the first
        connection, because a file cannot change its codec.
        """
        if times.shift is None or not self._same_tracks():
            return False
        ticks = round(times.shift * TIME_BASE / packet.time_base)
        packet.dts += ticks
        packet.pts = packet.dts if packet.pts is None else packet.pts + ticks
        seconds, chosen = float(packet.pts * packet.time_base), self._selection
        return seconds >= max(0, chosen.start) and (chosen.end is None or seconds < chosen.end)

    def _same_tracks(self) -> bool:
        return [track.summary for track in self._reader.tracks] == [track.summary for track in self.info.tracks]

    def _frames_of_connection(self) -> Iterator[Any]:
        """Yield intact frames and sound until the connection breaks."""
        try:
            for item in self._reader:
                if self._ended.is_set():
                    return
                yield item
        except av.error.FFmpegError as error:
            self._note(f"{self._name} was interrupted: {reason(error)}")

    def _reconnect(self, begun: float) -> bool:
        """Reconnect with increasing delays. Return False if the source is lost, or its end is reached meanwhile.

        A connection counts as failed until it delivers a frame, as some servers accept connections and send nothing.
        """
        self._lost = time.monotonic() - begun if self._lost is None else self._lost
        attempts, end = self._live.attempts, self._selection.end
        while not attempts or self._failed < attempts:
            wait = min(FIRST_WAIT * 2 ** min(self._failed, 10), MAX_WAIT)
            left = None if end is None else begun + end - time.monotonic()
            if self._ended.wait(wait if left is None else max(0, min(wait, left))):
                return True
            if left is not None and left <= wait:
                return False
            self._failed += 1
            try:
                self._reader.close()
                self._connect()
            except SourceError as error:
                self._note(f"attempt {self._failed}: {error.message}")
                continue
            return True
        self.counts.gone = f"{self._name} was lost: {attempts} attempts to reconnect failed"
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
        self._reader.close()


class _Times:
    """Converts the camera's clock to the time of the source within one connection, in units of `TIME_BASE`.

    Args:
        start: Time of the source at which the connection started.
        counts: Records when the camera's clock was adjusted.
    """

    def __init__(self, start: int, counts: Counts | None = None) -> None:
        self._base, self._origin, self._counts = start, 0, counts or Counts()
        self._last: tuple[int, int] | None = None

    def of(self, taken: int, now: int) -> int:
        """Convert the capture time `taken` of a frame that arrived at `now`.

        Frames may arrive late and in bursts; their capture times stay correct. A clock that runs backwards, or further
        ahead than the elapsed time, was adjusted, so the conversion restarts.
        """
        if self._last is None:
            self._origin = taken
        elif not -BACK_TICKS <= taken - self._last[0] <= now - self._last[1] + JUMP:
            note_discontinuity(self._counts, float(now * TIME_BASE), float((taken - self._last[0]) * TIME_BASE))
            self._origin, self._base = taken, now
        self._last = taken, now
        return self._base + taken - self._origin

    @property
    def shift(self) -> int | None:
        """Difference between the time of the source and the camera's clock; None before the first frame."""
        return None if self._last is None else self._base - self._origin

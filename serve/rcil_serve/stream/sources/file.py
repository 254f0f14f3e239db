"""Video files, read with PyAV. Timestamps, rotation and sound are kept; damaged frames are counted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av
import av.error

from rcil.core.images import Image
from rcil_serve.stream.frames import Counts, Frame, Item, Selection, Sound, SourceError, SourceInfo
from rcil_serve.stream.sources.container import (
    HINT,
    first_frame,
    fitted,
    open_container,
    reason,
    upright,
    video_stream,
    whole_frames,
)


class FileSource:
    """Frames of one video file.

    Args:
        path: Path or address of the file.
        name: Name for messages.
        selection: Which frames to process.
        options: Options of FFmpeg's demuxer.
        timeout: Seconds to wait for an address to respond.
    """

    def __init__(
        self,
        path: str,
        name: str,
        selection: Selection,
        *,
        options: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        self._selection, self._name = selection, name
        self.counts = Counts()
        first = _first_frame(path, name, options, timeout)
        self._turn = int(first.rotation) % 360
        self._origin = first.pts if first.pts is not None else 0
        self._container = open_container(path, name, options, timeout)
        self._stream = video_stream(self._container, name)
        height, width = first.height, first.width
        rate = self._stream.average_rate or self._stream.guessed_rate or Fraction(25)
        self._announced = _announced(self._container, self._stream)
        frames = self._announced or _frames_by_duration(self._container, rate)
        known = [audio for audio in self._container.streams.audio if audio.codec_context is not None]
        self.info = SourceInfo(
            name=name,
            size=(width, height) if self._turn in (90, 270) else (height, width),
            rate=Fraction(rate),
            time_base=Fraction(self._stream.time_base),
            frames=selection.expected(frames, float(rate)) if frames else None,
            sound=known[0] if known else None,
        )

    def __iter__(self) -> Iterator[Item]:
        wanted = [self._stream] if self.info.sound is None else [self._stream, self.info.sound]
        base, taken, index, hidden = self.info.time_base, 0, 0, 0
        for packet in self._packets(wanted):
            if packet.stream is not self._stream:
                if packet.dts is not None and self._wants_sound(packet):
                    yield Sound(packet)
                continue
            hidden += packet.is_discard
            for frame in whole_frames(packet, self.counts):
                pts = frame.pts if frame.pts is not None else self._origin + round(index / self.info.rate / base)
                seconds = float((pts - self._origin) * base)
                index += 1
                if self._selection.over(seconds, taken):
                    self.counts.left_out += 1
                    return
                if not self._selection.wants(index - 1, seconds, taken):
                    self.counts.left_out += 1
                    continue
                taken += 1
                self.counts.read += 1
                yield Frame(index - 1, pts, seconds, self._upright(frame), time.perf_counter())
        self._note_missing(index, hidden)

    def _packets(self, streams: list[Any]) -> Iterator[Any]:
        """Read all packets. A truncated file ends the source and adds a problem."""
        try:
            yield from self._container.demux(streams)
        except av.error.FFmpegError as error:
            self.counts.problems.append(f"{self._name} cannot be read to its end: {reason(error)}")

    def _wants_sound(self, packet: Any) -> bool:
        """Whether an audio packet lies within the selection."""
        time_of = packet.pts if packet.pts is not None else packet.dts
        seconds = float(time_of * packet.time_base) - float(self._origin * self.info.time_base)
        return seconds >= self._selection.start and (self._selection.end is None or seconds < self._selection.end)

    def _upright(self, frame: Any) -> Image:
        return fitted(upright(frame.to_ndarray(format="rgb24"), self._turn), self.info.size)

    def _note_missing(self, index: int, hidden: int) -> None:
        """Add a problem if frames are missing. Frames hidden by an edit list are decoded but never shown."""
        if self._announced and index + hidden + self.counts.corrupt < self._announced:
            self.counts.problems.append(
                f"{self._name} is truncated: it announces {self._announced} frames and has {index}"
                + (f" and {self.counts.corrupt} damaged ones" if self.counts.corrupt else "")
            )

    def stop(self) -> None:
        """See `Source.stop`. A file never blocks for long."""

    def close(self) -> None:
        """See `Source.close`."""
        self._container.close()


def _first_frame(path: str, name: str, options: dict[str, str] | None, timeout: float | None) -> Any:
    """Decode the first intact frame, for its size, rotation and time."""
    with open_container(path, name, options, timeout) as container:
        try:
            frame = first_frame(container, video_stream(container, name))
        except av.error.FFmpegError as error:
            raise SourceError(f"{name} has no frame that can be decoded: {reason(error)}", HINT) from None
    if frame is None:
        raise SourceError(f"{name} has no frame that can be decoded", HINT)
    return frame


def _announced(container: Any, stream: Any) -> int | None:
    """Number of frames that the file announces; None if it does not. An MP4 edit list removes some from the index."""
    stated = int(stream.frames)
    if "mp4" in container.format.name:
        return min(stated, len(stream.index_entries)) or stated or None
    return stated or None


def _frames_by_duration(container: Any, rate: Fraction) -> int | None:
    return round(container.duration / av.time_base * rate) if container.duration else None

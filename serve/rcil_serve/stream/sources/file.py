"""Video files, read with PyAV. Timestamps, rotation and sound are kept; damaged frames are counted."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av
import av.error

from rcil_serve.stream.frames import Counts, Item, Selection, Sound, SourceInfo
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
        with open_container(path, name, options, timeout) as container:
            first = first_frame(container, video_stream(container, name), name)
        self._turn = turn_of(first)
        self._origin = first.pts if first.pts is not None else 0
        self._container = open_container(path, name, options, timeout)
        self._stream = video_stream(self._container, name)
        rate = frame_rate(self._stream)
        self._announced = _announced(self._container, self._stream)
        frames = self._announced or _frames_by_duration(self._container, rate)
        known = [audio for audio in self._container.streams.audio if audio.codec_context is not None]
        self.info = SourceInfo(
            name=name,
            size=upright_size(first),
            rate=rate,
            time_base=Fraction(self._stream.time_base),
            frames=selection.expected(frames, float(rate)) if frames else None,
            sound=known[0] if known else None,
        )

    def __iter__(self) -> Iterator[Item]:
        wanted = [self._stream] if self.info.sound is None else [self._stream, self.info.sound]
        base, hidden = self.info.time_base, 0
        selector = FrameSelector(self._selection, self.counts, self.info.size)
        for packet in self._packets(wanted):
            if packet.stream is not self._stream:
                if packet.dts is not None and self._wants_sound(packet):
                    yield Sound(packet)
                continue
            hidden += packet.is_discard
            for frame in whole_frames(packet, self.counts):
                steady = self._origin + round(selector.index / self.info.rate / base)
                pts = steady if frame.pts is None else frame.pts
                selected = selector.select(frame, pts, float((pts - self._origin) * base), self._turn)
                if selector.over:
                    return
                if selected is not None:
                    yield selected
        self._note_missing(selector.index, hidden)

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


def _announced(container: Any, stream: Any) -> int | None:
    """Number of frames that the file announces; None if it does not. An MP4 edit list removes some from the index."""
    stated = int(stream.frames)
    if "mp4" in container.format.name:
        return min(stated, len(stream.index_entries)) or stated or None
    return stated or None


def _frames_by_duration(container: Any, rate: Fraction) -> int | None:
    return round(container.duration / av.time_base * rate) if container.duration else None

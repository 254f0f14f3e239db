"""Reads an open container: decoded frames, and the packets of sound and subtitles in between."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import av.error

from rcil_serve.stream.frames import Counts, Sound, SourceError
from rcil_serve.stream.sources.clock import Clock, is_broadcast, lacks_timestamps
from rcil_serve.stream.sources.container import read_only, variant_of, video_stream, videos_of, whole_frames
from rcil_serve.stream.sources.errors import HINT, reason
from rcil_serve.stream.sources.filters import FrameFilters
from rcil_serve.stream.sources.tracks import TrackReader, open_tracks

FIRST_FRAME_S = 60.0
"""Seconds to search for the first intact frame."""
READ_AHEAD = 500
"""Maximum number of packets to read after the first frame until all tracks are known."""
ARRIVAL_BASE = Fraction(1, 1_000_000)


class Reader:
    """Reads one container once. What it reads ahead to know the first frame and the tracks is not lost.

    Args:
        container: The open container; `close` closes it.
        name: Name of the source for messages.
        counts: Counts of the source.
        live: Whether the source is live. Its frames have the time of their arrival if the format has no timestamps,
            and its clock is not made continuous, as the camera's clock is compared with ours elsewhere.
        with_sound: Whether to deliver sound and subtitles.
    """

    def __init__(
        self, container: Any, name: str, counts: Counts, *, live: bool = False, with_sound: bool = True
    ) -> None:
        self.container, self._name, self._counts = container, name, counts
        self.video = video_stream(container, name)
        self.by_arrival = live and lacks_timestamps(container)
        readers, self.lost = open_tracks(self._heard()) if with_sound else ([], [])
        self._readers: dict[int, TrackReader] = {reader.stream.index: reader for reader in readers}
        self._numbers = {index: number for number, index in enumerate(self._readers)}
        read_only(container, [self.video, *(reader.stream for reader in readers)])
        self._note_choice()
        self._clock = None if live else Clock(counts, broadcast=is_broadcast(container))
        self._filters = FrameFilters(name, counts)
        self._broken: Any = None
        self._read_ahead: deque[Any] = deque()
        self._rest = self._items()
        self.received = 0
        """Number of video packets."""
        self.hidden = 0
        """Number of video packets that an edit list hides."""

    def _heard(self) -> list[Any]:
        """Streams of sound and subtitles of the same variant of a playlist as the video."""
        streams, own = self.container.streams, variant_of(self.video)
        return [stream for stream in (*streams.audio, *streams.subtitles) if variant_of(stream) in (0, own)]

    def _note_choice(self) -> None:
        """Add a notice if there are several videos, such as programmes of a broadcast."""
        count = len([stream for stream in videos_of(self.container) if not variant_of(stream)])
        size = f"{self.video.codec_context.width}x{self.video.codec_context.height}"
        notice = f"{self._name} has {count} videos; the first one, {size}, is used"
        if count > 1 and notice not in self._counts.notices:
            self._counts.notices.append(notice)

    @property
    def tracks(self) -> tuple[Any, ...]:
        """The tracks of sound and subtitles; see `Track`."""
        return tuple(reader.track for reader in self._readers.values())

    def first(self, hint: str = HINT) -> Any:
        """Return the first intact frame, which is also the first that `frames` yields."""
        end, first, more = time.monotonic() + FIRST_FRAME_S, None, READ_AHEAD
        for item in self._rest:
            if item is not None:
                self._read_ahead.append(item)
                if first is None and not isinstance(item, Sound):
                    first = item
            if first is not None:
                more -= 1
                if not more or all(reader.ready for reader in self._readers.values()):
                    break
            elif time.monotonic() > end:
                break
        if first is None:
            self.close()
            why = "" if self._broken is None else f": {reason(self._broken)}"
            raise SourceError(f"{self._name} has no frame that can be decoded{why}", hint)
        return first

    def __iter__(self) -> Iterator[Any]:
        """Yield decoded frames of PyAV, and `Sound` in between; raise FFmpeg's error if the container breaks off."""
        while self._read_ahead:
            yield self._read_ahead.popleft()
        for item in self._rest:
            if item is not None:
                yield item
        if self._broken is not None:
            raise self._broken

    def _items(self) -> Iterator[Any]:
        """Yield frames and sound, and None after a packet that gave neither."""
        for packet in self._packets():
            found = False
            for item in self._frames(None) if packet is None else self._of_packet(packet):
                found = True
                yield item
            if not found:
                yield None
        yield from self._filters.flush()
        for number, reader in enumerate(self._readers.values()):
            for made in reader.flush():
                yield Sound(made, number)

    def _packets(self) -> Iterator[Any]:
        """Yield all packets; after an error None, for the frames that the decoder still holds."""
        packets = self.container.demux(self.video, *(reader.stream for reader in self._readers.values()))
        try:
            yield from packets if self._clock is None or lacks_timestamps(self.container) else self._timed(packets)
        except av.error.FFmpegError as error:
            self._broken = error
            yield None

    def _timed(self, packets: Iterator[Any]) -> Iterator[Any]:
        """Yield packets; if the first ones of the video have no times, count back from the first one that has.

        Matroska holds no negative times, so the frames of a clip that was cut by copying may come without.
        """
        held: list[Any] = []
        try:
            for packet in packets:
                held.append(packet)
                if (packet.stream.index == self.video.index and packet.dts is not None) or len(held) == READ_AHEAD:
                    break
        finally:
            mine = [packet for packet in held if packet.stream.index == self.video.index]
            if not self.video.codec_context.has_b_frames:
                _count_back(mine)
            yield from held
        for packet in packets:  # `yield from` lets the StopIteration of an exhausted demuxer out
            yield packet

    def _of_packet(self, packet: Any) -> Iterator[Any]:
        if self._clock is not None:
            self._clock.adjust(packet)
        index = packet.stream.index  # `stream_index` is 0 for the last, empty packet of every stream
        if index != self.video.index:
            if packet.dts is not None and not packet.is_corrupt:
                number = self._numbers[index]
                for made in self._readers[index].packets(packet):
                    yield Sound(made, number)
            return
        if self.by_arrival and packet.size:
            packet.pts = packet.dts = round(time.monotonic() / ARRIVAL_BASE)
        self.received += packet.size > 0
        self.hidden += packet.is_discard
        yield from self._frames(packet)

    def _frames(self, packet: Any) -> Iterator[Any]:
        """Yield the frames of a packet, or those that the decoder still holds if it is None."""
        for frame in whole_frames(self.video, packet, self._counts):
            if self.by_arrival or frame.time_base is None:
                frame.time_base = ARRIVAL_BASE if self.by_arrival else self.video.time_base
            yield from self._filters.of(frame)

    def close(self) -> None:
        """Close the container."""
        self.container.close()


def _count_back(packets: list[Any]) -> None:
    """Give times to packets before the last one, which has a time."""
    for packet, after in reversed(list(pairwise(packets))):
        if after.dts is not None and packet.dts is None and packet.pts is None and packet.duration:
            packet.dts = packet.pts = after.dts - packet.duration

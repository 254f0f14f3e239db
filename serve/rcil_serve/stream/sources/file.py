"""Video files, read with PyAV. Timestamps, rotation, sound and subtitles are kept; damaged frames are counted."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import av.error

from rcil_serve.runtime.planes import BT601
from rcil_serve.stream.frames import Counts, Item, Selection, Sound, SourceInfo
from rcil_serve.stream.sources.accelerated import CPU
from rcil_serve.stream.sources.clock import AHEAD, is_broadcast
from rcil_serve.stream.sources.container import (
    FrameSelector,
    frame_rate,
    open_container,
    pixel_aspect,
    space_of,
    turn_of,
    upright_size,
)
from rcil_serve.stream.sources.errors import DOWNLOAD, HINT, reason
from rcil_serve.stream.sources.reader import Reader
from rcil_serve.stream.sources.truncation import missing_bytes


class FileSource:
    """Frames of one video file.

    Args:
        path: Path or address of the file.
        name: Name for messages.
        selection: Which frames to process.
        container: The file, if it is already open.
        with_sound: Whether to deliver sound and subtitles.
        decoder: See `open_decoded`.
    """

    def __init__(
        self,
        path: str,
        name: str,
        selection: Selection,
        *,
        container: Any = None,
        with_sound: bool = True,
        decoder: str = CPU,
    ) -> None:
        self._path, self._selection, self._name = path, selection, name
        self.counts = Counts()
        if container is None:
            container = open_container(path, name, None, None, decoder=decoder, notices=self.counts.notices)
        self._reader = Reader(container, name, self.counts, with_sound=with_sound)
        self.counts.notices += self._reader.lost
        stream = self._reader.video
        rate = frame_rate(stream)
        self._announced = _announced(container, stream)
        frames = self._announced or _frames_by_duration(container, rate)
        first = self._reader.first(DOWNLOAD if "://" in path else HINT)
        self._turn = turn_of(first)
        self._origin = first.pts if first.pts is not None else 0
        self._lift = self._lifted(container, Fraction(stream.time_base))
        self.info = SourceInfo(
            name=name,
            size=upright_size(first),
            rate=rate,
            time_base=Fraction(stream.time_base),
            frames=selection.expected(frames, float(rate)) if frames else None,
            tracks=self._reader.tracks,
            aspect=pixel_aspect(stream, self._turn),
            space=space_of(first, self._turn) or BT601,
        )

    def _lifted(self, container: Any, base: Fraction) -> Fraction:
        """Seconds to add to all times: videos cannot start before 0, nor should they after hours of nothing."""
        start = self._origin * base
        if start >= 0 and not (is_broadcast(container) and start > AHEAD):
            return Fraction(0)
        self.counts.notices.append(f"{self._name} starts at {float(start):.3f} s; outputs start at 0")
        return -start

    def __iter__(self) -> Iterator[Item]:
        base = self.info.time_base
        selector = FrameSelector(self._selection, self.counts, self.info.size)
        lift, step = round(self._lift / base), round(1 / self.info.rate / base)
        following = self._origin
        for item in self._items():
            if isinstance(item, Sound):
                if self._wants_sound(item.packet):
                    yield _lift_sound(item, self._lift)
                continue
            pts = following if item.pts is None else item.pts
            following = pts + (item.duration or step)
            selected = selector.select(item, pts + lift, float((pts - self._origin) * base), self._turn)
            if selector.over:
                return
            if selected is not None:
                yield selected
        self._note_missing(selector.index)

    def _items(self) -> Iterator[Any]:
        """Read everything. A truncated file ends the source and adds a problem."""
        try:
            yield from self._reader
        except av.error.FFmpegError as error:
            self.counts.problems.append(f"{self._name} cannot be read to its end: {reason(error)}")

    def _wants_sound(self, packet: Any) -> bool:
        """Whether a packet lies within the selection, which begins with the first sound if no start is set."""
        seconds = (packet.pts if packet.pts is not None else packet.dts) * packet.time_base
        since, chosen = float(seconds - self._origin * self.info.time_base), self._selection
        lasts = (packet.duration or 0) * packet.time_base
        begun = since >= chosen.start if chosen.start else seconds + lasts + self._lift >= 0
        return begun and (chosen.end is None or since < chosen.end)

    def _note_missing(self, index: int) -> None:
        """Add a problem if the end of the file is missing, and a notice if only its announcement is wrong."""
        announced, reader, corrupt = self._announced, self._reader, self.counts.corrupt
        seen = f"and has {index}" + (f" and {corrupt} damaged ones" if corrupt else "")
        short = missing_bytes(Path(self._path)) if "://" not in self._path else 0
        indexed = "mp4" in reader.container.format.name
        if announced and (short or indexed) and reader.received < announced:
            self.counts.problems.append(f"{self._name} is truncated: it announces {announced} frames {seen}")
        elif short and not announced:
            self.counts.problems.append(f"{self._name} is truncated: {short} bytes are missing at its end")
        elif announced and index + reader.hidden + corrupt < announced:
            self.counts.notices.append(f"{self._name} announces {announced} frames {seen}; the file is complete")

    def stop(self) -> None:
        """See `Source.stop`. A file never blocks for long."""

    def close(self) -> None:
        """See `Source.close`."""
        self._reader.close()


def _lift_sound(sound: Sound, seconds: Fraction) -> Sound:
    if seconds:
        packet = sound.packet
        ticks = round(seconds / packet.time_base)
        packet.dts += ticks
        packet.pts = packet.dts if packet.pts is None else packet.pts + ticks
    return sound


def _announced(container: Any, stream: Any) -> int | None:
    """Number of frames that the file announces; None if it does not. An MP4 edit list removes some from the index."""
    stated = int(stream.frames)
    if "mp4" in container.format.name:
        return min(stated, len(stream.index_entries)) or stated or None
    return stated or None


def _frames_by_duration(container: Any, rate: Fraction) -> int | None:
    return round(container.duration / av.time_base * rate) if container.duration else None

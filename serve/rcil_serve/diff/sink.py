"""Sinks for compared frames: count them, and optionally draw them into a video."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from rcil_serve.diff.tally import Tally
from rcil_serve.diff.views import View
from rcil_serve.stream.frames import Sound, SourceInfo, Stages
from rcil_serve.stream.outputs.movie import Movie
from rcil_serve.stream.pipeline import SegmentedFrame


class TallySink:
    """Counts every frame and writes nothing.

    Args:
        tally: Counts the transitions.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def write(self, seen: SegmentedFrame) -> None:
        """See `Sink.write`. The mask holds codes."""
        self._tally.add(seen.frame, seen.found.mask)

    def write_sound(self, sound: Sound) -> None:
        """See `Sink.write_sound`."""

    def finish(self) -> None:
        """Called after the last frame."""

    def abandon(self) -> None:
        """Called after an error."""


class MovieSink:
    """Counts every frame and draws it into a video with the timestamps and sound of the source.

    Args:
        tally: Counts the transitions.
        view: Draws the frames.
        path: The video to write.
        info: Description of the source.
        stages: Records how long painting and encoding take.
        offset: Time in the source at which the video starts, in seconds.
        crf: H.264 quality of the video.
    """

    def __init__(
        self, tally: Tally, view: View, path: Path, info: SourceInfo, stages: Stages, *, offset: float, crf: int
    ) -> None:
        self._tally, self._view, self._stages = tally, view, stages
        self._movie = Movie(path, replace(info, size=view.size), offset=offset, crf=crf)

    def write(self, seen: SegmentedFrame) -> None:
        """See `Sink.write`. The mask holds codes."""
        shares = self._tally.add(seen.frame, seen.found.mask)
        start = time.perf_counter()
        picture = self._view.draw(seen.frame, seen.found.mask, shares)
        painted = time.perf_counter()
        self._movie.write(picture, seen.frame.pts)
        self._stages.paint.add(painted - start)
        self._stages.encode.add(time.perf_counter() - painted)

    def write_sound(self, sound: Sound) -> None:
        """See `Sink.write_sound`."""
        self._movie.write_sound(sound)

    def finish(self) -> None:
        """Complete the video and rename it."""
        self._movie.finish()

    def abandon(self) -> None:
        """Close the video after an error; the frames written so far can be played."""
        self._movie.abandon()

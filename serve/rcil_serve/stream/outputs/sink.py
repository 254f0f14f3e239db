"""Writes all outputs of a video run."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import ConfigError
from rcil_serve.runtime.backends import Mask
from rcil_serve.runtime.painter import Painter, shares
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.stream.frames import Counts, Sound, SourceInfo, Stages
from rcil_serve.stream.outputs.encoders import Encoding
from rcil_serve.stream.outputs.growing_file import open_lines, part_of, write_error
from rcil_serve.stream.outputs.masks import IdTable, MaskFiles, open_masks
from rcil_serve.stream.outputs.movie import Movie
from rcil_serve.stream.outputs.timeline import Timeline, draw_timeline
from rcil_serve.stream.pipeline import SegmentedFrame

FLUSH_SECONDS = 1.0


class Records:
    """Writes JSON lines with frame, time, share of each class that occurs, confidence and latency.

    Args:
        path: The file; an existing one is replaced at the end.
        names: Class names in the order of rows.
    """

    def __init__(self, path: Path, names: list[str]) -> None:
        self.path, self.part, self._names = path, part_of(path), names
        self._file = open_lines(self.part, "w")
        self._flushed = time.monotonic()

    def write(self, seen: SegmentedFrame, shares: NDArray[np.float64], lag: float) -> None:
        """Write one frame.

        Args:
            seen: The frame.
            shares: Share of its pixels by class row.
            lag: Seconds since it was decoded.
        """
        line = {
            "frame": seen.frame.index,
            "time": round(seen.frame.time, 6),
            "shares": {
                name: round(float(share), 6) for name, share in zip(self._names, shares, strict=True) if share > 0
            },
            "confidence": None if seen.found.confidence is None else round(seen.found.confidence, 4),
            "infer_ms": round(1000 * seen.infer_seconds, 3),
            "latency_ms": round(1000 * lag, 3),
        }
        if seen.frame.name:
            line["file"] = seen.frame.name
        self._put(json.dumps(line) + "\n")

    def _put(self, text: str) -> None:
        try:
            self._file.write(text)
            if time.monotonic() - self._flushed > FLUSH_SECONDS:
                self._file.flush()
                self._flushed = time.monotonic()
        except OSError as error:
            raise write_error(self.part, error) from error

    def finish(self) -> None:
        """Write the remaining lines and rename the file."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self.part.replace(self.path)
        except OSError as error:
            raise write_error(self.path, error) from error

    def abandon(self) -> None:
        """Close the file after an error; its lines stay under its temporary name."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            if not self.part.stat().st_size:
                self.part.unlink()


class Smoother:
    """Suppresses flicker: a pixel changes its class only after `frames` consecutive frames with the same new class.

    Args:
        frames: 1 (no smoothing) to 255.
    """

    def __init__(self, frames: int) -> None:
        if not 1 <= frames <= 255:
            raise ConfigError(f"masks cannot be smoothed over {frames} frames", "Choose 1 to 255.")
        self._frames = frames
        self._shown: Mask | None = None
        self._candidate: Mask | None = None
        self._count: NDArray[np.uint8] | None = None

    def smooth(self, mask: Mask) -> Mask:
        """Smooth the next mask [H, W] of a video. A mask of another size restarts the smoothing."""
        if self._frames <= 1:
            return mask
        if self._shown is None or self._shown.shape != mask.shape:
            self._shown, self._candidate = mask.copy(), mask.copy()
            self._count = np.zeros(mask.shape, np.uint8)
            return mask
        assert self._candidate is not None and self._count is not None
        same = mask == self._candidate
        self._count += 1
        self._count[~same] = 1
        self._count[mask == self._shown] = 0
        self._candidate = mask
        change = self._count >= self._frames
        self._shown = np.where(change, mask, self._shown)
        self._count[change] = 0
        return self._shown


@dataclass(frozen=True)
class Targets:
    """Files to write; all are optional."""

    video: Path | None = None
    masks: Path | None = None
    """A `.mkv` file, or a folder for PNG files."""
    records: Path | None = None
    timeline: Path | None = None

    def as_dict(self) -> dict[str, Path]:
        """Requested files, by name."""
        return {name: path for name in self.__dataclass_fields__ if (path := getattr(self, name)) is not None}


class Overlays:
    """Smooths the masks of a video and paints them over its frames.

    Args:
        painter: Draws the overlay; None if there is no video.
        smooth: Number of frames over which masks are smoothed.
    """

    def __init__(self, painter: Painter | None, smooth: int) -> None:
        self._painter, self._smoother = painter, Smoother(smooth)

    def paint(self, seen: SegmentedFrame) -> SegmentedFrame:
        """See `run_pipeline`; frames must arrive in order of time."""
        found = seen.found._replace(mask=self._smoother.smooth(seen.found.mask))
        if self._painter is None:
            return replace(seen, found=found)
        return replace(seen, found=found, drawn=self._painter.paint(seen.frame.picture, found.mask, found.grid_size))


class FileSink:
    """Encodes and records.

    Args:
        targets: Files to write.
        info: Description of the source.
        counts: Frame counts of the source, to mark drops in the timeline.
        predictor: Provides the class table.
        stages: Records how long encoding takes.
        offset: Time in the source at which the outputs start, in seconds.
        encoding: How the video is encoded; None is the default.
    """

    def __init__(
        self,
        targets: Targets,
        info: SourceInfo,
        counts: Counts,
        predictor: Predictor,
        stages: Stages,
        *,
        offset: float = 0.0,
        encoding: Encoding | None = None,
    ) -> None:
        self._targets, self._info, self._counts = targets, info, counts
        self._classes, self._stages = predictor.classes, stages
        self._ids = IdTable(predictor.classes)
        self._timeline = Timeline(len(self._classes))
        self._movie: Movie | None = None
        self._masks: MaskFiles | Movie | None = None
        self._records: Records | None = None
        try:
            if targets.video is not None:
                self._movie = Movie(targets.video, info, offset=offset, encoding=encoding)
            if targets.masks is not None:
                self._masks = open_masks(targets.masks, info, self._ids, offset=offset)
            if targets.records is not None:
                self._records = Records(targets.records, [c.name for c in self._classes])
        except BaseException:
            self.abandon()
            raise

    def write(self, seen: SegmentedFrame) -> None:
        """See `Sink.write`."""
        mask = seen.found.mask
        if self._movie is not None:
            assert seen.drawn is not None, "frames of a video are painted before"
            start = time.perf_counter()
            self._movie.write(seen.drawn, seen.frame)
            self._stages.encode.add(time.perf_counter() - start)
        if self._masks is not None:
            self._masks.write(self._ids.of(mask), seen.frame)
        if self._records is not None or self._targets.timeline is not None:
            self._note(seen, mask)

    def _note(self, seen: SegmentedFrame, mask: Mask) -> None:
        parts = shares(mask, len(self._classes))
        if self._targets.timeline is not None:
            self._timeline.add(seen.frame.time, parts)
            self._timeline.mark_drops(seen.frame.time, self._counts)
        if self._records is not None:
            self._records.write(seen, parts, time.perf_counter() - seen.frame.ready)

    def write_sound(self, sound: Sound) -> None:
        """See `Sink.write_sound`."""
        if self._movie is not None:
            self._movie.write_sound(sound)

    def finish(self) -> None:
        """Complete all files."""
        for output in (self._movie, self._masks, self._records):
            if output is not None:
                output.finish()
        if self._targets.timeline is not None:
            self._timeline.mark_gaps(self._counts)
            draw_timeline(self._targets.timeline, self._timeline, self._classes, self._info.name)

    def abandon(self) -> None:
        """Close all files after an error; what was written stays readable."""
        for output in (self._movie, self._masks, self._records):
            if output is not None:
                output.abandon()

"""What a video costs besides its model: transcoding alone, single stages, presets and decoding; see `video.py`."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from workers import competitors, processor_seconds

from rcil.model.metadata import class_table
from rcil_export.timing.interleaved import interleaved
from rcil_serve.runtime.geometry import letterbox
from rcil_serve.runtime.painter import Painter, shares
from rcil_serve.runtime.planes import BT601, Planes
from rcil_serve.stream import priority
from rcil_serve.stream.frames import SourceInfo
from rcil_serve.stream.outputs.encoders import Encoding, add_stream
from rcil_serve.stream.outputs.movie import Movie
from rcil_serve.stream.sources import open_source
from rcil_serve.stream.sources.container import picture_of

SIZE = (720, 1280)
NAMES = ["background", *(f"class {index}" for index in range(1, 21))]


def large_areas(size: tuple[int, int]) -> np.ndarray:
    """A mask of large areas, as networks predict."""
    small = np.random.default_rng(1).integers(0, len(NAMES), (9, 16), dtype=np.uint8)
    return cv2.resize(small, size[::-1], interpolation=cv2.INTER_NEAREST)


def transcode(clip: Path, out: Path, encoding: Encoding | None = None) -> None:
    """Decode and encode, and nothing else."""
    with av.open(str(clip)) as source, av.open(str(out), "w") as target:
        given = source.streams.video[0]
        given.thread_type = "AUTO"
        info = SourceInfo("", SIZE, Fraction(30), Fraction(given.time_base))
        stream = add_stream(target, encoding or Encoding(), info)
        for frame in source.decode(given):
            frame.pict_type = 0
            target.mux(stream.encode(frame))
        target.mux(stream.encode(None))


class Costs:
    """Processor time per frame of each variant, while `interleaved` measures their times."""

    def __init__(self, frames: int) -> None:
        self._frames = frames
        self.found: dict[str, list[float]] = {}

    def of(self, name: str, action: Callable[[], object]) -> Callable[[], object]:
        """The action, measured."""

        def measured() -> None:
            before = processor_seconds()
            action()
            self.found.setdefault(name, []).append(1000 * (processor_seconds() - before) / self._frames)

        return measured


def stage_costs(clip: Path, folder: Path, size: tuple[int, int], frames: int) -> dict[str, float]:
    """Median processor time of each stage in milliseconds per frame, one after the other."""
    found: dict[str, list[float]] = {}

    def timed(name: str, action: Callable[..., Any], *arguments: object) -> Any:
        before = time.process_time()
        result = action(*arguments)
        found.setdefault(name, []).append(1000 * (time.process_time() - before))
        return result

    classes = class_table([NAMES])
    painter, box, small = Painter(classes), letterbox(SIZE, size), large_areas(size)
    slot = Planes.empty(SIZE, BT601)
    with av.open(str(clip)) as container:
        stream = container.streams.video[0]
        info = SourceInfo("", SIZE, Fraction(30), Fraction(stream.time_base))
        movie = Movie(folder / "stages.mp4", info)
        decoded = container.decode(stream)
        for _ in range(frames):
            frame = timed("decode", next, decoded)
            timed("copy to shared memory", picture_of(frame, 0).copy_to, slot)
            timed("scale, RGB, letterbox", box.place, slot, (124, 116, 104))
            mask = timed("mask back", box.undo, small)
            drawn = timed("paint", painter.paint, slot, mask, box.inner)
            timed("shares", shares, mask, len(classes))
            timed("copy, encode", movie.write, drawn, frame)
        movie.finish()
    return {name: statistics.median(values) for name, values in found.items()}


def preset_costs(clip: Path, folder: Path, frames: int, presets: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Processor time per frame, size and quality of the presets, transcoding the clip."""
    with av.open(str(clip)) as container:
        given = [frame.to_ndarray().astype(np.float32) for frame in container.decode(video=0)]
    rows = {}
    for preset in presets:
        out = folder / f"{preset}.mp4"
        before = processor_seconds()
        transcode(clip, out, Encoding("x264", preset=preset))
        cost = 1000 * (processor_seconds() - before) / frames
        with av.open(str(out)) as container:
            errors = [
                float(np.mean((frame.to_ndarray() - wanted) ** 2))
                for frame, wanted in zip(container.decode(video=0), given, strict=True)
            ]
        quality = 10 * float(np.log10(255**2 / np.mean(errors)))
        rows[preset] = {"cpu_ms": cost, "kilobytes": out.stat().st_size / 1000 / frames, "psnr_db": quality}
    return rows


def show_decoding(clip: Path, rounds: int) -> None:
    """Print how long it takes to decode the clip in a process of its own, at several priorities."""
    start_of_child = "from rcil_serve.stream import priority; priority.NICE = {nice}; "

    def decode(nice: int) -> None:
        from rcil_serve.stream.sources import isolated

        before = isolated._CHILD
        isolated._CHILD = before.replace("from rcil_serve", start_of_child.format(nice=nice) + "from rcil_serve", 1)
        try:
            source = open_source(str(clip), isolated=True)
            for _ in source:
                pass
            source.close()
        finally:
            isolated._CHILD = before

    levels = (0, priority.NICE, 15)
    with competitors(os.cpu_count() or 1):
        times = interleaved({str(nice): lambda nice=nice: decode(nice) for nice in levels}, rounds, 0)
    print(f"decoding next to {os.cpu_count()} busy processes, seconds:")
    for nice, values in times.items():
        print(f"  niceness {nice:>2}: {spread(values)}")


def spread(values: list[float], scale: float = 1.0) -> str:
    low, high = min(values) * scale, max(values) * scale
    return f"{statistics.median(values) * scale:.2f} ({low:.2f} to {high:.2f})"

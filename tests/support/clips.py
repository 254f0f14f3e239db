"""Generated clips with uneven frame times, sound and rotation, and what a file holds."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import av.error
import numpy as np

from rcil_serve.stream.frames import Sound, Source
from rcil_serve.stream.outputs.movie import Movie
from rcil_serve.stream.sources import open_source

BASE = Fraction(1, 12800)


def uneven_times(count: int, seed: int = 0) -> list[int]:
    """Presentation times in units of `BASE`: 20 to 60 ms between frames."""
    steps = np.random.default_rng(seed).integers(256, 768, count)
    return [0, *np.cumsum(steps)[:-1].tolist()]


def picture(index: int, height: int, width: int) -> np.ndarray:
    """A gradient with a bar that moves."""
    rows, columns = np.mgrid[:height, :width]
    pixels = np.stack([255 * rows // height, 255 * columns // width, np.full_like(rows, 90)], axis=2).astype(np.uint8)
    at = 7 * index % width
    pixels[:, at : at + max(4, width // 12)] = (240, 40, 30)
    return pixels


def make_clip(
    path: Path,
    frames: int = 12,
    size: tuple[int, int] = (48, 64),
    *,
    times: list[int] | None = None,
    sound: str | None = None,
    rotation: int = 0,
    options: dict[str, str] | None = None,
) -> list[int]:
    """Write an H.264 clip; returns its times in units of `BASE`.

    Args:
        path: The file.
        frames: How many.
        size: Height and width as stored.
        times: In units of `BASE`; uneven ones without.
        sound: An audio codec, for a tone as long as the clip.
        rotation: Degrees that players turn the picture against the clock.
        options: For FFmpeg's muxer.
    """
    times = times or uneven_times(frames)
    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream("libx264", rate=25)
        stream.height, stream.width = size
        stream.pix_fmt, stream.codec_context.time_base, stream.time_base = "yuv420p", BASE, BASE
        stream.codec_context.max_b_frames = 0
        stream.codec_context.options = {"preset": "ultrafast", "crf": "12"}
        if rotation:
            stream.set_display_rotation(rotation)
        tone = None
        if sound:
            tone = container.add_stream(sound, rate=16000)
            tone.layout = "mono"
        for index, pts in enumerate(times):
            frame = av.VideoFrame.from_ndarray(picture(index, *size), format="rgb24")
            frame.pts, frame.time_base = pts, BASE
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        if tone is not None:
            count = int(times[-1] * BASE * 16000)
            wave = (8000 * np.sin(np.arange(count) * 2 * np.pi * 440 / 16000)).astype(np.int16)
            for start in range(0, count, 1024):
                block = av.AudioFrame.from_ndarray(wave[None, start : start + 1024], format="s16", layout="mono")
                block.sample_rate, block.pts, block.time_base = 16000, start, Fraction(1, 16000)
                container.mux(tone.encode(block))
            container.mux(tone.encode(None))
    return times


@dataclass(frozen=True)
class Contents:
    """What a video file holds."""

    times: list[float]
    sizes: set[tuple[int, int]]
    rotations: set[int]
    sound: str | None
    sound_seconds: float
    pictures: list[np.ndarray]


def contents(path: Path, *, pictures: bool = False, form: str = "rgb24", cut: bool = False) -> Contents:
    """Everything in a file, decoded; with `cut` up to the frame that is not whole, as players do."""
    times, sizes, rotations, kept = [], set(), set(), []
    with av.open(str(path)) as container, contextlib.suppress(*([av.error.InvalidDataError] if cut else [])):
        for frame in container.decode(container.streams.video[0]):
            times.append(float(frame.pts * frame.time_base))
            sizes.add((frame.height, frame.width))
            rotations.add(int(frame.rotation) % 360)
            if pictures:
                kept.append(frame.to_ndarray(format=form))
    sound, seconds = None, 0.0
    with av.open(str(path)) as container:
        if container.streams.audio:
            stream = container.streams.audio[0]
            sound = stream.codec_context.name
            for frame in container.decode(stream):
                seconds = float(frame.pts * frame.time_base) + frame.samples / frame.sample_rate
    return Contents(times, sizes, rotations, sound, seconds, kept)


def copied(text: str | Path, path: Path, *, offset: float = 0.0, **options: object) -> Source:
    """Write all frames and tracks of a source to an MP4 file, without a model; returns the source after its end."""
    source = open_source(str(text), **options)
    movie = Movie(path, source.info, offset=offset)
    for item in source:
        if isinstance(item, Sound):
            movie.write_sound(item)
        else:
            movie.write(item.picture, item)
    movie.finish()
    source.close()
    return source


def tone(count: int, rate: int, channels: int, begin: int = 0) -> list[av.AudioFrame]:
    """Blocks of sound, a sine of another pitch in every channel."""
    layout = {1: "mono", 2: "stereo", 6: "5.1"}[channels]
    pitches = 220 * np.arange(1, channels + 1)[:, None]
    wave = (8000 * np.sin(np.arange(begin, begin + count) * 2 * np.pi * pitches / rate)).astype(np.int16)
    blocks = []
    for start in range(0, count, 1024):
        data = np.ascontiguousarray(wave[:, start : start + 1024].T.reshape(1, -1))
        block = av.AudioFrame.from_ndarray(data, format="s16", layout=layout)
        block.sample_rate, block.pts, block.time_base = rate, begin + start, Fraction(1, rate)
        blocks.append(block)
    return blocks


def transport_stream(path: Path, begin: float, frames: int = 50, rate: int = 48000) -> bytes:
    """MPEG-TS at 25 fps with sound, whose clock starts at `begin` seconds."""
    tick = Fraction(1, 90000)
    with av.open(str(path), "w", options={"mpegts_copyts": "1"}) as out:
        video = out.add_stream("libx264", rate=25)
        video.height, video.width, video.pix_fmt = 48, 64, "yuv420p"
        video.codec_context.time_base = video.time_base = tick
        video.codec_context.max_b_frames, video.codec_context.gop_size = 2, 10
        sound = out.add_stream("mp2", rate=rate, layout="mono")
        blocks = tone(frames * rate // 25, rate, 1)
        for index in range(frames):
            frame = av.VideoFrame.from_ndarray(picture(index, 48, 64), format="rgb24")
            frame.pts, frame.time_base = round(begin / tick) + 3600 * index, tick
            out.mux(video.encode(frame))
            while blocks and blocks[0].pts <= index * rate // 25:
                block = blocks.pop(0)
                block.pts += round(begin * rate)
                out.mux(sound.encode(block))
        out.mux(video.encode(None))
        out.mux(sound.encode(None))
    return path.read_bytes()

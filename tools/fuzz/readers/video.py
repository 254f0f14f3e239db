"""Video files and folders of images as sources of frames."""

from __future__ import annotations

import functools
import io
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import av
import av.logging

from rcil_serve.stream.frames import Frame
from rcil_serve.stream.sources import Selection, open_source
from tools.fuzz.cases import Case, Reader
from tools.fuzz.mutate import TEXTS, damaged
from tools.fuzz.seeds import damaged_image, jpeg, pixels, png

KINDS = {"mp4": "mpeg4", "avi": "mjpeg", "mkv": "libx264", "ts": "mpeg2video", "webm": "libvpx", "gif": "gif"}
FRAMES = 3
SIDE = 16


def readers() -> dict[str, Reader]:
    """The readers of this module."""
    av.logging.set_level(None)
    return {"video": Reader("video", make_clip, read), "pictures": Reader("pictures", make_pictures, read)}


def read(folder: Path) -> None:
    """Read the first frames as `rcil-serve video` does."""
    (path,) = folder.glob("source*")
    source = open_source(str(path), Selection(most=2 * FRAMES))
    try:
        for item in source:
            assert not isinstance(item, Frame) or item.pixels.shape == (*source.info.size, 3)
    finally:
        source.close()


def make_clip(random: Random) -> Case:
    """A damaged clip of a few frames in one of several containers."""
    ending = random.choice(list(KINDS))
    others = [clip(other) for other in KINDS]
    data = clip(ending)
    if ending == "mp4" and random.random() < 0.5:
        data = data[: data.find(b"moov") - 4] + damaged(random, data[data.find(b"moov") - 4 :])
    else:
        data = damaged(random, data, others)
    return {f"source.{ending}": data}


def make_pictures(random: Random) -> Case:
    """A folder or a list of images, some of which are damaged."""
    files = {"a.png": png(), "b.jpg": jpeg(), "c.png": png(1, 300)}
    name = random.choice(list(files))
    files[name] = damaged_image(random, files[name])
    if random.random() < 0.5:
        return {f"source/{name}": data for name, data in files.items()}
    lines = b"# list\na.png\nb.jpg\nc.png\n"
    odd = random.choice((*TEXTS, "x" * 5000, "..", ".", "/dev/null", "a.png/b", "*.png")).encode()
    listing = damaged(random, lines) if random.random() < 0.7 else lines + odd + b"\n"
    return {**files, "source.txt": listing}


@functools.cache
def clip(ending: str) -> bytes:
    """Encode a clip."""
    file: Any = io.BytesIO()
    forms = {"ts": "mpegts", "mkv": "matroska"}
    with av.open(file, "w", format=forms.get(ending, ending)) as container:
        stream: Any = container.add_stream(KINDS[ending], rate=Fraction(25))
        stream.height = stream.width = SIDE
        stream.pix_fmt = {"mjpeg": "yuvj420p", "gif": "rgb8"}.get(KINDS[ending], "yuv420p")
        for index in range(FRAMES):
            frame = av.VideoFrame.from_ndarray(pixels(SIDE, SIDE), format="rgb24")
            frame.pts = index
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    content: bytes = file.getvalue()
    return content

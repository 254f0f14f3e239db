"""The frames of a video file or of a folder of images, one at a time."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from rcil.core.errors import ConfigError
from rcil.core.images import MAX_PIXELS, SUFFIXES, Image, is_too_large, read_rgb
from rcil.core.reading import DataError, readable
from rcil.labelling.prelabel import find_images

_HINT = "Check the file with another player, or convert it to MP4 with H.264."
_PLAYLISTS = (b"#EXTM3U", b"ffconcat", b"v=0", b"c=IN IP")


@dataclass(frozen=True, eq=False)
class Frame:
    """One image of a source."""

    name: str
    """Path without suffix in a new folder of images."""
    image: Image
    """RGB [H, W, 3]."""
    number: int
    """Position in the source, from 0."""
    seconds: float | None = None
    """Time in the video; None in a folder."""
    path: Path | None = None
    """The image file; None in a video."""


class Folder:
    """A folder of images or a site folder, in the order of their names."""

    fps: float | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found = list(find_images(path).items())
        self.count: int = len(self._found)

    def frames(self, every: int = 1, only: Collection[int] | None = None) -> Iterator[Frame]:
        """Every Nth image, or those with these numbers; others are not read."""
        for number, (name, path) in enumerate(self._found):
            if number % every == 0 and (only is None or number in only):
                yield Frame(name, read_rgb(path), number, path=path)


class Video:
    """A video file. OpenCV decodes it, so that nothing else needs to be installed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        capture = self._open()
        fps, count = capture.get(cv2.CAP_PROP_FPS), capture.get(cv2.CAP_PROP_FRAME_COUNT)
        capture.release()
        self.fps: float | None = fps if math.isfinite(fps) and 0 < fps <= 1000 else None
        self.count: int = int(count) if 0 < count < 2**31 else 0
        """Number of frames as the file states it, for the progress; 0 if unknown."""

    def frames(self, every: int = 1, only: Collection[int] | None = None) -> Iterator[Frame]:
        """Every Nth frame, or those with these numbers; decoding ends after the last of them."""
        capture = self._open()
        last = math.inf if only is None else max(only, default=-1)
        number = 0
        try:
            while number <= last and capture.grab():
                if number % every == 0 and (only is None or number in only):
                    seconds = capture.get(cv2.CAP_PROP_POS_MSEC) / 1000
                    found, pixels = capture.retrieve()
                    if found:
                        image = np.ascontiguousarray(pixels[..., ::-1], np.uint8)
                        yield Frame(f"{self.path.stem}_{number:06d}", image, number, seconds)
                number += 1
        finally:
            capture.release()

    def _open(self) -> cv2.VideoCapture:
        with readable(self.path), self.path.open("rb") as file:
            if file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_PLAYLISTS):
                raise DataError(f"{self.path} is a playlist that refers to other files", "Use the video itself.")
        capture = cv2.VideoCapture(str(self.path), cv2.CAP_FFMPEG)
        size = int(capture.get(cv2.CAP_PROP_FRAME_HEIGHT)), int(capture.get(cv2.CAP_PROP_FRAME_WIDTH))
        if not capture.isOpened() or 0 in size:
            raise DataError(f"{self.path} cannot be opened as a video", _HINT)
        if is_too_large(size):
            limit = f"The limit is {MAX_PIXELS // 10**6} megapixels."
            raise DataError(f"{self.path} is {size[1]} x {size[0]} pixels", limit)
        return capture


def open_source(path: Path) -> Folder | Video:
    """Open a folder of images or a video file; raises if the path is neither."""
    if path.is_dir():
        return Folder(path)
    if not path.exists():
        raise DataError(f"no file or folder at {path}", "Give a video file or a folder of images.")
    if path.suffix.lower() in SUFFIXES:
        raise ConfigError(f"{path} is a single image", "Give a video file or a folder of images.")
    return Video(path)

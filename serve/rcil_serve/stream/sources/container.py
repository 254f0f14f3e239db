"""What files and streams share: containers of FFmpeg, and whole, upright frames out of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import av.error
import cv2
import numpy as np

from rcil.core.image_header import MAX_PIXELS, is_too_large
from rcil.core.images import Image
from rcil_serve.runtime.geometry import letterbox
from rcil_serve.stream.frames import Counts, SourceError

TURNS = {90: cv2.ROTATE_90_COUNTERCLOCKWISE, 180: cv2.ROTATE_180, 270: cv2.ROTATE_90_CLOCKWISE}
"""PyAV tells by how many degrees a frame is to be turned against the clock."""
LIMITS = {"max_pixels": str(MAX_PIXELS)}
"""For FFmpeg's decoders: a stream may state another size at any time."""
PLAYLISTS = ("hls", "concat", "dash", "sdp", "imf")
"""Files that make FFmpeg open other files."""
PROBED = 2**20
"""Bytes of a file by which FFmpeg tells what it is."""
FIRST_PICTURE_S = 60.0
"""Seconds to look for a picture among nothing but damaged ones."""
HINT = "Play it with another program to see whether it is whole, or convert it to MP4 with H.264."


def open_container(
    path: str, name: str, options: dict[str, str] | None, timeout: float | None, form: str | None = None
) -> Any:
    """PyAV's container, or an error that says what is wrong with the file.

    FFmpeg's own error holds the address, which may have a password in it, so it goes no further.
    """
    if form is None and "://" not in path and _is_playlist(Path(path)):
        raise _only_names(name)
    try:
        container = av.open(
            path, options={**LIMITS, **(options or {})}, timeout=timeout, format=form, metadata_errors="replace"
        )
    except av.error.FFmpegError as error:
        raise SourceError(f"{name} cannot be opened as a video: {reason(error)}", HINT) from None
    if "://" not in path and container.format.name in PLAYLISTS:
        container.close()
        raise _only_names(name)
    return container


def _only_names(name: str) -> SourceError:
    return SourceError(f"{name} only names other files", "Give the video itself.")


def _is_playlist(path: Path) -> bool:
    """Whether FFmpeg would take a file for a list of others; looked at before it may open any of them.

    FFmpeg's own checks look no further than the first zero byte, which videos have early.
    """
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            text = file.read(PROBED).split(b"\0", 1)[0].removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:  # FFmpeg says what is wrong with it
        return False
    lower = text.lower()
    return (
        text.startswith((b"#EXTM3U", b"ffconcat", b"v=0"))
        or text.startswith(b"c=IN IP")
        or b"\nc=IN IP" in text
        or b"<mpd" in lower
        or b"<compositionplaylist" in lower
    )


def video_stream(container: Any, name: str) -> Any:
    """The first video stream, decoded with all cores."""
    if not container.streams.video:
        container.close()
        raise SourceError(f"{name} has no picture, only other streams", "Give a video.")
    stream = container.streams.video[0]
    context = stream.codec_context
    if context is None:
        container.close()
        raise SourceError(f"{name} holds a picture in a form that FFmpeg does not know", HINT)
    if is_too_large((context.height, context.width)):
        container.close()
        raise SourceError(
            f"{name} is {context.width} x {context.height} pixels", f"The limit is {MAX_PIXELS // 10**6} megapixels."
        )
    context.options = LIMITS
    stream.thread_type = "AUTO"
    return stream


def whole_frames(packet: Any, counts: Counts) -> Iterator[Any]:
    """The frames of a packet; what is damaged is counted and left out."""
    try:
        frames = packet.decode()
    except av.error.FFmpegError:
        counts.corrupt += 1
        return
    for frame in frames:
        if frame.is_corrupt:
            counts.corrupt += 1
        else:
            yield frame


def first_frame(container: Any, stream: Any) -> Any | None:
    """The first whole frame, for its size, rotation and time; None if there is none, or none for a long time."""
    end = time.monotonic() + FIRST_PICTURE_S
    for packet in container.demux(stream):
        for frame in whole_frames(packet, Counts()):
            return frame
        if time.monotonic() > end:
            break
    return None


def upright(pixels: Image, turn: int) -> Image:
    """The picture turned as its metadata asks."""
    return np.asarray(cv2.rotate(pixels, TURNS[turn]), np.uint8) if turn in TURNS else pixels


def fitted(pixels: Image, size: tuple[int, int]) -> Image:
    """The picture at the size of the first one, with bars where its shape differs; nearly always as it is."""
    found = (pixels.shape[0], pixels.shape[1])
    return pixels if found == size else letterbox(found, size).place(pixels, (0, 0, 0))


def reason(error: Any) -> str:
    """What FFmpeg says, without the code and the file's name."""
    return str(error.strerror or error)

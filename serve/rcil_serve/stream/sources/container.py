"""FFmpeg containers, and the selection of their decoded frames; shared by files and streams."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import av
import av.error
import cv2
import numpy as np
from av.codec.hwaccel import HWAccel
from av.stream import Discard, Disposition

from rcil.core.images import MAX_PIXELS, is_too_large
from rcil_serve.runtime.geometry import letterbox
from rcil_serve.runtime.planes import ColourSpace, Picture, Planes, size_of
from rcil_serve.stream.frames import Counts, Frame, Selection, SourceError
from rcil_serve.stream.sources.accelerated import CPU, open_decoded
from rcil_serve.stream.sources.errors import HINT, open_error

TURNS = {90: cv2.ROTATE_90_COUNTERCLOCKWISE, 180: cv2.ROTATE_180, 270: cv2.ROTATE_90_CLOCKWISE}
"""OpenCV rotation by PyAV's rotation in degrees, counter-clockwise."""
LIMITS = {"max_pixels": str(MAX_PIXELS)}
"""Options of FFmpeg's decoders, because a stream may change its size at any time."""
PLAYLISTS = ("hls", "concat", "dash", "sdp", "imf")
"""Formats that make FFmpeg open other files."""
INTERLEAVED = "nv12"
"""Pixel format with the chroma of a pixel in one place, which decoders in hardware use."""
PLANAR = ("yuv420p", "yuvj420p", INTERLEAVED)
"""Pixel formats of frames that stay in planes."""
SHALLOW = {
    **{f"yuv{chroma}p{bits}le": f"yuv{chroma}p" for chroma in (420, 422) for bits in (9, 10, 12, 14, 16)},
    "p010le": "yuv420p",
    "p012le": "yuv420p",
    "p016le": "yuv420p",
}
"""Formats of 8 bits by the deeper ones. FFmpeg converts deeper ones to RGB with chroma where the file states it to be,
but outputs here have it where the source has it, as for 8 bits."""
MATRICES: dict[int, Literal["bt601", "bt709"]] = {1: "bt709", 2: "bt601", 5: "bt601", 6: "bt601"}
"""Matrices by their codes in H.273, which FFmpeg uses."""
FULL_RANGE = 2
"""FFmpeg's code of values from 0 to 255."""
PROBED = 2**20
"""Number of bytes from which FFmpeg detects the format."""


def open_container(
    path: str,
    name: str,
    options: dict[str, str] | None,
    timeout: float | None,
    form: str | None = None,
    *,
    decoder: str = CPU,
    notices: list[str] | None = None,
) -> Any:
    """Open a PyAV container, or raise a `SourceError`; see `open_decoded` for `decoder` and `notices`.

    FFmpeg's own error contains the address, which may hold a password, so it is not chained.
    """
    if form is None and "://" not in path and _is_playlist(Path(path)):
        raise _playlist_error(name)
    given = {**LIMITS, **(options or {})}

    def opened(hardware: HWAccel | None) -> Any:
        return av.open(path, options=given, timeout=timeout, format=form, metadata_errors="replace", hwaccel=hardware)

    def decoded() -> Any:
        return open_decoded(opened, decoder, name, [] if notices is None else notices)

    try:
        try:
            container = decoded()
        except (av.error.HTTPBadRequestError, av.error.HTTPOtherClientError):
            if given.get("rtsp_transport") != "tcp":
                raise
            given["rtsp_transport"] = "udp"  # the server cannot send over the connection
            container = decoded()
    except av.error.FFmpegError as error:
        raise open_error(path, name, error) from None
    if "://" not in path and container.format.name in PLAYLISTS:
        container.close()
        raise _playlist_error(name)
    return container


def _playlist_error(name: str) -> SourceError:
    return SourceError(f"{name} is a playlist that refers to other files", "Use the video itself.")


def _is_playlist(path: Path) -> bool:
    """Whether FFmpeg would treat a file as a playlist; checked before FFmpeg can open any of its entries.

    FFmpeg's own checks stop at the first zero byte, which videos have early.
    """
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            text = file.read(PROBED).split(b"\0", 1)[0].removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:  # FFmpeg reports the error
        return False
    lower = text.lower()
    return (
        text.startswith((b"#EXTM3U", b"ffconcat", b"v=0"))
        or text.startswith(b"c=IN IP")
        or b"\nc=IN IP" in text
        or b"<mpd" in lower
        or b"<compositionplaylist" in lower
    )


def videos_of(container: Any) -> list[Any]:
    """The video streams of a container without cover pictures, the one to use first.

    It is the best variant of a playlist that offers several, otherwise the first in the file.
    """
    moving = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
    return sorted(moving, key=variant_of, reverse=True)


def variant_of(stream: Any) -> int:
    """Bandwidth of the variant of a playlist that a stream belongs to; 0 if it belongs to all, or there are none."""
    stated = stream.metadata.get("variant_bitrate", "")
    return int(stated) if stated.isdecimal() else 0


def read_only(container: Any, streams: Sequence[Any]) -> None:
    """Skip all other streams: their packets are not read, and their parts of a playlist are not fetched."""
    used = {stream.index for stream in streams}
    for stream in container.streams:
        if stream.index not in used:
            stream.discard = Discard.all


def video_stream(container: Any, name: str) -> Any:
    """Select the video stream (see `videos_of`), decoded with all cores."""
    videos = videos_of(container)
    if not videos:
        container.close()
        raise SourceError(f"{name} has no video stream", "Use a video.")
    stream = videos[0]
    context = stream.codec_context
    if context is None:
        container.close()
        raise SourceError(f"{name} uses a video codec that FFmpeg does not know", HINT)
    if is_too_large((context.height, context.width)):
        container.close()
        raise SourceError(
            f"{name} is {context.width} x {context.height} pixels", f"The limit is {MAX_PIXELS // 10**6} megapixels."
        )
    context.options = LIMITS
    stream.thread_type = "AUTO"
    return stream


def whole_frames(stream: Any, packet: Any, counts: Counts) -> Iterator[Any]:
    """Decode the frames of a packet, or the last ones if it is None; damaged ones are counted and skipped."""
    try:
        frames = stream.decode(packet)
    except av.error.FFmpegError:
        counts.corrupt += 1
        return
    for frame in frames:
        if frame.is_corrupt:
            counts.corrupt += 1
        else:
            yield frame


def turn_of(frame: Any) -> int:
    """Degrees by which a decoded frame must be rotated counter-clockwise, 0 to 359."""
    return int(frame.rotation) % 360


def upright_size(frame: Any) -> tuple[int, int]:
    """Height and width of a decoded frame after its rotation."""
    return (frame.width, frame.height) if turn_of(frame) in (90, 270) else (frame.height, frame.width)


def pixel_aspect(stream: Any, turn: int) -> Fraction:
    """Width of a pixel divided by its height, upright; 1 if the stream does not state it or states nonsense."""
    found = Fraction(stream.sample_aspect_ratio or 1)
    found = found if Fraction(1, 16) <= found <= 16 else Fraction(1)
    return 1 / found if turn in (90, 270) else found


def frame_rate(stream: Any) -> Fraction:
    """Frame rate of a stream in fps; 25 if it does not state one."""
    return Fraction(stream.average_rate or stream.guessed_rate or 25)


class FrameSelector:
    """Selects, counts and converts the decoded frames of one source.

    Args:
        selection: Which frames to process.
        counts: Counts of the source.
        size: Height and width of the upright frames.
    """

    def __init__(self, selection: Selection, counts: Counts, size: tuple[int, int]) -> None:
        self._selection, self._counts, self._size = selection, counts, size
        self.index = 0
        """Number of decoded frames, which is the index of the next one."""
        self.over = False
        """Whether no later frame will be selected."""

    def select(self, decoded: Any, pts: int, seconds: float, turn: int) -> Frame | None:
        """Convert the next decoded frame to an upright one; None if it is not selected.

        Args:
            decoded: The frame of PyAV.
            pts: Presentation timestamp in units of the source's time base.
            seconds: Presentation time in seconds.
            turn: See `turn_of`.
        """
        index, self.index = self.index, self.index + 1
        self.over = self._selection.over(seconds, self._counts.read)
        if not self._selection.wants(index, seconds, self._counts.read):
            self._counts.left_out += 1
            return None
        self._counts.read += 1
        return Frame(index, pts, seconds, fitted(picture_of(decoded, turn), self._size), time.perf_counter())


def space_of(decoded: Any, turn: int) -> ColourSpace | None:
    """Colour space of a decoded frame that can stay in planes; None for frames that become RGB.

    Colours without a matrix are read as BT.601, as FFmpeg does.
    """
    name = SHALLOW.get(decoded.format.name, decoded.format.name)
    if name not in PLANAR or (turn in TURNS and (decoded.height % 2 or decoded.width % 2)):
        return None
    matrix = MATRICES.get(int(decoded.colorspace))
    full_range = name == "yuvj420p" or int(decoded.color_range) == FULL_RANGE
    return None if matrix is None else ColourSpace(matrix, full_range)


def picture_of(decoded: Any, turn: int) -> Picture:
    """The picture of a decoded frame, upright. Planes are views of its memory."""
    space = space_of(decoded, turn)
    if decoded.format.name in SHALLOW:
        decoded = decoded.reformat(format=SHALLOW[decoded.format.name])
    if space is None:
        pixels = decoded.to_ndarray(format="rgb24")
        return np.asarray(cv2.rotate(pixels, TURNS[turn]), np.uint8) if turn in TURNS else pixels
    if decoded.format.name == INTERLEAVED:
        luma, both = decoded.planes
        pairs = _plane(both, 2 * both.width).reshape(both.height, both.width, 2)
        y, u, v = _plane(luma), np.ascontiguousarray(pairs[..., 0]), np.ascontiguousarray(pairs[..., 1])
    else:
        y, u, v = (_plane(plane) for plane in decoded.planes)
    planes = Planes(y, u, v, space)
    return planes.turned(TURNS[turn]) if turn in TURNS else planes


def _plane(plane: Any, width: int | None = None) -> Any:
    """A plane of a decoded frame as an array [h, w]; lines are longer in memory."""
    lines = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
    return lines[:, : plane.width if width is None else width]


def fitted(picture: Picture, size: tuple[int, int]) -> Picture:
    """Letterbox a picture to the size of the first frame, if its size differs."""
    found = size_of(picture)
    return picture if found == size else letterbox(found, size).place(picture, (0, 0, 0))

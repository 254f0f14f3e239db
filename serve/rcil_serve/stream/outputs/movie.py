"""Video files that stay playable even if writing is interrupted."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import av.error
import av.filter
import numpy as np

from rcil.core.errors import ConfigError
from rcil_serve.runtime.backends import Mask
from rcil_serve.runtime.planes import Picture, Planes, as_rgb
from rcil_serve.stream.frames import Frame, OutputError, Sound, SourceInfo
from rcil_serve.stream.outputs.encoders import Encoding, add_stream, even
from rcil_serve.stream.outputs.growing_file import RawFile, make_folder, part_of

FRAGMENTS = {
    "movflags": "frag_keyframe+delay_moov+default_base_moof",
    "frag_duration": "1000000",
    "flush_packets": "1",
    "max_interleave_delta": "1000000",
}
"""Each fragment is playable with those before, so a truncated file loses only its last one, a second at most.

FFmpeg holds back packets until all tracks have some, by default for ten seconds; subtitles may pause for hours.
"""
PICTURES, MASKS = ".mp4", ".mkv"
"""Suffixes of videos and of masks. Other containers do not survive a killed process, or lose ids."""


class Movie:
    """A video file with the timestamps of its source. It is named `part_of(path)` until it is complete.

    Args:
        path: The file: `.mp4` for H.264, or `.mkv` with `lossless` for grey FFV1.
        info: Description of the source.
        lossless: Store masks [H, W] instead of images [H, W, 3].
        wide: Masks hold 16-bit values.
        offset: Time in the source at which the file starts, in seconds.
        encoding: How H.264 is encoded; None is the default.
    """

    def __init__(
        self,
        path: Path,
        info: SourceInfo,
        *,
        lossless: bool = False,
        wide: bool = False,
        offset: float = 0.0,
        encoding: Encoding | None = None,
    ) -> None:
        check_suffix(path, lossless=lossless)
        self.path, self.part = path, part_of(path)
        self._info, self._lossless = info, lossless
        self._offset, self._time_base, self._last = offset, info.time_base, -1
        self.frames = 0
        make_folder(path)
        self._even = even(info.size)
        self._file = RawFile(self.part)
        try:
            self._container = av.open(self._file, "w", options={} if lossless else FRAGMENTS)
        except (av.error.FFmpegError, ValueError) as error:
            self._file.abandon()
            self.part.unlink(missing_ok=True)
            raise OutputError(f"cannot write {path}: {error}", "Check the folder.") from error
        self._stream = (
            self._mask_stream(info, wide) if lossless else add_stream(self._container, encoding or Encoding(), info)
        )
        self._tracks = [] if lossless else [self._add_track(track) for track in info.tracks]
        self._heard: dict[int, Fraction] = {}
        """Decoding time of the last packet of each track, in seconds."""

    def _mask_stream(self, info: SourceInfo, wide: bool) -> Any:
        stream = self._container.add_stream("ffv1", rate=info.rate)
        context = stream.codec_context
        context.height, context.width = info.size
        context.pix_fmt, context.time_base = "gray16le" if wide else "gray", info.time_base
        context.options = {"level": "3", "slicecrc": "1"}
        stream.time_base = info.time_base
        self._shape = None if info.aspect == 1 else _pixel_shape(info, context.pix_fmt)
        return stream

    def _add_track(self, track: Any) -> Any:
        stream = self._container.add_stream_from_template(track.template)
        if track.extradata:
            stream.codec_context.extradata = track.extradata
        if track.language:
            stream.metadata["language"] = track.language
        return stream

    def write(self, picture: Picture, frame: Frame) -> None:
        """Write a picture, or a mask [H, W] of a lossless file, at the timestamp of a source's frame."""
        encoded = self._mask_frame(as_rgb(picture)) if self._lossless else self._picture_frame(picture)
        encoded.pts = self._last = max(frame.pts - round(self._offset / self._time_base), self._last + 1)
        encoded.time_base = self._time_base
        with self._explained():
            self._container.mux(self._stream.encode(encoded))
        self.frames += 1

    def _picture_frame(self, picture: Picture) -> Any:
        planes = picture
        if not isinstance(planes, Planes) or planes.space != self._info.space:
            planes = Planes.of_rgb(as_rgb(picture), self._info.space)
        height, width = self._even
        frame = av.VideoFrame(width, height, "yuv420p")
        for source, plane in zip((planes.y, planes.u, planes.v), frame.planes, strict=True):
            lines = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, plane.line_size)
            rows, columns = source.shape
            lines[:rows, :columns] = source
            lines[rows:, :columns] = source[-1:]  # at most one row and one column
            lines[:, columns : plane.width] = lines[:, columns - 1 : columns]
        frame.colorspace, frame.color_range = (
            self._stream.codec_context.colorspace,
            self._stream.codec_context.color_range,
        )
        return frame

    def _mask_frame(self, mask: Mask) -> Any:
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(mask), format=self._stream.codec_context.pix_fmt)
        if self._shape is None:
            return frame
        self._shape.push(frame)
        return self._shape.pull()

    def write_sound(self, sound: Sound) -> None:
        """Write a packet of a track. Packets that overlap with earlier ones, as after a restart, are left out."""
        if sound.track >= len(self._tracks):
            return
        packet = sound.packet
        shift = round(self._offset / packet.time_base)
        packet.dts -= shift
        packet.pts = packet.dts if packet.pts is None else packet.pts - shift
        time_of = packet.dts * packet.time_base
        if sound.track in self._heard and time_of <= self._heard[sound.track]:
            return
        self._heard[sound.track] = time_of
        packet.stream = self._tracks[sound.track]
        with self._explained():
            self._container.mux(packet)

    def finish(self) -> None:
        """Complete the file and rename it."""
        with self._explained():
            self._container.mux(self._stream.encode(None))
            self._container.close()
            self._file.finish()
            self.part.replace(self.path)

    def abandon(self) -> None:
        """Close the file after an error. If it has frames, it stays playable under its temporary name."""
        with contextlib.suppress(av.error.FFmpegError, OSError):
            self._container.close()
        self._file.abandon()
        if not self.frames:
            self.part.unlink(missing_ok=True)
        elif not self._lossless:
            with contextlib.suppress(OSError):
                cut_to_fragments(self.part)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Convert FFmpeg's write errors to `OutputError`s."""
        try:
            yield
        except (av.error.FFmpegError, OSError) as error:
            if error.errno == errno.ENOSPC:
                raise DiskFullError(self.part, self.frames) from error
            raise OutputError(
                f"cannot write {self.part}: {error}", "The frames written so far can be played."
            ) from error


def _pixel_shape(info: SourceInfo, form: str) -> Any:
    """A filter that states the shape of pixels in every frame: PyAV cannot state it in a Matroska header."""
    graph = av.filter.Graph()
    height, width = info.size
    nodes = [
        graph.add("buffer", f"video_size={width}x{height}:pix_fmt={form}:time_base={info.time_base}"),
        graph.add("setsar", str(info.aspect)),
        graph.add("buffersink"),
    ]
    graph.link_nodes(*nodes).configure()
    return graph


class DiskFullError(OutputError):
    """The disk is full; carries the numbers needed to estimate the required space.

    Args:
        part: The incomplete file.
        frames: Number of frames in it.
    """

    def __init__(self, part: Path, frames: int) -> None:
        self.frames, self.written = frames, 0
        with contextlib.suppress(OSError):
            self.written = part.stat().st_size
        super().__init__(
            f"the disk is full: {part} has {self.written / 1e6:.1f} MB and {frames} frames",
            "Free some space or write elsewhere. The frames written so far can be played.",
        )

    def with_estimate(self, frames: int | None) -> DiskFullError:
        """Add an estimate of the space that all frames need, if their number is known."""
        if frames and self.frames:
            whole = self.written * frames / self.frames
            self.hint = (
                f"All {frames} frames need about {whole / 1e6:.1f} MB, {(whole - self.written) / 1e6:.1f} MB more than "
                f"available. Free that much or write elsewhere; the frames written so far can be played."
            )
        return self


def check_suffix(path: Path, *, lossless: bool) -> None:
    """Raise if the suffix of a video is not supported."""
    wanted = MASKS if lossless else PICTURES
    if path.suffix.lower() != wanted:
        what = "masks" if lossless else "videos"
        raise ConfigError(
            f"{what} cannot be written as {path.suffix or path.name}",
            f"End the name with {wanted}{', or name a folder for PNG files' if lossless else ''}.",
        )


def cut_to_fragments(path: Path) -> None:
    """Truncate an MP4 file after its last complete fragment, so that players accept it."""
    end, whole, length = 0, 0, path.stat().st_size
    with path.open("r+b") as file:
        while end + 8 <= length:
            file.seek(end)
            head = file.read(16)
            size = int.from_bytes(head[:4], "big")
            size = int.from_bytes(head[8:16], "big") if size == 1 else size
            if size < 8 or end + size > length:
                break
            end += size
            if head[4:8] in (b"mdat", b"moov"):
                whole = end
        file.truncate(whole)

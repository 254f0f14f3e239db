"""H.264 encoders on the CPU and in hardware, and the choice among them."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import av
import av.error
from av.codec.hwaccel import HWAccel
from av.video.reformatter import ColorRange, Colorspace

from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.log import Notify
from rcil_serve.stream.frames import SourceInfo
from rcil_serve.stream.hardware import absence, is_present

AUTO, X264 = "auto", "x264"
PRESETS = ("ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow")
SPACES = {"bt601": Colorspace.SMPTE170M, "bt709": Colorspace.ITU709}


@dataclass(frozen=True)
class Codec:
    """How FFmpeg calls an encoder."""

    name: str
    device: str = ""
    """Hardware that it needs; see `rcil_serve.stream.hardware`."""
    uploads: bool = False
    """Whether frames have to be uploaded before they reach the encoder."""
    quality: str = "crf"
    """Option that sets the quality; its scale is that of x264."""
    fixed: dict[str, str] = field(default_factory=dict)


CODECS = {
    "nvenc": Codec("h264_nvenc", "cuda", quality="cq", fixed={"rc": "vbr", "preset": "p3"}),
    "vaapi": Codec("h264_vaapi", "vaapi", uploads=True, quality="qp", fixed={"rc_mode": "CQP"}),
    X264: Codec("libx264", fixed={"x264-params": "sliced-threads=0:rc-lookahead=0"}),
}
"""Encoders by the names that users write, hardware first."""


@dataclass(frozen=True)
class Encoding:
    """How videos are encoded."""

    encoder: str = AUTO
    """`auto`, `x264`, `nvenc` or `vaapi`; `auto` prefers hardware."""
    crf: int = 21
    """Quality: 18 looks like the source, and 6 more halve the file size."""
    preset: str | None = None
    """Preset of x264, which `auto` then selects; None is `ultrafast`."""

    def __post_init__(self) -> None:
        if self.encoder not in (AUTO, *CODECS):
            raise ConfigError(f"unknown encoder '{self.encoder}'", did_you_mean(self.encoder, [AUTO, *CODECS]))
        if self.preset is not None and self.preset not in PRESETS:
            raise ConfigError(f"x264 has no preset '{self.preset}'", did_you_mean(self.preset, list(PRESETS)))
        if self.preset is not None and self.encoder not in (AUTO, X264):
            raise ConfigError(f"--preset is for x264, not for {self.encoder}", "Leave out --preset, or use x264.")


def chosen(encoding: Encoding, info: SourceInfo, notify: Notify = lambda text: None) -> Encoding:
    """The same encoding with an encoder that opens for a source.

    With `auto`, hardware that the machine has is tried first; if it cannot be opened, a notice says why.
    """
    if encoding.encoder != AUTO:
        problem = "" if encoding.encoder == X264 else _problem(encoding, info)
        if problem:
            raise ConfigError(f"{encoding.encoder} cannot encode here: {problem}", "Use --encoder x264, or auto.")
        return encoding
    for name, codec in CODECS.items():
        asked = Encoding(name, encoding.crf, encoding.preset if name == X264 else None)
        if name == X264:
            return asked
        if encoding.preset is None and is_present(codec.device) and codec.name in av.codecs_available:
            problem = _problem(asked, info)
            if not problem:
                notify(f"encoder: {name}")
                return asked
            notify(f"encoder: {X264}, because {name} cannot encode here: {problem}")
    raise AssertionError("x264 is always among the encoders")


def _problem(encoding: Encoding, info: SourceInfo) -> str:
    """Why an encoder in hardware does not open; empty if it does."""
    codec = CODECS[encoding.encoder]
    if codec.name not in av.codecs_available:
        return f"PyAV's FFmpeg was built without {codec.name}"
    try:
        with av.open(io.BytesIO(), "w", format="null") as container:
            add_stream(container, encoding, info).codec_context.open()
    except (av.error.FFmpegError, ValueError, NotImplementedError, RuntimeError) as error:
        return absence(codec.device) or str(getattr(error, "strerror", None) or error)
    return ""


def add_stream(container: Any, encoding: Encoding, info: SourceInfo) -> Any:
    """Add a stream for the frames of a source to a container."""
    codec = CODECS[X264 if encoding.encoder == AUTO else encoding.encoder]
    accelerated = {"hwaccel": HWAccel(codec.device)} if codec.uploads else {}
    stream = container.add_stream(codec.name, rate=info.rate, **accelerated)
    context = stream.codec_context
    context.height, context.width = even(info.size)
    context.pix_fmt, context.time_base = "yuv420p", info.time_base
    context.gop_size = min(120, max(10, round(info.rate)))
    context.max_b_frames = 0  # B-frames would shift the timestamps of the first frames
    context.colorspace = SPACES[info.space.matrix]
    context.color_range = ColorRange.JPEG if info.space.full_range else ColorRange.MPEG
    preset = {"preset": encoding.preset or PRESETS[0]} if codec is CODECS[X264] else {}
    context.options = {**codec.fixed, **preset, codec.quality: str(encoding.crf)}
    context.bit_rate = 0
    context.sample_aspect_ratio = stream.sample_aspect_ratio = info.aspect
    stream.time_base = info.time_base
    return stream


def even(size: tuple[int, int]) -> tuple[int, int]:
    """Round sides up to even numbers, which H.264 in 4:2:0 requires."""
    return size[0] + size[0] % 2, size[1] + size[1] % 2

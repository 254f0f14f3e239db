"""Opens the source that the user named."""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from pathlib import Path

from rcil_serve.stream.frames import Selection, Source, SourceError
from rcil_serve.stream.sources.accelerated import CPU, check_decoder
from rcil_serve.stream.sources.container import PLAYLISTS, open_container
from rcil_serve.stream.sources.file import FileSource
from rcil_serve.stream.sources.isolated import IsolatedSource
from rcil_serve.stream.sources.live import LiveOptions, LiveSource
from rcil_serve.stream.sources.pictures import PictureSource, find_pictures

STREAMS = ("rtsp", "rtsps", "rtmp", "rtmps", "udp", "rtp", "srt", "tcp")
WEB = ("http", "https")
CAMERA = r"\d{1,3}"
"""Pattern of a camera number."""
_CAMERA = {"linux": ("/dev/video{}", "v4l2"), "darwin": ("{}", "avfoundation"), "win32": ("video={}", "dshow")}


def open_source(
    text: str,
    selection: Selection | None = None,
    *,
    rate: Fraction = Fraction(10),
    live: LiveOptions | None = None,
    with_sound: bool = True,
    isolated: bool = False,
    decoder: str = CPU,
) -> Source:
    """Open a source.

    Args:
        text: A video file, a folder of images, a pattern, a list of images (.txt), the number of a camera, or an
            address (rtsp, http, ...).
        selection: Which frames to process.
        rate: Frame rate of image files, in fps.
        live: When to reconnect to cameras and streams, and when to give up.
        with_sound: Whether to deliver sound and subtitles.
        isolated: Whether to decode local files in another process, which a hostile file may crash.
        decoder: What decodes videos: `auto`, `cpu`, `cuda` or `vaapi`.
    """
    check_decoder(decoder)
    selection, live = selection or Selection(), live or LiveOptions()
    if re.fullmatch(CAMERA, text):
        address, form = _CAMERA.get(sys.platform, _CAMERA["linux"])
        return LiveSource(address.format(text), f"camera {text}", selection, live, form=form, decoder=decoder)
    scheme = text.partition("://")[0].lower() if "://" in text else ""
    if scheme in STREAMS:
        options = {"rtsp_transport": "tcp"} if scheme.startswith("rtsp") else {}
        return LiveSource(text, redacted(text), selection, live, options, with_sound=with_sound, decoder=decoder)
    if scheme in WEB:
        return _web_source(text, selection, live, decoder, with_sound=with_sound)
    if scheme:
        known = ", ".join((*STREAMS, *WEB))
        raise SourceError(f"{redacted(text)} has an unsupported scheme", f"Use one of {known}.")
    pictures = find_pictures(text)
    if pictures is not None:
        return PictureSource(pictures, text, rate, selection, isolated=isolated)
    opener = IsolatedSource if isolated else FileSource
    return opener(_existing(text), text, selection, with_sound=with_sound, decoder=decoder)


def local_files(text: str) -> list[Path]:
    """Local files that a source reads; none for cameras and addresses."""
    if "://" in text or re.fullmatch(CAMERA, text):
        return []
    named = Path(text)
    return [*(find_pictures(text) or ()), *([named] if named.is_file() else [])]


def _web_source(text: str, selection: Selection, live: LiveOptions, decoder: str, *, with_sound: bool) -> Source:
    """Distinguish a remote file from a live stream by its duration or size; a live playlist has a size too."""
    name = redacted(text)
    notices: list[str] = []
    container = open_container(text, name, None, live.timeout, decoder=decoder, notices=notices)
    source: Source
    if bool(container.duration) or (container.format.name not in PLAYLISTS and container.size > 0):
        source = FileSource(text, name, selection, container=container, with_sound=with_sound)
    else:
        source = LiveSource(text, name, selection, live, container=container, with_sound=with_sound, decoder=decoder)
    source.counts.notices += notices
    return source


def _existing(text: str) -> str:
    path = Path(text)
    if not path.exists():
        raise SourceError(f"{text} does not exist", "Use a video, a folder, a pattern, a camera number or an address.")
    if path.is_file() and path.stat().st_size == 0:
        raise SourceError(f"{text} is empty", "Copy the file again.")
    return text


def redacted(address: str) -> str:
    """Remove user name, password and query from an address.

    Users type passwords that contain an unescaped slash, question mark or #, so everything before the last @ is
    treated as a secret.
    """
    scheme, _, rest = address.partition("://")
    secret, at, location = rest.rpartition("@")
    public = re.split(r"[?#]", location, maxsplit=1)[0]
    return f"{scheme}://{'***@' if at and secret else ''}{public}"

"""From what the user typed to a source."""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from pathlib import Path

from rcil_serve.stream.frames import SourceError
from rcil_serve.stream.sources.container import PLAYLISTS, open_container
from rcil_serve.stream.sources.file import FileSource
from rcil_serve.stream.sources.live import LiveOptions, LiveSource
from rcil_serve.stream.sources.pictures import PictureSource, find_pictures
from rcil_serve.stream.sources.protocol import Selection, Source

STREAMS = ("rtsp", "rtsps", "rtmp", "rtmps", "udp", "rtp", "srt", "tcp")
WEB = ("http", "https")
CAMERA = r"\d{1,3}"
"""A source that is the number of a camera."""
_CAMERA = {"linux": ("/dev/video{}", "v4l2"), "darwin": ("{}", "avfoundation"), "win32": ("video={}", "dshow")}


def open_source(
    text: str,
    selection: Selection | None = None,
    *,
    rate: Fraction = Fraction(10),
    live: LiveOptions | None = None,
) -> Source:
    """Open a source.

    Args:
        text: A video file, a folder of images, a pattern, a list of images (.txt), the number of a camera, or an
            address (rtsp, http, ...).
        selection: Which frames are wanted.
        rate: Frames a second of image files.
        live: How patient to be with cameras and streams.
    """
    selection, live = selection or Selection(), live or LiveOptions()
    if re.fullmatch(CAMERA, text):
        address, form = _CAMERA.get(sys.platform, _CAMERA["linux"])
        return LiveSource(address.format(text), f"camera {text}", selection, live, form=form)
    scheme = text.partition("://")[0].lower() if "://" in text else ""
    if scheme in STREAMS:
        options = {"rtsp_transport": "tcp"} if scheme.startswith("rtsp") else {}
        return LiveSource(text, redacted(text), selection, live, options)
    if scheme in WEB:
        return _web_source(text, selection, live)
    if scheme:
        known = ", ".join((*STREAMS, *WEB))
        raise SourceError(f"{redacted(text)} is no address that can be opened", f"It must begin with one of {known}.")
    pictures = find_pictures(text)
    if pictures is not None:
        return PictureSource(pictures, text, rate, selection)
    return FileSource(_existing(text), text, selection)


def local_files(text: str) -> list[Path]:
    """The files on this machine that a source is read from; none for cameras and addresses."""
    if "://" in text or re.fullmatch(CAMERA, text):
        return []
    named = Path(text)
    return [*(find_pictures(text) or ()), *([named] if named.is_file() else [])]


def _web_source(text: str, selection: Selection, live: LiveOptions) -> Source:
    """A file behind an address has a length, in seconds or in bytes; a live stream has none, but its list has."""
    name = redacted(text)
    container = open_container(text, name, None, live.timeout)
    finite = bool(container.duration) or (container.format.name not in PLAYLISTS and container.size > 0)
    container.close()
    if finite:
        return FileSource(text, name, selection, timeout=live.timeout)
    return LiveSource(text, name, selection, live)


def _existing(text: str) -> str:
    path = Path(text)
    if not path.exists():
        raise SourceError(f"{text} does not exist", "Give a video, a folder, a pattern, a camera number or an address.")
    if path.is_file() and path.stat().st_size == 0:
        raise SourceError(f"{text} is empty", "Copy the file again.")
    return text


def redacted(address: str) -> str:
    """An address without the name and password in it, and without what follows the question mark.

    A password with a slash, a question mark or a # in it is not as addresses have them, and yet people type it. So
    everything up to the last @ is taken for a secret.
    """
    scheme, _, rest = address.partition("://")
    secret, at, place = rest.rpartition("@")
    public = re.split(r"[?#]", place, maxsplit=1)[0]
    return f"{scheme}://{'***@' if at and secret else ''}{public}"

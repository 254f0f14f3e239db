"""The class names of a mask file, as a text chunk of the PNG.

Masks hold class ids, and two models can give the same id to different classes. A mask that records its names is never
drawn with those of another model. Other programs ignore the chunk, and may drop it when they save the file.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import cv2
from numpy.typing import NDArray

from rcil.core.documents import parse_json
from rcil.core.images import PNG
from rcil.core.reading import DataError

_KIND, _KEYWORD = b"iTXt", b"rcil-classes"
_PREFIX = _KEYWORD + b"\0" + b"\0\0" + b"\0" + b"\0"
"""Keyword, no compression, no language, no translated keyword; UTF-8 text follows."""
_FILTER, _UP = 19, 32
"""OpenCV before 4.12 has no names for these and ignores them."""
_AS_RUNS = [
    cv2.IMWRITE_PNG_COMPRESSION,
    1,
    cv2.IMWRITE_PNG_STRATEGY,
    cv2.IMWRITE_PNG_STRATEGY_RLE,
    _FILTER,
    _UP,
]
_END = 12
"""Bytes of the last chunk, IEND, which is empty."""


def names_chunk(names: Mapping[int, str]) -> bytes:
    """The chunk that records class names by id."""
    body = _PREFIX + json.dumps(dict(names)).encode()
    return struct.pack(">I", len(body)) + _KIND + body + struct.pack(">I", zlib.crc32(_KIND + body))


def mask_png(ids: NDArray[Any], chunk: bytes = b"") -> bytes:
    """Class ids [H, W] of 8 or 16 bits as a PNG, with the chunk of `names_chunk`.

    Rows of a mask repeat the row above. Writing differences to it as runs takes a third of the time of libpng's own
    choice of filters, and fewer bytes.
    """
    return insert_chunk(cv2.imencode(".png", ids, _AS_RUNS)[1].tobytes(), chunk)


def insert_chunk(png: bytes, chunk: bytes) -> bytes:
    """A PNG with a chunk before its end; an empty chunk changes nothing."""
    return png[:-_END] + chunk + png[-_END:] if chunk else png


def recorded_names(png: bytes, source: str) -> dict[int, str] | None:
    """The class names by id of an intact PNG; None if it records none. `source` names it in errors."""
    offset = len(PNG)
    while offset + 8 <= len(png):
        (length,) = struct.unpack_from(">I", png, offset)
        kind, body = png[offset + 4 : offset + 8], png[offset + 8 : offset + 8 + length]
        if kind == _KIND and body.startswith(_PREFIX):
            try:
                return {int(key): str(name) for key, name in parse_json(body[len(_PREFIX) :].decode()).items()}
            except (ValueError, AttributeError) as error:
                hint = "Write the mask again, or save it with another program, which drops them."
                raise DataError(f"{source}: the recorded class names are unreadable", hint) from error
        offset += 12 + length
    return None

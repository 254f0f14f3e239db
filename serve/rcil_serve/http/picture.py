"""Uploaded photographs: their size is known before anything is decoded."""

from __future__ import annotations

import struct

import cv2
import numpy as np

from rcil.images import Image
from rcil_serve.http.body import Body
from rcil_serve.http.refusal import RefusalError

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers that state the size."""
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})
"""JPEG markers without a length."""


def decode(body: Body, max_pixels: int) -> Image:
    """A PNG or JPEG as RGB [H, W, 3], upright; 413 for more pixels than `max_pixels`, 400 for what is no image."""
    height, width = size_of(body)
    if height * width > max_pixels:
        raise RefusalError(
            413,
            f"the image has {width}x{height} pixels, more than {max_pixels}",
            "Send a smaller one, or raise --max-pixels.",
        )
    if body.startswith(JPEG) and b"\xff\xd9" not in body[-1024:]:
        raise RefusalError(400, "the JPEG is cut off", "Send it again.")
    pixels = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_COLOR)
    if pixels is None or pixels.size != height * width * 3:
        raise RefusalError(400, "the image cannot be decoded", "It may be damaged; send it again.")
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), np.uint8)


def size_of(body: Body) -> tuple[int, int]:
    """Height and width as the file's header states them."""
    size = None
    if body.startswith(PNG) and body[12:16] == b"IHDR" and len(body) >= 24:
        width, height = struct.unpack(">II", body[16:24])
        size = height, width
    elif body.startswith(JPEG):
        size = _jpeg_size(body)
    if size is None or 0 in size:
        raise RefusalError(400, "the body is no PNG or JPEG", "Send the bytes of an image file.")
    return size


def _jpeg_size(body: Body) -> tuple[int, int] | None:
    """From the first frame header, going from marker to marker."""
    place = len(JPEG)
    while place + 9 <= len(body) and body[place] == 0xFF:
        marker = body[place + 1]
        if marker == 0xFF:  # padding
            place += 1
        elif marker in _FRAMES:
            height, width = struct.unpack(">HH", body[place + 5 : place + 9])
            return height, width
        else:
            place += 2 if marker in _ALONE else 2 + int.from_bytes(body[place + 2 : place + 4], "big")
    return None


def encode_png(pixels: Image) -> bytes:
    """Grey [H, W] of 8 or 16 bits, or RGB [H, W, 3]; quick rather than small."""
    stored = pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    return cv2.imencode(".png", stored, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes()

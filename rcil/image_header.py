"""The size of a PNG or JPEG as its header states it, known before anything is decoded."""

from __future__ import annotations

import struct

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8"
MAX_PIXELS = 100_000_000
"""Of images and masks on disk: larger ones are refused before memory is taken for them."""
MAX_SIDE = 1_000_000
"""Longest side that libpng accepts."""
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers that state the size."""
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})
"""JPEG markers without a length."""


def stated_size(data: bytes | bytearray | memoryview) -> tuple[int, int] | None:
    """Height and width; None for what is no PNG or JPEG, or states no size."""
    if bytes(data[:8]) == PNG and bytes(data[12:16]) == b"IHDR" and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        size: tuple[int, int] | None = height, width
    elif bytes(data[:2]) == JPEG:
        size = _jpeg_size(data)
    else:
        size = None
    return None if size is None or 0 in size else size


def is_too_large(size: tuple[int, int]) -> bool:
    """Whether an image of this height and width is one that nobody meant to open."""
    return size[0] * size[1] > MAX_PIXELS or max(size) > MAX_SIDE


def _jpeg_size(data: bytes | bytearray | memoryview) -> tuple[int, int] | None:
    """From the first frame header, going from marker to marker."""
    place = len(JPEG)
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == 0xFF:  # padding
            place += 1
        elif marker in _FRAMES:
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            return height, width
        else:
            place += 2 if marker in _ALONE else 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return None

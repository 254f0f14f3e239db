"""The size of a PNG or JPEG as its header states it, known before anything is decoded."""

from __future__ import annotations

import struct

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8"
MAX_PIXELS = 100_000_000
"""Of images and masks on disk: larger ones are refused before memory is taken for them."""
MAX_SIDE = 1_000_000
"""Longest side that libpng accepts."""
MAX_SCANS = 100
"""Of a progressive JPEG; usual ones have ten."""
_SCAN = b"\xff\xda"
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


def has_too_many_scans(data: bytes | bytearray) -> bool:
    """Whether a JPEG passes over its pixels so often that decoding it would take hours.

    A pass takes thirty bytes of the file and goes over every pixel. Its marker does not occur in compressed data.
    """
    return data.startswith(JPEG) and data.count(_SCAN) > MAX_SCANS


def lacks_bytes(data: bytes | bytearray) -> bool:
    """Whether a chunk of a PNG is longer than the file: OpenCV takes memory for all of it before it finds that out."""
    place, last = len(PNG), not data.startswith(PNG)
    while place < len(data) and not last:
        last = data[place + 4 : place + 8] == b"IEND"
        place += 12 + int.from_bytes(data[place : place + 4], "big")
    return data.startswith(PNG) and place > len(data)


def _jpeg_size(data: bytes | bytearray | memoryview) -> tuple[int, int] | None:
    """From the first frame header, going from marker to marker.

    A zero after 0xFF is no marker: a decoder skips it and reads on right behind, so what a length there would skip
    could hide another size from us.
    """
    place = len(JPEG)
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == 0xFF:  # padding
            place += 1
        elif marker == 0x00:
            return None
        elif marker in _FRAMES:
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            return height, width
        else:
            place += 2 if marker in _ALONE else 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return None

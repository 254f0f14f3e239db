"""Checks of a PNG or JPEG before it is decoded: its size and its structure."""

from __future__ import annotations

import struct

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8"
MAX_PIXELS = 100_000_000
"""Largest image or mask that is read; larger ones are refused before memory is allocated."""
MAX_SIDE = 1_000_000
"""Longest side that libpng accepts."""
MAX_SCANS = 100
"""Largest number of scans of a progressive JPEG; ten are usual."""
_SCAN = b"\xff\xda"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers that state the size."""
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})
"""JPEG markers without a length."""


def stated_size(data: bytes | bytearray | memoryview) -> tuple[int, int] | None:
    """Height and width from the header; None if the data is not a PNG or JPEG, or has no size."""
    if bytes(data[:8]) == PNG and bytes(data[12:16]) == b"IHDR" and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        size: tuple[int, int] | None = height, width
    elif bytes(data[:2]) == JPEG:
        size = _jpeg_size(data)
    else:
        size = None
    return None if size is None or 0 in size else size


def is_too_large(size: tuple[int, int]) -> bool:
    """Whether an image of this height and width exceeds the limits."""
    return size[0] * size[1] > MAX_PIXELS or max(size) > MAX_SIDE


def has_too_many_scans(data: bytes | bytearray) -> bool:
    """Whether a JPEG has so many scans that decoding it would take hours.

    A scan takes thirty bytes of the file and visits every pixel. Its marker does not occur in compressed data.
    """
    return data.startswith(JPEG) and data.count(_SCAN) > MAX_SCANS


def lacks_bytes(data: bytes | bytearray) -> bool:
    """Whether a chunk of a PNG is longer than the file. OpenCV would allocate memory for the whole chunk."""
    offset, last = len(PNG), not data.startswith(PNG)
    while offset < len(data) and not last:
        last = data[offset + 4 : offset + 8] == b"IEND"
        offset += 12 + int.from_bytes(data[offset : offset + 4], "big")
    return data.startswith(PNG) and offset > len(data)


def _jpeg_size(data: bytes | bytearray | memoryview) -> tuple[int, int] | None:
    """Height and width from the first frame header, found by walking from marker to marker.

    A zero after 0xFF is not a marker. A decoder continues right behind it, so skipping a length there could hide
    another size.
    """
    offset = len(JPEG)
    while offset + 9 <= len(data) and data[offset] == 0xFF:
        marker = data[offset + 1]
        if marker == 0xFF:  # padding
            offset += 1
        elif marker == 0x00:
            return None
        elif marker in _FRAMES:
            height, width = struct.unpack(">HH", data[offset + 5 : offset + 9])
            return height, width
        else:
            offset += 2 if marker in _ALONE else 2 + int.from_bytes(data[offset + 2 : offset + 4], "big")
    return None

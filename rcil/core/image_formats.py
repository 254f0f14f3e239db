"""WebP, BMP and TIFF images, whose headers are checked before OpenCV decodes them. PNG and JPEG are in `images`."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from rcil.core.images import JPEG, MAX_PIXELS, PNG, SUFFIXES, Image, decode_rgb, decoded, is_too_large
from rcil.core.reading import DataError, read_bytes

READABLE = (*SUFFIXES, ".webp", ".bmp", ".tif", ".tiff")
"""Suffixes of images that can be read."""
_HINT = "Give a PNG, JPEG, WebP, BMP or TIFF; the file may be cut off, or of another format than its name says."
_KINDS = {1: "B", 3: "H", 4: "I"}
"""Letters of `struct` by TIFF's type of unsigned integers: byte, short and long."""
_COLOURS = 262
_KNOWN_COLOURS = {0, 1, 2, 3, 5, 6}
"""TIFF's codes of grey, RGB, palette, CMYK and YCbCr; OpenCV shows others, such as CIELab, in wrong colours."""
_WIDTH, _HEIGHT, _BITS, _STRIPS, _STRIP_BYTES = 256, 257, 258, 273, 279
_TILE_WIDTH, _TILE_HEIGHT, _TILES, _TILE_BYTES, _SAMPLES = 322, 323, 324, 325, 339
_MAX_ENTRIES = 1000


@dataclass(frozen=True)
class Header:
    """What the header of an image states."""

    size: tuple[int, int]
    """Height and width."""
    length: int
    """Number of bytes that the file needs at least."""


def read_any_rgb(path: Path) -> Image:
    """An image in any of the formats of `READABLE` as [H, W, 3] RGB. 16-bit images are reduced to 8 bits."""
    data = read_bytes(path, "Check the path.")
    if data.startswith((PNG, JPEG)):
        return decode_rgb(data, path)
    try:
        header = _header(data, path)
    except (struct.error, IndexError, KeyError):
        header = None
    if header is None or 0 in header.size:
        raise DataError(f"{path} is not an image that can be decoded", _HINT)
    if is_too_large(header.size):
        height, width = header.size
        limit = f"The limit is {MAX_PIXELS // 10**6} megapixels: split it."
        raise DataError(f"{path} is {width} x {height} pixels", limit)
    if header.length > len(data):
        raise DataError(f"{path} is cut off: {header.length - len(data)} bytes are missing", "Copy the file again.")
    pixels = decoded(data)
    if pixels is None or pixels.shape[:2] not in (header.size, header.size[::-1]):
        raise DataError(f"{path} is not an image that can be decoded", _HINT)
    return pixels


def _header(data: bytes, path: Path) -> Header | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    if data[:2] == b"BM":
        return _bmp(data)
    if data[:4] in (b"II*\0", b"MM\0*"):
        return _tiff(data, path)
    return None


def _webp(data: bytes) -> Header | None:
    length, kind = 8 + int.from_bytes(data[4:8], "little"), data[12:16]
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    elif kind == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    else:
        return None
    return Header((height, width), length)


def _bmp(data: bytes) -> Header | None:
    begin, kind = struct.unpack_from("<II", data, 10)
    if kind == 12:
        width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
        packed = 0
    elif kind >= 40:
        width, height, _, bits, packed = struct.unpack_from("<iiHHI", data, 18)
    else:
        return None
    if width <= 0 or bits not in (1, 4, 8, 16, 24, 32):
        return None
    height = abs(height)  # negative if the first row is on top
    rows = 0 if packed in (1, 2) else (width * bits + 31) // 32 * 4 * height
    return Header((height, width), begin + rows)


def _tiff(data: bytes, path: Path) -> Header | None:
    order = "<" if data[:2] == b"II" else ">"
    tags, following = _directory(data, order, struct.unpack_from(f"{order}I", data, 4)[0])
    if following and not _directory(data, order, following)[0].get(254, (0,))[0] & 1:
        raise DataError(f"{path} has several pages", "Save each page as a file of its own.")
    if set(tags.get(_BITS, (1,))) - {1, 8, 16} or set(tags.get(_SAMPLES, (1,))) - {1}:
        raise DataError(f"{path} holds numbers that are not colours", "Save it with 8 or 16 bits per channel.")
    if tags.get(_COLOURS, (2,))[0] not in _KNOWN_COLOURS:
        raise DataError(f"{path} is neither grey nor RGB, CMYK or YCbCr", "Save it in RGB.")
    size = tags[_HEIGHT][0], tags[_WIDTH][0]
    tile = tags.get(_TILE_HEIGHT, (1,))[0], tags.get(_TILE_WIDTH, (1,))[0]
    if is_too_large(tile):
        return None
    begins, counts = (tags[_TILES], tags[_TILE_BYTES]) if _TILES in tags else (tags[_STRIPS], tags[_STRIP_BYTES])
    if len(begins) != len(counts):
        return None
    return Header(size, max(begin + count for begin, count in zip(begins, counts, strict=True)))


def _directory(data: bytes, order: str, at: int) -> tuple[dict[int, tuple[int, ...]], int]:
    """The integers of a TIFF directory by tag, and the position of the next directory; 0 if there is none."""
    (entries,) = struct.unpack_from(f"{order}H", data, at)
    if entries > _MAX_ENTRIES:
        raise KeyError(entries)
    tags = {}
    for entry in range(at + 2, at + 2 + 12 * entries, 12):
        tag, kind, count = struct.unpack_from(f"{order}HHI", data, entry)
        if kind not in _KINDS or count > len(data):
            continue
        length = struct.calcsize(f"{order}{count}{_KINDS[kind]}")
        offset = entry + 8 if length <= 4 else struct.unpack_from(f"{order}I", data, entry + 8)[0]
        if count:
            tags[tag] = struct.unpack_from(f"{order}{count}{_KINDS[kind]}", data, offset)
    return tags, struct.unpack_from(f"{order}I", data, at + 2 + 12 * entries)[0]

"""Reading and writing photographs, with errors that name the file. Masks are read by `rcil.core.masks`."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.files import write_file
from rcil.core.reading import DataError, read_bytes

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


Image = NDArray[np.uint8]
SUFFIXES = (".jpg", ".jpeg", ".png")
_NO_IMAGE = "Give a PNG or JPEG; the file may be cut off, or of another format than its name says."


def read_rgb(path: Path) -> Image:
    """An image as [H, W, 3] RGB."""
    return decode_rgb(read_bytes(path, "Check the path."), path)


def decode_rgb(data: bytes, path: Path) -> Image:
    """`read_rgb` for bytes in memory; `path` names them in errors."""
    check_encoded(path, data)
    pixels = decoded(data)
    if pixels is None:
        raise DataError(f"{path} is not an image that can be decoded", _NO_IMAGE)
    return pixels


def check_encoded(path: Path, data: bytes) -> None:
    """Raise, before decoding, for data that is not a PNG or JPEG or that would take too much memory or time.

    A truncated JPEG raises too: it would decode with grey where data is missing. OpenCV reads a dozen other formats,
    but they are refused because their headers are not checked here.
    """
    size = stated_size(data)
    if size is None:
        raise DataError(f"{path} is not an image that can be decoded", _NO_IMAGE)
    if is_too_large(size):
        raise DataError(
            f"{path} is {size[1]} x {size[0]} pixels", f"The limit is {MAX_PIXELS // 10**6} megapixels: split it."
        )
    if data.startswith(JPEG) and b"\xff\xd9" not in data[-1024:]:
        raise DataError(f"{path} is cut off: the end of the JPEG is missing", "Copy the file again.")
    if has_too_many_scans(data):
        raise DataError(f"{path} is a JPEG of more than {MAX_SCANS} scans", "Save it again with another program.")


def decoded(data: bytes | bytearray) -> Image | None:
    """An image as RGB [H, W, 3] with its orientation applied; None if OpenCV cannot decode it."""
    if lacks_bytes(data):
        return None
    with contextlib.suppress(cv2.error):
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        return None if pixels is None else np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), np.uint8)
    return None


def scaled(image: Image, factor: float) -> Image:
    """The image at a multiple of its size, at least one pixel; shrinking averages pixels to avoid aliasing."""
    size = max(1, round(image.shape[1] * factor)), max(1, round(image.shape[0] * factor))
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, size, interpolation=how), np.uint8)


def write_image(path: Path, pixels: Image, *, quality: int = 95) -> None:
    """Write RGB [H, W, 3] or grey [H, W] atomically, in the format of the suffix; `quality` is for JPEG."""
    write_file(path, encoded(path, pixels, quality=quality))


def encoded(path: Path, pixels: Image, *, quality: int = 95) -> bytes:
    """The bytes that `write_image` writes."""
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"cannot write {path}: unknown image format", f"End the name with {', '.join(SUFFIXES)}.")
    if pixels.size == 0:
        raise DataError(f"cannot write {path}: the image is empty", "Check its size.")
    stored = pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    options = [] if path.suffix.lower() == ".png" else [cv2.IMWRITE_JPEG_QUALITY, quality]
    return cv2.imencode(path.suffix, stored, options)[1].tobytes()

"""Reading and writing photographs, with errors that name the file. Masks are read by `rcil.core.masks`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.files import replacing
from rcil.core.image_header import (
    JPEG,
    MAX_PIXELS,
    MAX_SCANS,
    has_too_many_scans,
    is_too_large,
    lacks_bytes,
    stated_size,
)
from rcil.core.reading import DataError, read_bytes

Image = NDArray[np.uint8]
SUFFIXES = (".jpg", ".jpeg", ".png")
_NO_IMAGE = "Give a PNG or JPEG; the file may be cut off, or of another format than its name says."


def read_rgb(path: Path) -> Image:
    """An image as [H, W, 3] RGB."""
    data = read_bytes(path, "Check the path.")
    check_encoded(path, data)
    pixels = decoded(data)
    if pixels is None:
        raise DataError(f"{path} is not an image that can be decoded", _NO_IMAGE)
    return np.ascontiguousarray(pixels[..., ::-1], dtype=np.uint8)


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
            f"{path} is {size[1]} x {size[0]} pixels",
            f"The limit is {MAX_PIXELS // 10**6} megapixels: split it.",
        )
    if data.startswith(JPEG) and b"\xff\xd9" not in data[-1024:]:
        raise DataError(f"{path} is cut off: the end of the JPEG is missing", "Copy the file again.")
    if has_too_many_scans(data):
        raise DataError(f"{path} is a JPEG of more than {MAX_SCANS} scans", "Save it again with another program.")


def decoded(data: bytes | bytearray) -> Image | None:
    """An image as OpenCV decodes it, BGR [H, W, 3] with its orientation applied; None if it cannot be decoded."""
    if lacks_bytes(data):
        return None
    with contextlib.suppress(cv2.error):
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        return None if pixels is None else np.asarray(pixels, np.uint8)
    return None


def write_image(path: Path, pixels: Image, *, quality: int = 95) -> None:
    """Write RGB [H, W, 3] or grey [H, W] atomically, in the format of the suffix; `quality` is for JPEG."""
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"cannot write {path}: unknown image format", f"End the name with {', '.join(SUFFIXES)}.")
    stored = pixels if pixels.ndim == 2 else np.ascontiguousarray(pixels[..., ::-1])
    if stored.size == 0:
        raise DataError(f"cannot write {path}: the image is empty", "Check its size.")
    options = [] if path.suffix.lower() == ".png" else [cv2.IMWRITE_JPEG_QUALITY, quality]
    data = cv2.imencode(path.suffix, stored, options)[1]
    with replacing(path) as part:
        part.write_bytes(data.tobytes())

"""Reading and writing photographs, with errors that name the file. Masks are read by `rcil.data.masks`."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.data.errors import DataError, read_bytes
from rcil.files import replacing
from rcil.image_header import JPEG, MAX_PIXELS, is_too_large, stated_size

Image = NDArray[np.uint8]
SUFFIXES = (".jpg", ".jpeg", ".png")


def read_rgb(path: Path) -> Image:
    """An image as [H, W, 3] RGB.

    A JPEG that was cut off still decodes, with grey where data is missing; here it is an error.
    """
    data = read_bytes(path, "Check the path.")
    refuse_if_too_large(path, data)
    if data.startswith(JPEG) and b"\xff\xd9" not in data[-1024:]:
        raise DataError(f"{path} is cut off: the end of the JPEG is missing", "Copy the file again.")
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if data else None
    if pixels is None:
        raise DataError(f"{path} is not an image that can be decoded", "Give a PNG or JPEG; the file may be cut off.")
    return np.ascontiguousarray(pixels[..., ::-1], dtype=np.uint8)


def refuse_if_too_large(path: Path, data: bytes) -> None:
    """Raise for the bytes of an image whose header states an absurd size, before it is decoded."""
    size = stated_size(data)
    if size is not None and is_too_large(size):
        raise DataError(
            f"{path} is {size[1]} x {size[0]} pixels", f"The limit is {MAX_PIXELS // 10**6} megapixels: cut it up."
        )


def write_image(path: Path, pixels: Image) -> None:
    """Write RGB [H, W, 3] or grey [H, W] in the format of the suffix; whole or not at all."""
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"cannot write {path}: unknown image format", f"End the name with {', '.join(SUFFIXES)}.")
    stored = pixels if pixels.ndim == 2 else np.ascontiguousarray(pixels[..., ::-1])
    if stored.size == 0:
        raise DataError(f"cannot write {path}: the image is empty", "Check its size.")
    data = cv2.imencode(path.suffix, stored)[1]
    with replacing(path) as part:
        part.write_bytes(data.tobytes())

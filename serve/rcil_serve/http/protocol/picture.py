"""Uploaded photographs: their size is known before anything is decoded."""

from __future__ import annotations

import cv2
import numpy as np

from rcil.core.image_header import JPEG, MAX_SCANS, has_too_many_scans, stated_size
from rcil.core.images import Image, decoded
from rcil_serve.http.protocol.body import Body
from rcil_serve.http.protocol.refusal import RefusalError


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
    if has_too_many_scans(body):
        raise RefusalError(413, f"the JPEG has more than {MAX_SCANS} scans", "Save it again with another program.")
    pixels = decoded(body)
    if pixels is None or pixels.size != height * width * 3:
        raise RefusalError(400, "the image cannot be decoded", "It may be damaged; send it again.")
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), np.uint8)


def size_of(body: Body) -> tuple[int, int]:
    """Height and width as the file's header states them."""
    size = stated_size(body)
    if size is None:
        raise RefusalError(400, "the body is no PNG or JPEG", "Send the bytes of an image file.")
    return size


def encode_png(pixels: Image) -> bytes:
    """Grey [H, W] of 8 or 16 bits, or RGB [H, W, 3]; quick rather than small."""
    stored = pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    return cv2.imencode(".png", stored, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes()

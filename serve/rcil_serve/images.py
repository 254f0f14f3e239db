"""Reading and writing image files with errors that name the file."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.errors import RcilError
from rcil.files import replacing

Image = NDArray[np.uint8]


def read_rgb(path: Path) -> Image:
    """An image as [H, W, 3] RGB."""
    return np.ascontiguousarray(_decode(path, cv2.IMREAD_COLOR)[..., ::-1])


def read_mask(path: Path) -> Image:
    """A mask of class ids as [H, W]; a colour image is an error, not a guess."""
    mask = _decode(path, cv2.IMREAD_UNCHANGED)
    if mask.ndim != 2 or mask.dtype != np.uint8:
        raise RcilError(
            f"{path} is not a mask of class ids: shape {mask.shape}, {mask.dtype}",
            "Masks are 8-bit single-channel PNGs whose values are class ids.",
        )
    return mask


def write_png(path: Path, rgb: Image) -> None:
    """Write [H, W, 3] RGB or [H, W]; whole or not at all."""
    pixels = rgb if rgb.ndim == 2 else np.ascontiguousarray(rgb[..., ::-1])
    done, data = cv2.imencode(".png", pixels)
    if not done:
        raise RcilError(f"cannot encode {path}", "The image is empty.")
    with replacing(path) as part:
        part.write_bytes(data.tobytes())


def _decode(path: Path, flags: int) -> Image:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RcilError(f"cannot read {path}: {error.strerror}", "Check the path.") from error
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flags) if data else None
    if image is None:
        raise RcilError(f"{path} is not an image that can be decoded", "Give a PNG or JPEG; the file may be cut off.")
    return np.asarray(image)

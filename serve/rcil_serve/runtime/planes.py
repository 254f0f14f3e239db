"""Images in YUV with 4:2:0 chroma, as videos store them; most frames never have to become RGB at their full size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image

Plane = NDArray[np.uint8]
LUMA = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722)}
"""Weights of red and blue in the luma of each matrix."""
CODES = {"bt601": 6, "bt709": 1}
"""Codes of the matrices in H.273, which FFmpeg uses."""


@dataclass(frozen=True)
class ColourSpace:
    """How the values of YUV are to be read."""

    matrix: Literal["bt601", "bt709"] = "bt601"
    full_range: bool = False
    """Whether values go from 0 to 255, as in JPEG, instead of from 16 to 235 (luma) and 240 (chroma)."""

    def from_rgb(self) -> NDArray[np.float32]:
        """Matrix [3, 4] that maps red, green, blue and 1 to the three values, all from 0 to 255."""
        red, blue = LUMA[self.matrix]
        luma = np.array([red, 1 - red - blue, blue])
        chroma = [(np.eye(3)[2] - luma) / (2 * (1 - blue)), (np.eye(3)[0] - luma) / (2 * (1 - red))]
        scales, offset = ((1.0, 1.0, 1.0), 0.0) if self.full_range else ((219 / 255, 224 / 255, 224 / 255), 16.0)
        rows = np.array([luma, *chroma]) * np.array(scales)[:, None]
        return np.column_stack([rows, [offset, 128.0, 128.0]]).astype(np.float32)

    def to_rgb(self) -> NDArray[np.float32]:
        """The inverse of `from_rgb`, [3, 4]."""
        forward = self.from_rgb().astype(np.float64)
        inverse = np.linalg.inv(forward[:, :3])
        return np.column_stack([inverse, -inverse @ forward[:, 3]]).astype(np.float32)


BT601 = ColourSpace()
"""The colour space of videos that state none."""


@dataclass(frozen=True, eq=False)
class Planes:
    """An image as luma and chroma of half the size; the arrays may be views of memory that others own."""

    y: Plane
    """Luma [H, W]."""
    u: Plane
    """Blue difference, [H, W] halved and rounded up."""
    v: Plane
    """Red difference, like `u`."""
    space: ColourSpace = BT601

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.y.shape[0], self.y.shape[1]

    @classmethod
    def empty(cls, size: tuple[int, int], space: ColourSpace) -> Planes:
        """Planes without content."""
        return cls.within(np.empty(bytes_of(size), np.uint8), size, space)

    @classmethod
    def within(cls, memory: Plane, size: tuple[int, int], space: ColourSpace) -> Planes:
        """Views of planes that follow each other in flat memory."""
        chroma = half(size)
        luma, part = size[0] * size[1], chroma[0] * chroma[1]
        y, u, v = memory[:luma], memory[luma : luma + part], memory[luma + part : luma + 2 * part]
        return cls(y.reshape(size), u.reshape(chroma), v.reshape(chroma), space)

    @classmethod
    def of_rgb(cls, image: Image, space: ColourSpace) -> Planes:
        """Convert an RGB image [H, W, 3]; chroma is the mean of each 2x2 block."""
        y, u, v = cv2.split(cv2.transform(image, space.from_rgb()))
        return cls(np.asarray(y, np.uint8), halved(u), halved(v), space)

    def copy_to(self, other: Planes) -> None:
        """Copy the content to planes of the same size."""
        for source, target in ((self.y, other.y), (self.u, other.u), (self.v, other.v)):
            np.copyto(target, source)

    def part(self, rows: slice, columns: slice) -> Planes:
        """Views of a rectangle that begins at even rows and columns, and ends there or at the end of the image."""
        blocks = tuple(slice(side.start // 2, (side.stop + 1) // 2) for side in (rows, columns))
        return Planes(self.y[rows, columns], self.u[blocks], self.v[blocks], self.space)

    def turned(self, code: int) -> Planes:
        """Rotate by one of OpenCV's codes. Sides must be even, because chroma of a half block has no other half."""
        y, u, v = (np.asarray(cv2.rotate(plane, code), np.uint8) for plane in (self.y, self.u, self.v))
        return Planes(y, u, v, self.space)

    def rgb(self) -> Image:
        """Convert to RGB [H, W, 3] with FFmpeg, so that masks are those of frames that FFmpeg itself converts."""
        import av

        height, width = self.size
        frame = av.VideoFrame(width, height, "yuv420p")
        for values, plane in zip((self.y, self.u, self.v), frame.planes, strict=True):
            lines = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, plane.line_size)
            lines[:, : plane.width] = values
        frame.colorspace, frame.color_range = CODES[self.space.matrix], 2 if self.space.full_range else 1
        return np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)

    def scaled(self, size: tuple[int, int], out: Image | None = None) -> Image:
        """Scale to RGB [h, w, 3], in `out` if it is given. Planes are scaled first, so chroma keeps its details."""
        if size == self.size:
            rgb = self.rgb()
            if out is not None:
                np.copyto(out, rgb)
            return rgb if out is None else out
        return self._joined([resized(plane, size) for plane in (self.y, self.u, self.v)], out)

    def _joined(self, planes: Sequence[NDArray[Any]], out: Image | None = None) -> Image:
        """RGB of three planes of one size."""
        return np.asarray(cv2.transform(cv2.merge(planes), self.space.to_rgb(), dst=out), np.uint8)


Picture = Image | Planes
"""An RGB image [H, W, 3], or planes."""


def as_rgb(picture: Picture) -> Image:
    """The picture as RGB [H, W, 3]."""
    return picture.rgb() if isinstance(picture, Planes) else picture


def size_of(picture: Picture) -> tuple[int, int]:
    """Height and width."""
    return picture.size if isinstance(picture, Planes) else (picture.shape[0], picture.shape[1])


def half(size: tuple[int, int]) -> tuple[int, int]:
    """Height and width of the chroma of an image."""
    return (size[0] + 1) // 2, (size[1] + 1) // 2


def bytes_of(size: tuple[int, int]) -> int:
    """Number of bytes of the planes of an image."""
    chroma = half(size)
    return size[0] * size[1] + 2 * chroma[0] * chroma[1]


def halved(plane: NDArray[Any]) -> Plane:
    """Mean of each 2x2 block of a plane [H, W]; at odd sides, of the part of the block that there is."""
    down, right = plane.shape[0] % 2, plane.shape[1] % 2
    if down or right:
        plane = cv2.copyMakeBorder(plane, 0, down, 0, right, cv2.BORDER_REPLICATE)
    return np.asarray(cv2.resize(plane, half(plane.shape[:2])[::-1], interpolation=cv2.INTER_AREA), np.uint8)


def resized(image: NDArray[Any], size: tuple[int, int], out: Image | None = None) -> Image:
    """Resize by repeated halving and a final interpolation; this takes a quarter of the time of `INTER_AREA`.

    Args:
        image: [H, W] or [H, W, 3].
        size: Height and width of the result.
        out: Receives the result, unless the image has the size already.
    """
    height, width = image.shape[:2]
    if (height, width) == size:
        return image
    if height >= 2 * size[0] and width >= 2 * size[1]:
        smaller = cv2.resize(image, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
        return resized(smaller, size, out)
    return np.asarray(cv2.resize(image, size[::-1], dst=out, interpolation=cv2.INTER_LINEAR), np.uint8)

"""Random crops. Optionally, they are focused on labelled classes, and their colours change."""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image, scaled
from rcil.data.protocol import BACKGROUND
from rcil.data.types import IGNORE
from rcil.evaluation.resampling import resize_pair

Mask = NDArray[np.uint8]
RATIO = (3 / 4, 4 / 3)
"""Smallest and largest ratio of width to height of a random resized crop."""
MAX_TRIES = 10
"""Draws of a random resized crop before the middle of the image is taken."""


def random_crop(
    image: Image,
    mask: Mask,
    crop: int,
    scale: tuple[float, float],
    rng: np.random.Generator,
    focus: float = 0.0,
    first: int = BACKGROUND + 1,
) -> tuple[Image, Mask]:
    """Cut a square of `crop` pixels from the randomly resized image, and flip it half of the time.

    Images smaller than the crop are padded with black, and masks with 255 (ignore).

    Args:
        image: [H, W, 3].
        mask: [H, W].
        crop: Side of the result.
        scale: Smallest and largest factor, drawn log-uniformly.
        rng: Random generator.
        focus: Share of crops that contain a pixel of a labelled class, all classes equally likely, so that small and
            rare objects are seen.
        first: The first class that crops are focused on.
    """
    image, mask = resized(image, mask, float(np.exp(rng.uniform(*np.log(scale)))))
    height, width = mask.shape
    point = labelled_pixel(mask, rng, first) if focus and rng.random() < focus else None
    if point is None:
        top, left = (int(rng.integers(0, max(side - crop, 0) + 1)) for side in (height, width))
    else:
        top, left = (_around(where, crop, side, rng) for where, side in zip(point, (height, width), strict=True))
    image, mask = image[top : top + crop, left : left + crop], mask[top : top + crop, left : left + crop]
    if rng.random() < 0.5:
        image, mask = image[:, ::-1], mask[:, ::-1]
    below, right = crop - mask.shape[0], crop - mask.shape[1]
    image = np.pad(image, ((0, below), (0, right), (0, 0)))
    return np.ascontiguousarray(image), np.pad(mask, ((0, below), (0, right)), constant_values=IGNORE)


def random_resized_crop(
    image: Image, mask: Mask, crop: int, area: tuple[float, float], rng: np.random.Generator
) -> tuple[Image, Mask]:
    """Resize a random part of the image to a square of `crop` pixels, and flip it half of the time.

    This is torchvision's RandomResizedCrop as MiB, PLOP and RCIL call it: see `random_box`.

    Args:
        image: [H, W, 3].
        mask: [H, W].
        crop: Side of the result.
        area: Smallest and largest share of the image's area.
        rng: Random generator.
    """
    rows, columns = mask.shape
    top, left, height, width = random_box(rows, columns, area, rng)
    part = slice(top, top + height), slice(left, left + width)
    image, mask = resize_pair(image[part], np.ascontiguousarray(mask[part]), crop, crop)
    if rng.random() < 0.5:
        image, mask = image[:, ::-1], mask[:, ::-1]
    return np.ascontiguousarray(image), np.ascontiguousarray(mask)


def random_box(
    rows: int, columns: int, area: tuple[float, float], rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """Top, left, height and width of a random part of an image of `rows` x `columns` pixels.

    The share of the area is drawn uniformly and the ratio of width to height log-uniformly from `RATIO`. A draw that
    does not fit, as every one above the whole area, is repeated. After `MAX_TRIES` draws the largest part in the
    middle is taken whose ratio is in the range, which is the whole image for most photos.
    """
    for _ in range(MAX_TRIES):
        pixels = rng.uniform(*area) * rows * columns
        ratio = math.exp(rng.uniform(*np.log(RATIO)))
        height, width = max(1, round(math.sqrt(pixels / ratio))), max(1, round(math.sqrt(pixels * ratio)))
        if height <= rows and width <= columns:
            top, left = int(rng.integers(0, rows - height + 1)), int(rng.integers(0, columns - width + 1))
            return top, left, height, width
    height, width = min(rows, round(columns / RATIO[0])), min(columns, round(rows * RATIO[1]))
    return (rows - height) // 2, (columns - width) // 2, height, width


def resized(image: Image, mask: Mask, factor: float) -> tuple[Image, Mask]:
    """Resize image and mask by `factor`."""
    image = scaled(image, factor)
    mask = np.asarray(cv2.resize(mask, image.shape[1::-1], interpolation=cv2.INTER_NEAREST), np.uint8)
    return image, mask


def labelled_pixel(mask: Mask, rng: np.random.Generator, first: int = BACKGROUND + 1) -> tuple[int, int] | None:
    """Row and column of a random pixel of a random class from `first` on; None if the mask has none."""
    present = [c for c in np.flatnonzero(np.bincount(mask.ravel(), minlength=256)) if first <= c != IGNORE]
    if not present:
        return None
    pixels = np.flatnonzero(mask == rng.choice(present))
    row, column = divmod(int(rng.choice(pixels)), mask.shape[1])
    return row, column


def _around(where: int, crop: int, side: int, rng: np.random.Generator) -> int:
    """A random start of a window of `crop` pixels within `side` that contains `where`."""
    lowest, highest = max(0, where - crop + 1), max(0, min(where, side - crop))
    return int(rng.integers(min(lowest, highest), highest + 1))


LUMA = (0.299, 0.587, 0.114)


def jittered(image: Image, strength: float, rng: np.random.Generator) -> Image:
    """Change brightness, contrast, saturation and hue of an image [H, W, 3] at random.

    Args:
        image: RGB.
        strength: The three factors are drawn between 1 - strength and 1 + strength; the hue turns by at most a tenth of
            the strength, as a share of the colour circle.
        rng: Random generator.
    """
    brightness, contrast, saturation = rng.uniform(1 - strength, 1 + strength, 3)
    turned = turn_hue(image, rng.uniform(-strength, strength) / 10)
    pixels = turned.astype(np.float32) * np.float32(brightness)
    grey = pixels @ np.asarray(LUMA, np.float32)
    pixels = grey[..., None] + np.float32(saturation) * (pixels - grey[..., None])
    pixels = grey.mean() + np.float32(contrast) * (pixels - grey.mean())
    return np.asarray(np.clip(np.rint(pixels), 0, 255), np.uint8)


def turn_hue(image: Image, share: float) -> Image:
    """Turn the hue of an RGB image [H, W, 3] by a share of the colour circle, in steps of a 180th."""
    steps = round(share * 180)
    if not steps:
        return image
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = (hsv[..., 0].astype(np.int16) + steps) % 180
    return np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB), np.uint8)

"""The paper's augmentation: random resize and crop, random flip."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.data.types import IGNORE
from rcil.images import Image

Mask = NDArray[np.uint8]


def random_crop(
    image: Image, mask: Mask, crop: int, scale: tuple[float, float], rng: np.random.Generator
) -> tuple[Image, Mask]:
    """A square of `crop` pixels from the image at a random scale, flipped half of the time.

    Shrinking averages, so that nothing aliases. Where the scaled image is smaller than the crop it is padded: black in
    the image, ignored in the mask.

    Args:
        image: [H, W, 3].
        mask: [H, W].
        crop: Side of the result.
        scale: Smallest and largest factor, drawn evenly in the logarithm.
        rng: Decides everything.
    """
    factor = float(np.exp(rng.uniform(*np.log(scale))))
    height, width = (max(1, round(side * factor)) for side in mask.shape)
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
    image = np.asarray(cv2.resize(image, (width, height), interpolation=how), np.uint8)
    mask = np.asarray(cv2.resize(mask, (width, height), interpolation=cv2.INTER_NEAREST), np.uint8)
    top, left = (int(rng.integers(0, max(side - crop, 0) + 1)) for side in (height, width))
    image, mask = image[top : top + crop, left : left + crop], mask[top : top + crop, left : left + crop]
    if rng.random() < 0.5:
        image, mask = image[:, ::-1], mask[:, ::-1]
    below, right = crop - mask.shape[0], crop - mask.shape[1]
    image = np.pad(image, ((0, below), (0, right), (0, 0)))
    return np.ascontiguousarray(image), np.pad(mask, ((0, below), (0, right)), constant_values=IGNORE)

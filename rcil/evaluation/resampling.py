"""Resizing and centre crops as torchvision and Pillow do them, which the published codes of MiB, PLOP and RCIL use."""

from __future__ import annotations

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from rcil.core.images import Image

Mask = NDArray[np.uint8]
Pair = tuple[Image, Mask]
"""An image [H, W, 3] and its labels [H, W]."""


def resize_pair(image: Image, mask: Mask, height: int, width: int) -> Pair:
    """Resize an image [H, W, 3] bilinearly, averaging where it shrinks, and its mask [H, W] to the nearest pixel."""
    pixels = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)[None]
    resized = F.interpolate(pixels, size=(height, width), mode="bilinear", antialias=True)[0].permute(1, 2, 0)
    labels = cv2.resize(mask, (width, height), interpolation=cv2.INTER_NEAREST_EXACT)
    return np.ascontiguousarray(resized.numpy()), np.asarray(labels, np.uint8)


def centre_crop(image: Image, mask: Mask, side: int) -> Pair:
    """Resize an image and its mask so that the shorter side has `side` pixels, and cut the square in the middle."""
    height, width = mask.shape
    shorter = min(height, width)
    height, width = side * height // shorter, side * width // shorter
    image, mask = resize_pair(image, mask, height, width)
    top, left = round((height - side) / 2), round((width - side) / 2)
    return image[top : top + side, left : left + side], mask[top : top + side, left : left + side]

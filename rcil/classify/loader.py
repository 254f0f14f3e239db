"""Batches of images that worker processes read from disk; they depend on the seed, not on the number of workers.

What is random about a batch is drawn in the main process, in the order of the batches, and travels with the indices of
its images. Only the images of a few batches are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from rcil.classify.data import ImageFiles, Images
from rcil.classify.task import TrainingSection
from rcil.core.images import Image
from rcil.model.metadata import IMAGENET_MEAN, IMAGENET_STD
from rcil.training.loader import load_batches


class Draw(NamedTuple):
    """An image of a batch and how it is augmented."""

    number: int
    """Index of the image."""
    top: int
    """Row of the image, padded by `training.shift` pixels, at which the result starts."""
    left: int
    mirrored: bool


def draw_batches(
    count: int, iterations: int, settings: TrainingSection, generator: torch.Generator
) -> Iterator[list[Draw]]:
    """The draws of each batch of `count` images; all images are used once before any repeats."""
    waiting = torch.empty(0, dtype=torch.int64)
    size = min(settings.batch, count)
    for _ in range(iterations):
        if len(waiting) < size:
            waiting = torch.cat((waiting, torch.randperm(count, generator=generator)))
        picked, waiting = waiting[:size], waiting[size:]
        corners, mirrored = torch.zeros(size, 2, dtype=torch.int64), torch.zeros(size, dtype=torch.bool)
        if settings.shift:
            corners = torch.randint(2 * settings.shift + 1, (size, 2), generator=generator)
        if settings.flip:
            mirrored = torch.rand(size, generator=generator) < 0.5
        rows = zip(picked.tolist(), corners.tolist(), mirrored.tolist(), strict=True)
        yield [Draw(index, top, left, flip) for index, (top, left), flip in rows]


def in_order(count: int, batch: int) -> Iterator[list[Draw]]:
    """All images in their order, without augmentation."""
    for start in range(0, count, batch):
        yield [Draw(index, 0, 0, mirrored=False) for index in range(start, min(start + batch, count))]


def augmented(image: Image, draw: Draw, shift: int) -> Image:
    """Shift an image [S, S, 3] by up to `shift` pixels, replicating its border, and mirror it, as drawn."""
    side = len(image)
    wide = np.pad(image, ((shift, shift), (shift, shift), (0, 0)), mode="edge")
    moved = wide[draw.top : draw.top + side, draw.left : draw.left + side]
    return np.ascontiguousarray(moved[:, ::-1] if draw.mirrored else moved)


class _Augmented(Dataset[tuple[Image, int]]):
    """Augmented images [S, S, 3] and their indices."""

    def __init__(self, images: Images, shift: int) -> None:
        self.images = images
        self.shift = shift

    def __getitem__(self, draw: Draw) -> tuple[Image, int]:
        return augmented(self.images[draw.number], draw, self.shift), draw.number


def read_batches(
    images: Images, draws: Iterable[list[Draw]], *, workers: int, shift: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Normalised batches [N, 3, S, S] and the indices [N] of their images.

    Args:
        images: The images that the draws refer to.
        draws: The draws of every batch.
        workers: Number of processes that read files; images in memory need none.
        shift: Largest shift of the draws in pixels.
    """
    processes = workers if isinstance(images, ImageFiles) else 0
    for pixels, indices in load_batches(_Augmented(images, shift), draws, processes):
        yield as_planes(pixels), indices


def as_planes(images: Tensor) -> Tensor:
    """RGB uint8 [N, S, S, 3] -> normalised [N, 3, S, S]."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    return (images.permute(0, 3, 1, 2).contiguous().float() / 255 - mean) / std

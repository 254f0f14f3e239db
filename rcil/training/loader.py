"""Data loading. Batches depend only on seed, step, epoch and position, not on the workers or on resuming."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from rcil.core.errors import RcilError
from rcil.core.interrupts import deferred, ignore_in_worker
from rcil.core.masks import read_mask
from rcil.data.types import IGNORE, Sample
from rcil.evaluation.evaluate import read_pair
from rcil.inference import as_input
from rcil.model.metadata import Metadata
from rcil.tasks.task import Augmentation, TrainingSection
from rcil.training.augment import jittered, random_crop, random_resized_crop, resized

Batch = tuple[Tensor, Tensor]
"""Images [N, 3, crop, crop] and labels [N, crop, crop]."""
Item = tuple[Tensor, Tensor]
"""One image [3, crop, crop] and its labels [crop, crop]."""


@dataclass(frozen=True)
class CropSettings:
    """How samples become batches."""

    batch: int
    crop: int
    scale: tuple[float, float]
    workers: int
    focus: float = 0.0
    """Share of crops that contain a labelled class; see `random_crop`."""
    focus_from: int = 1
    """The first class that crops are focused on; above 1 if the labels name old classes too."""
    epoch_images: int | None = None
    """Number of images per epoch; None draws as many as there are."""
    oversample: float = 0.0
    """How much more often images of rare classes are drawn; see `repeat_factors`."""
    memory_share: float | None = None
    """Share of the images of an epoch that come from the memory; None uses all of them once."""
    jitter: float = 0.0
    """Strength of the colour jitter; see `jittered`."""
    augmentation: Augmentation = "resize_and_crop"
    """How crops are made; see `TrainingSection`."""

    @classmethod
    def of(cls, settings: TrainingSection, scale: float, *, focus_from: int = 1) -> CropSettings:
        """The settings of a task that resizes images by `scale`."""
        low, high = settings.scale
        return cls(
            settings.batch,
            settings.crop,
            (low * scale, high * scale),
            settings.workers,
            settings.focus,
            focus_from,
            settings.epoch_images,
            settings.oversample,
            settings.memory_share,
            settings.jitter,
            settings.augmentation,
        )


@dataclass(frozen=True)
class Share:
    """Which pieces of every batch this process computes."""

    rank: int = 0
    count: int = 1
    """Number of processes."""
    parts: int = 1
    """Gradient accumulation steps per process."""

    def pieces(self, group: list[int]) -> list[list[int]]:
        """The indices of this process's pieces; the length of `group` is a multiple of count * parts."""
        size = len(group) // (self.count * self.parts)
        starts = (size * (self.rank * self.parts + part) for part in range(self.parts))
        return [group[start : start + size] for start in starts]


class Crops(Dataset[Item]):
    """Augmented crops. The key (epoch, index) determines the augmentation.

    Args:
        samples: Images and masks.
        table: Mask value on disk -> label [256].
        metadata: How images are normalised.
        settings: Crop size and scales.
        seed: Seed and step.
        memory: Replayed samples, each with its own table.
    """

    def __init__(
        self,
        samples: tuple[Sample, ...],
        table: NDArray[np.uint8],
        metadata: Metadata,
        settings: CropSettings,
        seed: tuple[int, int],
        memory: Sequence[tuple[Sample, NDArray[np.uint8]]] = (),
    ) -> None:
        self.samples = (*samples, *(sample for sample, _ in memory))
        self.own = len(samples)
        self.tables = [table] * len(samples) + [table for _, table in memory]
        self.metadata = metadata
        self.settings = settings
        self.seed = seed

    def __len__(self) -> int:
        return len(self.samples)

    def order(self, epoch: int) -> list[list[int]]:
        """Indices of each batch of an epoch."""
        settings = self.settings
        if settings.memory_share is None or len(self) == self.own:
            return epoch_order(len(self), settings.batch, self.seed, epoch, settings.epoch_images, self._repeats)
        size = settings.epoch_images or self.own
        replayed = round(size * settings.memory_share)
        rng = np.random.default_rng([*self.seed, 2, epoch])
        new = drawn(range(self.own), size - replayed, len(self), rng, self._own_repeats)
        old = drawn(range(self.own, len(self)), replayed, len(self), rng)
        return grouped(rng.permutation([*new, *old]).tolist(), settings.batch)

    def __getitem__(self, key: tuple[int, int]) -> Item:
        """Image [3, crop, crop] and labels [crop, crop]."""
        epoch, index = key
        rng = np.random.default_rng([*self.seed, 1, epoch, index])
        number = index % len(self)
        image, mask = read_pair(self.samples[number], self.tables[number])
        if self.settings.augmentation == "random_resized_crop":
            image, mask = random_resized_crop(image, mask, self.settings.crop, self.settings.scale, rng)
        else:
            how = self.settings
            image, mask = random_crop(image, mask, how.crop, how.scale, rng, how.focus, how.focus_from)
        if self.settings.jitter:
            image = jittered(image, self.settings.jitter, rng)
        return as_input(self.metadata, image), torch.from_numpy(mask).long()

    def count_pixels(self, classes: int) -> NDArray[np.int64]:
        """Number of pixels of every class in every own image, without the memory [images, classes]."""
        pairs = zip(self.samples[: self.own], self.tables, strict=False)
        counts = [np.bincount(table[read_mask(sample.mask)].ravel(), minlength=256) for sample, table in pairs]
        return np.stack(counts)[:, :classes]

    @cached_property
    def _own_repeats(self) -> NDArray[np.float64] | None:
        """How often each own image is drawn per round; None if all are drawn equally often."""
        if not self.settings.oversample:
            return None
        pixels = self.count_pixels(IGNORE)[:, self.settings.focus_from :]
        return repeat_factors(pixels > 0, self.settings.oversample)

    @cached_property
    def _repeats(self) -> NDArray[np.float64] | None:
        """The same for all images: those of the memory count once."""
        own = self._own_repeats
        return None if own is None else np.concatenate((own, np.ones(len(self) - self.own)))

    def whole(self, number: int, scale: float) -> Batch:
        """Image [1, 3, H, W] and labels [1, H, W] of one sample as the network sees it in evaluation."""
        image, mask = resized(*read_pair(self.samples[number], self.tables[number]), scale)
        return as_input(self.metadata, image)[None], torch.from_numpy(mask).long()[None]


class _Careful(Dataset[Any]):
    """The same items, but an `RcilError` is returned as a value: torch would add a traceback to its message."""

    def __init__(self, items: Dataset[Any]) -> None:
        self.items = items

    def __getitem__(self, key: Any) -> Any:
        try:
            return self.items[key]
        except RcilError as error:
            return error


def _collated(items: list[Any]) -> Any:
    """A batch, or the first error in it."""
    failed = next((item for item in items if isinstance(item, RcilError)), None)
    return default_collate(items) if failed is None else failed


def load_batches(
    items: Dataset[Any], keys: Iterable[list[Any]], workers: int, *, pinned: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of the items, which are pairs, in the order of the keys; an `RcilError` of an item is raised here.

    Args:
        items: What the worker processes load, by key.
        keys: The keys of every batch.
        workers: Number of worker processes.
        pinned: Use page-locked memory, which a GPU copies asynchronously.
    """
    loader: DataLoader[Any] = DataLoader(
        _Careful(items),
        batch_sampler=keys,
        num_workers=workers,
        generator=torch.Generator().manual_seed(0),  # torch's global generator, which draws drop-path, stays untouched
        collate_fn=_collated,
        worker_init_fn=ignore_in_worker,
        pin_memory=pinned,
    )
    for found in started(loader):
        if isinstance(found, RcilError):
            raise found
        first, second = found
        yield first, second


def epoch_order(
    count: int,
    batch: int,
    seed: tuple[int, int],
    epoch: int,
    size: int | None = None,
    repeats: NDArray[np.float64] | None = None,
) -> list[list[int]]:
    """Shuffled indices of each batch of an epoch, without an incomplete last batch.

    A dataset smaller than a batch is repeated to fill one, since a batch of one image has no batch statistics.

    Args:
        count: Number of images.
        batch: Batch size.
        seed: Seed and step.
        epoch: Number of the epoch.
        size: Images per epoch; repeated images get indices from `count` on, and so other augmentations.
        repeats: From `repeat_factors`; None draws all images equally often.
    """
    rng = np.random.default_rng([*seed, 0, epoch])
    return grouped(drawn(range(count), count if size is None else size, count, rng, repeats), batch)


def drawn(
    indices: range, size: int, count: int, rng: np.random.Generator, repeats: NDArray[np.float64] | None = None
) -> list[int]:
    """`size` of the indices in random order; a repetition adds `count`, and so gets another augmentation.

    Args:
        indices: What to draw from.
        size: How many to draw.
        count: Number of all images.
        rng: Random generator.
        repeats: How often each index is drawn per round, at least once; the fraction is a probability.
    """
    order: list[int] = []
    times = np.zeros(len(indices), np.int64)
    while indices and len(order) < size:
        copies = np.ones(len(indices), int) if repeats is None else (repeats + rng.random(len(indices))).astype(int)
        for i in rng.permutation(np.repeat(np.arange(len(indices)), copies)):
            order.append(int(indices[i]) + count * int(times[i]))
            times[i] += 1
    return order[:size]


def repeat_factors(present: NDArray[np.bool_], power: float) -> NDArray[np.float64]:
    """How often each image is drawn, [images], so that images of rare classes are seen more often.

    As in "LVIS" (https://arxiv.org/abs/1908.03195), the rarest class of an image decides: the factor is
    (median / f) ** power, at least 1, with f the share of the images that contain the class.

    Args:
        present: Whether an image contains a class [images, classes]; classes that never occur do not count.
        power: 0 draws all images equally often, 1 all classes, as far as images can be repeated.
    """
    occurring = present[:, present.any(axis=0)]
    if not occurring.size:
        return np.ones(len(present))
    shares = occurring.mean(axis=0)
    factors = np.maximum(1.0, np.median(shares) / shares) ** power
    return np.asarray(np.where(occurring, factors, 1.0).max(axis=1))


def grouped(order: list[int], batch: int) -> list[list[int]]:
    """Split indices into full batches; fewer indices than a batch are repeated to fill one."""
    if len(order) < batch:
        return [(order * batch)[:batch]]
    return [order[start : start + batch] for start in range(0, len(order) - batch + 1, batch)]


def started(loader: DataLoader[Any]) -> Iterator[Any]:
    """The batches of a loader. A signal waits until its processes are started: raised in a fork, it would be lost."""
    with deferred():
        return iter(loader)


def batches(
    crops: Crops, epoch: int, first: int = 0, share: Share | None = None, *, pinned: bool = False
) -> Iterator[list[Batch]]:
    """Iterate over the batches of an epoch, each as the pieces that this process computes.

    Args:
        crops: The dataset.
        epoch: Determines order and augmentation.
        first: Number of batches to skip.
        share: The pieces of this process; by default all.
        pinned: Use page-locked memory, which a GPU copies asynchronously.
    """
    share = share or Share()
    order = crops.order(epoch)[first:]
    keys = [[(epoch, index) for index in piece] for group in order for piece in share.pieces(group)]
    pieces: list[Batch] = []
    for piece in load_batches(crops, keys, crops.settings.workers, pinned=pinned):
        pieces.append(piece)
        if len(pieces) == share.parts:
            yield pieces
            pieces = []

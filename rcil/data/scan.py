"""Scan masks for the classes that they contain."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rcil.core.files import sha256_of
from rcil.core.masks import read_mask
from rcil.data.protocol import BACKGROUND
from rcil.data.types import IGNORE, Sample, SegmentationData


@dataclass(frozen=True)
class MaskContent:
    """The content of one mask."""

    sample: Sample
    size: tuple[int, int]
    """Height and width."""
    pixels: NDArray[np.int64]
    """Number of pixels of every value [256], after `raw_to_id`."""

    @property
    def present(self) -> frozenset[int]:
        """Values with at least one pixel."""
        return frozenset(np.flatnonzero(self.pixels).tolist())


def id_table(data: SegmentationData) -> NDArray[np.uint8]:
    """Mask value on disk -> class id [256]."""
    if not data.raw_to_id:
        return np.arange(256, dtype=np.uint8)
    table = np.full(256, IGNORE, np.uint8)
    for raw, class_id in data.raw_to_id.items():
        table[raw] = class_id
    return table


def with_void_background(data: SegmentationData) -> SegmentationData:
    """The data with background pixels ignored, for masks in which background means "unlabelled"."""
    table = {raw: int(class_id) for raw, class_id in enumerate(id_table(data)) if class_id not in (BACKGROUND, IGNORE)}
    return replace(data, raw_to_id=table)


def scan(data: SegmentationData, samples: Iterable[Sample]) -> Iterator[MaskContent]:
    """Yield the content of each mask; raises a DataError for an unreadable mask."""
    table = id_table(data)
    for sample in samples:
        mask = table[read_mask(sample.mask)]
        yield MaskContent(sample, (mask.shape[0], mask.shape[1]), np.bincount(mask.ravel(), minlength=256))


def present_classes(data: SegmentationData, split: str) -> dict[str, frozenset[int]]:
    """Class ids in every mask of a split, for `protocol.select`. Unchanged masks are cached."""
    table = id_table(data)
    present = {}
    for sample in data.splits[split]:
        values = _values(sample.mask, *_state_of(sample.mask))
        present[sample.name] = frozenset(table[list(values)].tolist())
    return present


def _state_of(path: Path) -> tuple[int, int]:
    """Size and modification time; zeros if the file is not accessible, so that reading it raises the error."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


@functools.lru_cache(maxsize=100_000)
def _values(mask: Path, size: int, changed: int) -> tuple[int, ...]:
    """Values in a mask file; size and modification time are part of the cache key."""
    return tuple(np.unique(read_mask(mask)).tolist())


def data_digest(samples: Iterable[Sample]) -> str:
    """SHA-256 over the names and contents of images and masks, independent of their order."""
    digest = hashlib.sha256()
    for sample in sorted(samples, key=lambda s: s.name):
        digest.update(f"{sample.name}\0{sha256_of(sample.image)}\0{sha256_of(sample.mask)}\n".encode())
    return digest.hexdigest()

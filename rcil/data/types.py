"""What every reader returns: named samples with class ids, whatever the layout on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

IGNORE = 255
"""The mask value that belongs to no class."""


@dataclass(frozen=True)
class ClassSpec:
    """One class of a dataset; its place in the list is its id in masks."""

    name: str
    colour: tuple[int, int, int]


@dataclass(frozen=True)
class Sample:
    """One image with its mask."""

    name: str
    """Unique within its split: the path below the split's images, without suffix, with forward slashes."""
    image: Path
    mask: Path
    domain: str = ""
    """What a domain-incremental protocol splits by: a city, a sequence, a camera."""


@dataclass(frozen=True)
class SegmentationData:
    """A dataset on disk; nothing is decoded until it is asked for."""

    root: Path
    classes: tuple[ClassSpec, ...]
    splits: dict[str, tuple[Sample, ...]]
    """For example `train`, `val`, `test`; samples in the order of the dataset's list, or by name if it has none."""
    raw_to_id: dict[int, int] = field(default_factory=dict)
    """Mask value on disk -> class id or IGNORE, where they differ; empty means they are the same. Values that are not
    listed become IGNORE when the table is not empty."""

    @property
    def names(self) -> tuple[str, ...]:
        """Class names by id."""
        return tuple(c.name for c in self.classes)

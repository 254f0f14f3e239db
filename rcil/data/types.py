"""The common types that all dataset readers return."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

IGNORE = 255
"""The mask value of ignored pixels."""


@dataclass(frozen=True)
class ClassSpec:
    """One class of a dataset; its index in the class list is its id in masks."""

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
    """The domain for domain protocols, for example a city or a camera."""


@dataclass(frozen=True)
class SegmentationData:
    """A dataset on disk; images and masks are decoded on demand."""

    root: Path
    classes: tuple[ClassSpec, ...]
    splits: dict[str, tuple[Sample, ...]]
    """Samples of `train`, `val` and so on, in the order of the dataset's list, or by name if it has none."""
    raw_to_id: dict[int, int] = field(default_factory=dict)
    """Mask value on disk -> class id or IGNORE. An empty table means that they are the same; otherwise values that are
    not listed become IGNORE."""

    @property
    def names(self) -> tuple[str, ...]:
        """Class names by id."""
        return tuple(c.name for c in self.classes)

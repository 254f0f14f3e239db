"""What a new model forgot: old classes by their labels, or by agreement with the old model where there are none."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rcil.checkpoint.metadata import Metadata
from rcil.data.masks import read_mask
from rcil.data.protocol import BACKGROUND
from rcil.data.types import IGNORE, Sample, SegmentationData
from rcil.evaluate import rows_by_value, segment
from rcil.images import Image, read_rgb
from rcil.metrics import Confusion
from rcil.nn import Segmenter
from rcil.train.processes import ALONE, Processes

Rows = NDArray[np.uint8]
LEAST_PIXELS = 100
"""A class with fewer is not measured: a handful of pixels says nothing."""


@dataclass(frozen=True)
class OldClass:
    """What became of a class that the old model knew; all numbers are percent or points, None where not measured."""

    name: str
    measured: Literal["labels", "agreement", "no"]
    """`labels`: both models against the masks. `agreement`: the new model against the old one's predictions."""
    before: float | None
    """IoU of the old model with the masks."""
    after: float | None
    """IoU of the new model with the masks."""
    agreement: float | None
    """IoU of both models' predictions."""
    drop: float | None
    """Points lost; negative where the new model is better."""
    pixels: int
    """Of the class in the masks, or in the old model's predictions."""


@dataclass(frozen=True)
class NewClass:
    """How well a new class was learned."""

    name: str
    iou: float | None
    """Percent; None where it neither occurs nor is predicted."""
    pixels: int


@dataclass(frozen=True)
class Forgetting:
    """The comparison of two models, class by class."""

    images: int
    old: tuple[OldClass, ...]
    new: tuple[NewClass, ...]

    @property
    def worst(self) -> OldClass | None:
        """The measured old class that lost most."""
        measured = [c for c in self.old if c.drop is not None]
        return max(measured, key=lambda c: c.drop or 0.0) if measured else None

    def reason(self, limit: float) -> str | None:
        """Why the new model must not be deployed if a class may lose `limit` points; None if it may be."""
        worst = self.worst
        if worst is None:
            return f"no old class could be measured: none has {LEAST_PIXELS} pixels in {self.images} images"
        assert worst.drop is not None
        return f"{worst.name} dropped {worst.drop:.1f} points, limit {limit:g}" if worst.drop > limit else None

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "images": self.images,
            "largest_drop": None if self.worst is None else self.worst.drop,
            "old_classes": [asdict(c) for c in self.old],
            "new_classes": [asdict(c) for c in self.new],
        }

    def as_metrics(self) -> dict[str, float]:
        """What the lineage records."""
        drops = {f"drop {c.name}": c.drop for c in self.old if c.drop is not None}
        return {**drops, **{f"iou {c.name}": c.iou for c in self.new if c.iou is not None}}


@dataclass(frozen=True)
class Views:
    """One image as both models see it."""

    image: Image
    truth: Rows
    """Rows of the new model [H, W], 255 is ignored."""
    old: Rows
    new: Rows


class Pair:
    """An old and a new model that look at the same images.

    Args:
        old: Folded.
        new: Folded; its first rows are the old model's.
        before: Describes the old model.
        after: Describes the new model.
        data: Where the samples come from.
        scale: Size at which the networks see images, as a factor.
    """

    def __init__(
        self,
        old: Segmenter,
        new: Segmenter,
        before: Metadata,
        after: Metadata,
        data: SegmentationData,
        scale: float = 1.0,
    ) -> None:
        self.old, self.new = old, new
        self.before, self.after = before, after
        self.scale = scale
        self.table = rows_by_value(data, [c.name for c in after.classes])

    @property
    def count(self) -> int:
        """Old classes, background included."""
        return len(self.before.classes)

    def look(self, sample: Sample) -> Views:
        """Both predictions and the mask of one sample."""
        image = read_rgb(sample.image)
        old = segment(self.old, self.before, image, scale=self.scale)
        new = segment(self.new, self.after, image, scale=self.scale)
        return Views(image, self.table[read_mask(sample.mask)], old, new)


def compare(
    pair: Pair,
    samples: Sequence[Sample],
    labelled: Collection[str],
    *,
    keep: int = 12,
    progress: Callable[[int, int], None] = lambda done, total: None,
    processes: Processes = ALONE,
) -> tuple[Forgetting, list[Sample]]:
    """Measure forgetting, and name the samples on which the models differ most. Holds one image at a time.

    Old classes are measured on all pixels but those of a new class, where the old model could not be right. Background
    counts as labelled only if every other old class is.

    Args:
        pair: The models.
        samples: What to compare them on.
        labelled: Old classes whose labels can be trusted.
        keep: How many samples to name.
        progress: Told how many of how many samples are done.
        processes: They share the samples; counts are added up, so that all come to the same verdict.
    """
    classes = len(pair.after.classes)
    before, after, between, learned = confusions = tuple(Confusion(classes) for _ in range(4))
    differing = np.zeros((len(samples), 2), np.int64)  # pixels on which the models differ, and all pixels
    for index in range(processes.rank, len(samples), processes.count):
        views = pair.look(samples[index])
        unlike_new = np.where(views.truth < pair.count, views.truth, np.uint8(IGNORE))
        counted = unlike_new != IGNORE
        before.update(unlike_new, views.old)
        after.update(unlike_new, views.new)
        between.update(np.where(counted, views.old, np.uint8(IGNORE)), views.new)
        learned.update(views.truth, views.new)
        differing[index] = np.count_nonzero((views.old != views.new) & counted), counted.size
        progress(index + 1, len(samples))
    for confusion in confusions:
        confusion.matrix = processes.sum_array(confusion.matrix)
    differing = processes.sum_array(differing)
    names = [c.name for c in pair.after.classes]
    trusted = {n for n in names[1 : pair.count] if n in labelled}
    if len(trusted) == pair.count - 1:
        trusted.add(names[BACKGROUND])
    old = tuple(
        by_labels(name, row, before, after) if name in trusted else by_agreement(name, row, between)
        for row, name in enumerate(names[: pair.count])
    )
    new = tuple(
        NewClass(name, _percent(learned.iou[row]), int(learned.matrix[row].sum()))
        for row, name in enumerate(names)
        if row >= pair.count
    )
    shares = [(float(pixels / size), -place) for place, (pixels, size) in enumerate(differing)]
    most = [samples[-place] for share, place in heapq.nlargest(keep, shares) if share > 0]
    return Forgetting(len(samples), old, new), most


def by_labels(name: str, row: int, before: Confusion, after: Confusion) -> OldClass:
    """A class by what both models make of its labels."""
    pixels = int(before.matrix[row].sum())
    was, now = _percent(before.iou[row]), _percent(after.iou[row])
    if pixels < LEAST_PIXELS or was is None or now is None:
        return OldClass(name, "no", None, None, None, None, pixels)
    return OldClass(name, "labels", was, now, None, was - now, pixels)


def by_agreement(name: str, row: int, between: Confusion) -> OldClass:
    """A class by how far both models agree on it; the old model's prediction takes the place of the truth."""
    pixels = int(between.matrix[row].sum())
    agreement = _percent(between.iou[row])
    if pixels < LEAST_PIXELS or agreement is None:
        return OldClass(name, "no", None, None, None, None, pixels)
    return OldClass(name, "agreement", None, None, agreement, 100.0 - agreement, pixels)


def _percent(value: float) -> float | None:
    return None if np.isnan(value) else 100 * float(value)

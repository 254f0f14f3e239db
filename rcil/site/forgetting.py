"""Measure what a new model forgot, by labels or, for unlabelled classes, by agreement with the old model."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image, read_rgb
from rcil.core.log import Progress
from rcil.core.masks import read_mask
from rcil.data.protocol import BACKGROUND
from rcil.data.types import IGNORE, Sample, SegmentationData
from rcil.evaluation.evaluate import Confusion, rows_by_value
from rcil.hardware.processes import ALONE, Processes
from rcil.inference import Model

Rows = NDArray[np.uint8]
MIN_PIXELS = 100
"""Classes with fewer pixels are not measured."""


@dataclass(frozen=True)
class OldClass:
    """The change of an old class. Numbers are in percent or percentage points, None if not measured."""

    name: str
    measured: Literal["labels", "agreement", "no"]
    """`labels`: both models are compared with the masks. `agreement`: the new model is compared with the old one."""
    before: float | None
    """IoU of the old model with the masks."""
    after: float | None
    """IoU of the new model with the masks."""
    agreement: float | None
    """IoU of both models' predictions."""
    drop: float | None
    """Points lost; negative if the new model is better."""
    pixels: int
    """Pixels of the class in the masks, or in the predictions of the old model."""


@dataclass(frozen=True)
class NewClass:
    """The IoU of a new class."""

    name: str
    iou: float | None
    """IoU in percent; None if the class neither occurs nor is predicted."""
    pixels: int


@dataclass(frozen=True)
class Forgetting:
    """The comparison of two models, class by class."""

    images: int
    old: tuple[OldClass, ...]
    new: tuple[NewClass, ...]

    @property
    def worst(self) -> OldClass | None:
        """The measured old class with the largest drop."""
        measured = [c for c in self.old if c.drop is not None]
        return max(measured, key=lambda c: c.drop or 0.0) if measured else None

    def reason(self, limit: float) -> str | None:
        """The reason to reject the new model if a class may lose at most `limit` points; None to accept it."""
        worst = self.worst
        if worst is None:
            return f"no old class could be measured: none has {MIN_PIXELS} pixels in {self.images} images"
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
        """The metrics for the lineage."""
        drops = {f"drop {c.name}": c.drop for c in self.old if c.drop is not None}
        return {**drops, **{f"iou {c.name}": c.iou for c in self.new if c.iou is not None}}


@dataclass(frozen=True)
class Views:
    """An image, its mask and the predictions of both models."""

    image: Image
    truth: Rows
    """Class rows of the new model [H, W]; 255 is ignored."""
    old: Rows
    new: Rows


class Pair:
    """An old and a new model that are compared on the same images.

    Args:
        old: The old model.
        new: The new model; its first rows are the old model's.
        data: The dataset of the samples.
        scale: Factor by which images are resized for the networks.
    """

    def __init__(self, old: Model, new: Model, data: SegmentationData, scale: float = 1.0) -> None:
        self.old, self.new = old.folded, new.folded
        self.scale = scale
        self.table = rows_by_value(data, [c.name for c in new.classes])

    @property
    def count(self) -> int:
        """Number of old classes, including background."""
        return len(self.old.classes)

    def look(self, sample: Sample) -> Views:
        """Run both models on one sample."""
        image = read_rgb(sample.image)
        old, new = (model.segment(image, scale=self.scale) for model in (self.old, self.new))
        return Views(image, self.table[read_mask(sample.mask)], old, new)


def compare(
    pair: Pair,
    samples: Sequence[Sample],
    labelled: Collection[str],
    *,
    keep: int = 12,
    progress: Progress = lambda done, total: None,
    processes: Processes = ALONE,
) -> tuple[Forgetting, list[Sample]]:
    """Measure forgetting, and find the samples on which the models differ most. Keeps one image in memory.

    Old classes are measured on all pixels except those of new classes, which the old model cannot know. Background
    counts as labelled only if all other old classes are labelled.

    Args:
        pair: The models.
        samples: The samples to compare them on.
        labelled: Old classes whose labels can be trusted.
        keep: Maximum number of samples to return.
        progress: Called with the number of finished samples and their total.
        processes: The processes that share the samples; counts are summed, so that all get the same result.
    """
    classes = len(pair.new.classes)
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
    names = [c.name for c in pair.new.classes]
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
    shares = [(float(pixels / size), -index) for index, (pixels, size) in enumerate(differing)]
    most = [samples[-index] for share, index in heapq.nlargest(keep, shares) if share > 0]
    return Forgetting(len(samples), old, new), most


def by_labels(name: str, row: int, before: Confusion, after: Confusion) -> OldClass:
    """Compare both models with the labels of a class."""
    pixels = int(before.matrix[row].sum())
    was, now = _percent(before.iou[row]), _percent(after.iou[row])
    if pixels < MIN_PIXELS or was is None or now is None:
        return OldClass(name, "no", None, None, None, None, pixels)
    return OldClass(name, "labels", was, now, None, was - now, pixels)


def by_agreement(name: str, row: int, between: Confusion) -> OldClass:
    """Compare the predictions of both models for a class; those of the old model serve as ground truth."""
    pixels = int(between.matrix[row].sum())
    agreement = _percent(between.iou[row])
    if pixels < MIN_PIXELS or agreement is None:
        return OldClass(name, "no", None, None, None, None, pixels)
    return OldClass(name, "agreement", None, None, agreement, 100.0 - agreement, pixels)


def _percent(value: float) -> float | None:
    return None if np.isnan(value) else 100 * float(value)

"""Measure what a new model forgot, by labels or, for unlabelled classes, by agreement with the old model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image, read_rgb
from rcil.core.log import Progress
from rcil.core.masks import read_mask
from rcil.data.protocol import BACKGROUND
from rcil.data.types import IGNORE, Sample, SegmentationData
from rcil.evaluation.bootstrap import Interval, by_group, counts_of, interval_of, iou_of, resampled_iou
from rcil.evaluation.diverse import Wish, by_class_score, choose
from rcil.evaluation.evaluate import confusion_of, rows_by_value
from rcil.evaluation.similar_images import SIDE, group_similar, thumbnail
from rcil.hardware.processes import ALONE, Processes
from rcil.inference import Model
from rcil.site.verdict import MIN_PIXELS

Rows = NDArray[np.uint8]
BEFORE, AFTER, BETWEEN, LEARNED = range(4)
"""The comparisons: labels of old classes with the old and with the new model, the old model with the new one, and all
labels with the new model."""


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
    interval: Interval | None = None
    """Interval of the drop; None if the class occurs in fewer than two groups of similar images."""
    groups: int = 0
    """Groups of similar images in which the class occurs."""
    taken: float | None = None
    """Share of the class's pixels that the new model assigns to a new class."""


@dataclass(frozen=True)
class NewClass:
    """The IoU of a new class."""

    name: str
    iou: float | None
    """IoU in percent; None if the class neither occurs nor is predicted."""
    pixels: int
    interval: Interval | None = None
    """Interval of the IoU; None if the class occurs in fewer than two groups of similar images."""
    groups: int = 0
    """Groups of similar images in which the class occurs."""


@dataclass(frozen=True)
class Forgetting:
    """The comparison of two models, class by class. The first old class is background."""

    images: int
    groups: int
    """Groups of similar images."""
    old: tuple[OldClass, ...]
    new: tuple[NewClass, ...]
    confusion: tuple[tuple[int, ...], ...] = ()
    """Pixels by true (row) and predicted class of the new model; old classes count only where they are labelled."""

    @property
    def worst(self) -> OldClass | None:
        """The measured old class, other than background, with the largest drop."""
        measured = [c for c in self.old[1:] if c.drop is not None]
        return max(measured, key=lambda c: c.drop or 0.0) if measured else None

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "images": self.images,
            "groups": self.groups,
            "largest_drop": None if self.worst is None else self.worst.drop,
            "old_classes": [asdict(c) for c in self.old],
            "new_classes": [asdict(c) for c in self.new],
            "confusion": self.confusion,
        }

    def as_metrics(self) -> dict[str, float]:
        """The metrics for the lineage."""
        drops = {f"drop {c.name}": c.drop for c in self.old if c.drop is not None}
        return {**drops, **{f"iou {c.name}": c.iou for c in self.new if c.iou is not None}}


class Shown(NamedTuple):
    """A sample to draw, and why."""

    sample: Sample
    caption: str


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
    progress: Progress = lambda done, total: None,
    processes: Processes = ALONE,
) -> tuple[Forgetting, list[Shown]]:
    """Measure forgetting and how certain it is, and choose samples to show. Keeps one image in memory.

    Old classes are measured on all pixels except those of new classes, which the old model cannot know. Background
    counts as labelled only if all other old classes are labelled.

    Args:
        pair: The models.
        samples: The samples to compare them on.
        labelled: Old classes whose labels can be trusted.
        progress: Called with the number of finished samples and their total.
        processes: The processes that share the samples; counts are summed, so that all get the same result.
    """
    names = [c.name for c in pair.new.classes]
    measured = _measure(pair, samples, progress, processes)
    groups = group_similar(measured.thumbnails)
    trusted = {n for n in names[1 : pair.count] if n in labelled}
    if len(trusted) == pair.count - 1:
        trusted.add(names[BACKGROUND])
    grouped = by_group(measured.counts, groups)
    statistics = Statistics(grouped, measured.matrices, resampled_iou(grouped), pair.count)
    old = tuple(
        statistics.by_labels(name, row) if name in trusted else statistics.by_agreement(name, row)
        for row, name in enumerate(names[: pair.count])
    )
    new = tuple(statistics.learned(name, row) for row, name in enumerate(names) if row >= pair.count)
    confusion = tuple(tuple(row) for row in measured.matrices[LEARNED].tolist())
    result = Forgetting(len(samples), len(grouped), old, new, confusion)
    return result, [Shown(samples[index], why) for index, why in choose(_wishes(measured, pair), measured.thumbnails)]


@dataclass(frozen=True)
class _Measured:
    """What is kept of N images of C classes."""

    counts: NDArray[np.int64]
    """Counts of every image and comparison [N, 4, 3, C]."""
    matrices: NDArray[np.int64]
    """Confusion matrices of the comparisons over all images [4, C, C]."""
    thumbnails: NDArray[np.int64]
    differing: NDArray[np.int64]
    """Pixels on which the models differ, without those of new classes, and all pixels [N, 2]."""


def _measure(pair: Pair, samples: Sequence[Sample], progress: Progress, processes: Processes) -> _Measured:
    """Run both models on this process's samples, and add what the other processes measured."""
    count = len(pair.new.classes)
    counts = np.zeros((len(samples), 4, 3, count), np.int64)
    matrices = np.zeros((4, count, count), np.int64)
    thumbnails = np.zeros((len(samples), SIDE * SIDE), np.int64)
    differing = np.zeros((len(samples), 2), np.int64)
    for index in range(processes.rank, len(samples), processes.count):
        views = pair.look(samples[index])
        unlike_new = np.where(views.truth < pair.count, views.truth, np.uint8(IGNORE))
        counted = unlike_new != IGNORE
        compared = (
            (unlike_new, views.old),
            (unlike_new, views.new),
            (np.where(counted, views.old, np.uint8(IGNORE)), views.new),
            (views.truth, views.new),
        )
        for number, (truth, predicted) in enumerate(compared):
            matrix = confusion_of(truth, predicted, count)
            matrices[number] += matrix
            counts[index, number] = counts_of(matrix)
        thumbnails[index] = thumbnail(views.image)
        differing[index] = np.count_nonzero((views.old != views.new) & counted), counted.size
        progress(index + 1, len(samples))
    return _Measured(*map(processes.sum_array, (counts, matrices, thumbnails, differing)))


@dataclass(frozen=True)
class Statistics:
    """The comparisons of G groups of images, from which the results of all C classes are computed."""

    grouped: NDArray[np.int64]
    """Counts of every group and comparison [G, 4, 3, C]."""
    matrices: NDArray[np.int64]
    """Confusion matrices of the comparisons over all images [4, C, C]."""
    resampled: NDArray[np.float64]
    """IoU in every resample and comparison [R, 4, C]."""
    old: int
    """Number of old classes."""

    def by_labels(self, name: str, row: int) -> OldClass:
        """Compare both models with the labels of a class."""
        was, now = self._iou(BEFORE, row), self._iou(AFTER, row)
        if self._pixels(BEFORE, row) < MIN_PIXELS or was is None or now is None:
            return OldClass(name, "no", None, None, None, None, self._pixels(BEFORE, row))
        drops = 100 * (self.resampled[:, BEFORE, row] - self.resampled[:, AFTER, row])
        return OldClass(name, "labels", was, now, None, was - now, *self._certainty(AFTER, row, drops))

    def by_agreement(self, name: str, row: int) -> OldClass:
        """Compare the predictions of both models for a class; those of the old model serve as ground truth."""
        agreement = self._iou(BETWEEN, row)
        if self._pixels(BETWEEN, row) < MIN_PIXELS or agreement is None:
            return OldClass(name, "no", None, None, None, None, self._pixels(BETWEEN, row))
        drops = 100 * (1 - self.resampled[:, BETWEEN, row])
        certainty = self._certainty(BETWEEN, row, drops)
        return OldClass(name, "agreement", None, None, agreement, 100.0 - agreement, *certainty)

    def learned(self, name: str, row: int) -> NewClass:
        """The IoU of a new class."""
        groups = self._groups(LEARNED, row)
        interval = interval_of(100 * self.resampled[:, LEARNED, row], groups)
        return NewClass(name, self._iou(LEARNED, row), self._pixels(LEARNED, row), interval, groups)

    def _certainty(self, kind: int, row: int, drops: NDArray[np.float64]) -> tuple[int, Interval | None, int, float]:
        """The last four fields of an `OldClass`."""
        pixels, groups = self._pixels(kind, row), self._groups(kind, row)
        taken = 100 * float(self.matrices[kind, row, self.old :].sum() / pixels)
        return pixels, interval_of(drops, groups), groups, taken

    def _groups(self, kind: int, row: int) -> int:
        return int(np.count_nonzero(self.grouped[:, kind, 1, row]))

    def _pixels(self, kind: int, row: int) -> int:
        return int(self.matrices[kind, row].sum())

    def _iou(self, kind: int, row: int) -> float | None:
        iou = iou_of(self.grouped[:, kind].sum(axis=0))[row]
        return None if np.isnan(iou) else 100 * float(iou)


def _wishes(measured: _Measured, pair: Pair) -> list[Wish]:
    """What to show: poor, good and typical images of the new classes, and the largest changes of other classes."""
    learned = measured.counts[:, LEARNED, :, pair.count :]
    hits, true, predicted = learned.sum(axis=2).T
    union = true + predicted - hits
    scores = np.divide(hits, union, out=np.full(len(union), np.nan), where=union >= MIN_PIXELS)
    name = " and ".join(c.name for c in pair.new.classes[pair.count :])
    shares = measured.differing[:, 0] / np.maximum(measured.differing[:, 1], 1)
    changed = [int(index) for index in np.argsort(-shares, kind="stable") if shares[index] > 0]
    captions = [f"largest changes of old classes: {shares[index]:.1%} of the pixels" for index in changed]
    poor, *others = by_class_score(scores, union, name, worst=4, typical=2, best=3) or [Wish((), (), 0)]
    return [poor, Wish(changed, captions, 3), *others]

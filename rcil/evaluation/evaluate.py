"""Evaluate a model on images with masks: confusion matrix and IoU. Classes are matched by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rcil.core.images import Image, read_rgb
from rcil.core.log import Progress
from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.protocol import BACKGROUND
from rcil.data.scan import id_table
from rcil.data.types import IGNORE, Sample, SegmentationData
from rcil.evaluation.bootstrap import Interval, by_group, counts_of, interval_of, iou_of, resampled_iou
from rcil.evaluation.resampling import Pair, centre_crop
from rcil.evaluation.similar_images import SIDE, group_similar, thumbnail
from rcil.inference import Model
from rcil.model.metadata import Metadata

GPU_PIXELS = 2**21
"""Default number of pixels in a batch on a GPU: eight images of 512 x 512."""
Observer = Callable[[int, Image, NDArray[np.int64]], None]
MAX_WAITING = 64
"""Maximum number of images in memory that wait for others of the same size."""


@dataclass
class Confusion:
    """A confusion matrix of pixels: true class (row) by predicted class (column)."""

    classes: int
    matrix: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.matrix = np.zeros((self.classes, self.classes), np.int64)

    def update(self, truth: NDArray[np.uint8], predicted: NDArray[np.uint8]) -> None:
        """Add the pixels of a mask [H, W] and its prediction; ignored pixels do not count."""
        self.matrix += confusion_of(truth, predicted, self.classes)

    @property
    def iou(self) -> NDArray[np.float64]:
        """IoU of every class; NaN for a class that no mask labels, as in the published codes.

        Predictions of such a class count as misses of the classes that the masks have there.
        """
        return np.where(self.matrix.sum(axis=1) > 0, iou_of(counts_of(self.matrix)), np.nan)

    @property
    def pixel_accuracy(self) -> float:
        """Share of correctly classified pixels; NaN without pixels."""
        total = self.matrix.sum()
        return float(np.trace(self.matrix) / total) if total else float("nan")


def confusion_of(truth: NDArray[np.uint8], predicted: NDArray[np.uint8], classes: int) -> NDArray[np.int64]:
    """Pixels [C, C] of a mask [H, W] by true (row) and predicted class (column), without ignored ones."""
    valid = truth != IGNORE
    pairs = truth[valid].astype(np.int64) * classes + predicted[valid]
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)


def mean_iou(iou: NDArray[np.float64], rows: Sequence[int]) -> float:
    """Mean over some classes, without those that are NaN; NaN if none remains."""
    values = iou[list(rows)]
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else float("nan")


@dataclass(frozen=True)
class ClassResult:
    """The result of one class."""

    name: str
    step: int
    iou: float
    """IoU from 0 to 1; NaN if no mask labels the class."""
    pixels: int
    """Number of pixels of the class in the masks."""
    interval: Interval | None = None
    """Interval of the IoU; None if it was not computed, or if the class occurs in fewer than two scenes."""
    groups: int | None = None
    """Groups of similar images in which the class occurs; None if they were not computed."""


class PerImage:
    """What an evaluation keeps of every image, so that it can tell how certain the IoU is and which images to show.

    Args:
        images: Number of images N.
        classes: Number of classes C.
    """

    def __init__(self, images: int, classes: int) -> None:
        self.counts = np.zeros((images, 3, classes), np.int64)
        """Correct, true and predicted pixels of every class [N, 3, C]."""
        self.thumbnails = np.zeros((images, SIDE * SIDE), np.uint8)

    def add(self, index: int, image: Image, matrix: NDArray[np.int64]) -> None:
        """Keep the counts of an image."""
        self.counts[index], self.thumbnails[index] = counts_of(matrix), thumbnail(image)

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """Group of similar images that every image belongs to [N]."""
        return group_similar(self.thumbnails)

    @property
    def group_count(self) -> int:
        """Number of groups of similar images."""
        return int(self.groups.max(initial=-1)) + 1

    def intervals(self) -> list[tuple[Interval | None, int]]:
        """The interval of every class's IoU, as shares of 1, and the number of groups in which it occurs."""
        grouped = by_group(self.counts, self.groups)
        present = np.count_nonzero(grouped[:, 1], axis=0)
        if not len(grouped):
            return [(None, 0)] * self.counts.shape[-1]
        resampled = resampled_iou(grouped)
        return [(interval_of(resampled[:, row], int(n)), int(n)) for row, n in enumerate(present)]


@dataclass(frozen=True)
class EvalReport:
    """The result of an evaluation. IoU and accuracy are shares from 0 to 1."""

    images: int
    classes: tuple[ClassResult, ...]
    old: float
    """Mean IoU of the classes of earlier steps, background included; NaN for a model of step 0."""
    new: float
    """Mean IoU of the classes of the latest step."""
    all: float
    pixel_accuracy: float
    unknown: tuple[str, ...]
    """Classes of the data that the model does not know; their pixels count as background."""
    confusion: NDArray[np.int64]
    per_image: PerImage | None = field(default=None, repr=False, compare=False)

    @property
    def groups(self) -> int | None:
        """Groups of similar images, or scenes; None if they were not computed."""
        return None if self.per_image is None else self.per_image.group_count

    @property
    def iou_by_class(self) -> dict[str, float]:
        """IoU in percent; classes that neither occur nor are predicted are left out."""
        return {c.name: 100 * c.iou for c in self.classes if not math.isnan(c.iou)}

    def as_document(self) -> dict[str, Any]:
        """JSON-ready; NaN becomes null."""
        return {
            "images": self.images,
            **({} if self.groups is None else {"groups": self.groups}),
            "miou": {name: _number(getattr(self, name)) for name in ("old", "new", "all")},
            "pixel_accuracy": _number(self.pixel_accuracy),
            "classes": [_class_document(c) for c in self.classes],
            "unknown_classes": list(self.unknown),
            "confusion": self.confusion.tolist(),
        }


def evaluate(
    model: Model,
    data: SegmentationData,
    samples: Sequence[Sample],
    progress: Progress = lambda done, total: None,
    *,
    scale: float | None = None,
    test_crop: int | None = None,
) -> EvalReport:
    """IoU and interval per class, and the mean over old, new and all classes. The arguments are those of `measure`."""
    seen = PerImage(len(samples), len(model.network.names))
    confusion = measure(model, data, samples, progress, scale=scale, test_crop=test_crop, observe=seen.add)
    return as_report(confusion, model.metadata, data, len(samples), seen)


def measure(
    model: Model,
    data: SegmentationData,
    samples: Sequence[Sample],
    progress: Progress = lambda done, total: None,
    *,
    scale: float | None = None,
    test_crop: int | None = None,
    dtype: torch.dtype = torch.float32,
    pixels: int | None = None,
    observe: Observer = lambda index, image, matrix: None,
) -> Confusion:
    """Segment every sample at the size of its mask and count the pixels of each true and predicted class.

    Args:
        model: A model of any form; its folded form is evaluated.
        data: The dataset of the samples; its class names map mask values to classifier rows.
        samples: The samples to evaluate.
        progress: Called with the number of finished samples and their total.
        scale: Factor by which images are resized for the network; by default that of its training.
        test_crop: Side of the square in the middle that images and masks are cut to, after the shorter side was
            resized to it, as in the published codes; None evaluates whole images.
        dtype: A half-precision type runs the network under autocast.
        pixels: Maximum number of pixels in a batch; images of one size share a batch. By default `GPU_PIXELS` on a
            GPU, and one image per batch on a CPU.
        observe: Called with the index of every sample, its image and its confusion matrix [C, C].
    """
    table = rows_by_value(data, model.network.names)
    confusion = Confusion(len(model.network.names))
    device = model.device
    if pixels is None:
        pixels = GPU_PIXELS if device.type == "cuda" else 0
    done = 0
    items = ((*read_pair(sample, table, test_crop), index) for index, sample in enumerate(samples))
    for group in batches_of_one_size(items, pixels):
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            masks = model.folded.segment_all([image for image, _, _ in group], scale=scale)
        for (image, truth, index), rows in zip(group, masks, strict=True):
            matrix = confusion_of(truth, rows, confusion.classes)
            confusion.matrix += matrix
            observe(index, image, matrix)
        done += len(group)
        progress(done, len(samples))
    return confusion


Item = tuple[Image, NDArray[np.uint8], int]
"""An image [H, W, 3], its labels [H, W] and the index of its sample."""


def batches_of_one_size(items: Iterable[Item], pixels: int) -> Iterator[list[Item]]:
    """Group items of one size into batches of at most `pixels` pixels; a batch has at least one image."""
    waiting: dict[tuple[int, ...], list[Item]] = {}
    for image, truth, index in items:
        group = waiting.setdefault(truth.shape, [])
        group.append((image, truth, index))
        if (len(group) + 1) * truth.size > pixels:
            yield waiting.pop(truth.shape)
        elif sum(map(len, waiting.values())) > MAX_WAITING:
            yield waiting.pop(max(waiting, key=lambda shape: len(waiting[shape])))
    yield from waiting.values()


def read_pair(sample: Sample, table: NDArray[np.uint8], test_crop: int | None = None) -> Pair:
    """Image [H, W, 3] and labels [H, W] of a sample; `table` [256] maps mask values to labels.

    With `test_crop`, both are cut to a square of this side, see `measure`.

    Raises if the mask has another size than its image. Resizing it would hide a real mistake: a mask drawn before the
    photo was rotated by its EXIF tag.
    """
    image, mask = read_rgb(sample.image), read_mask(sample.mask)
    if image.shape[:2] != mask.shape:
        (height, width), (rows, columns) = image.shape[:2], mask.shape
        raise DataError(
            f"{sample.mask} has {columns}x{rows} pixels, its image has {width}x{height}",
            "Export the mask again; `rcil data check` lists all masks of a wrong size.",
        )
    return (image, table[mask]) if test_crop is None else centre_crop(image, table[mask], test_crop)


def rows_by_value(data: SegmentationData, names: Sequence[str]) -> NDArray[np.uint8]:
    """Classifier row of every mask value [256]; classes that the model does not know become background, row 0."""
    if not set(names[1:]) & set(data.names[1:]):
        raise DataError(
            f"{data.root} shares no class with the model",
            f"Classes of the model: {', '.join(names)}; of the data: {', '.join(data.names)}.",
        )
    row = {name: index for index, name in enumerate(names)}
    by_id = np.zeros(256, np.uint8)
    by_id[IGNORE] = IGNORE
    for class_id, name in enumerate(data.names):
        by_id[class_id] = row.get(name, 0)
    return by_id[id_table(data)]


def as_report(
    confusion: Confusion, metadata: Metadata, data: SegmentationData, images: int, seen: PerImage | None = None
) -> EvalReport:
    """Compute the report from the confusion matrix of `images` images, with intervals if there are counts of each."""
    iou, pixels = confusion.iou, confusion.matrix.sum(axis=1)
    certainty = [(None, None)] * confusion.classes if seen is None else seen.intervals()
    steps = [c.step for c in metadata.classes]
    latest = max(steps)
    rows = range(len(steps))
    if not np.isin(BACKGROUND, id_table(data)):  # a void background is not a class
        iou[BACKGROUND], rows = np.nan, rows[1:]
    return EvalReport(
        images=images,
        classes=tuple(
            ClassResult(c.name, c.step, float(iou[row]), int(pixels[row]), *certainty[row])
            for row, c in enumerate(metadata.classes)
        ),
        old=mean_iou(iou, [r for r in rows if steps[r] < latest]),
        new=mean_iou(iou, [r for r in rows if steps[r] == latest]),
        all=mean_iou(iou, rows),
        pixel_accuracy=confusion.pixel_accuracy,
        unknown=tuple(name for name in data.names if name not in {c.name for c in metadata.classes}),
        confusion=confusion.matrix,
        per_image=seen,
    )


def _class_document(c: ClassResult) -> dict[str, Any]:
    """A class, JSON-ready; what was not computed is left out."""
    document = {**asdict(c), "iou": _number(c.iou)}
    return document if c.groups is not None else {k: v for k, v in document.items() if k not in ("interval", "groups")}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value

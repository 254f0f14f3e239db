"""Evaluate a model on images with masks: confusion matrix and IoU. Classes are matched by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rcil.core.images import read_rgb
from rcil.core.log import Progress
from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.protocol import BACKGROUND
from rcil.data.scan import id_table
from rcil.data.types import IGNORE, Sample, SegmentationData
from rcil.evaluation.bootstrap import counts_of, iou_of
from rcil.evaluation.resampling import Pair, centre_crop
from rcil.inference import Model
from rcil.model.metadata import Metadata

GPU_PIXELS = 2**21
"""Default number of pixels in a batch on a GPU: eight images of 512 x 512."""
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
        """IoU of every class; NaN for a class that neither occurs nor is predicted."""
        return iou_of(counts_of(self.matrix))

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
    """IoU from 0 to 1; NaN if the class neither occurs nor is predicted."""
    pixels: int
    """Number of pixels of the class in the masks."""


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

    @property
    def iou_by_class(self) -> dict[str, float]:
        """IoU in percent; classes that neither occur nor are predicted are left out."""
        return {c.name: 100 * c.iou for c in self.classes if not math.isnan(c.iou)}

    def as_document(self) -> dict[str, Any]:
        """JSON-ready; NaN becomes null."""
        return {
            "images": self.images,
            "miou": {name: _number(getattr(self, name)) for name in ("old", "new", "all")},
            "pixel_accuracy": _number(self.pixel_accuracy),
            "classes": [{**asdict(c), "iou": _number(c.iou)} for c in self.classes],
            "unknown_classes": list(self.unknown),
            "confusion": self.confusion.tolist(),
        }


def evaluate(
    model: Model,
    data: SegmentationData,
    samples: Sequence[Sample],
    progress: Progress = lambda done, total: None,
    *,
    scale: float = 1.0,
    test_crop: int | None = None,
) -> EvalReport:
    """IoU per class, and the mean over old, new and all classes. The arguments are those of `measure`."""
    confusion = measure(model, data, samples, progress, scale=scale, test_crop=test_crop)
    return as_report(confusion, model.metadata, data, len(samples))


def measure(
    model: Model,
    data: SegmentationData,
    samples: Sequence[Sample],
    progress: Progress = lambda done, total: None,
    *,
    scale: float = 1.0,
    test_crop: int | None = None,
    dtype: torch.dtype = torch.float32,
    pixels: int | None = None,
) -> Confusion:
    """Segment every sample at the size of its mask and count the pixels of each true and predicted class.

    Args:
        model: A model of any form; its folded form is evaluated.
        data: The dataset of the samples; its class names map mask values to classifier rows.
        samples: The samples to evaluate.
        progress: Called with the number of finished samples and their total.
        scale: Factor by which images are resized for the network.
        test_crop: Side of the square in the middle that images and masks are cut to, after the shorter side was
            resized to it, as in the published codes; None evaluates whole images.
        dtype: A half-precision type runs the network under autocast.
        pixels: Maximum number of pixels in a batch; images of one size share a batch. By default `GPU_PIXELS` on a
            GPU, and one image per batch on a CPU.
    """
    table = rows_by_value(data, model.network.names)
    confusion = Confusion(len(model.network.names))
    device = model.device
    if pixels is None:
        pixels = GPU_PIXELS if device.type == "cuda" else 0
    done = 0
    pairs = (read_pair(sample, table) for sample in samples)
    if test_crop is not None:
        pairs = (centre_crop(image, truth, test_crop) for image, truth in pairs)
    for group in batches_of_one_size(pairs, pixels):
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            masks = model.folded.segment_all([image for image, _ in group], scale=scale)
        for (_, truth), rows in zip(group, masks, strict=True):
            confusion.update(truth, rows)
        done += len(group)
        progress(done, len(samples))
    return confusion


def batches_of_one_size(pairs: Iterable[Pair], pixels: int) -> Iterator[list[Pair]]:
    """Group pairs of one size into batches of at most `pixels` pixels; a batch has at least one image."""
    waiting: dict[tuple[int, ...], list[Pair]] = {}
    for image, truth in pairs:
        group = waiting.setdefault(truth.shape, [])
        group.append((image, truth))
        if (len(group) + 1) * truth.size > pixels:
            yield waiting.pop(truth.shape)
        elif sum(map(len, waiting.values())) > MAX_WAITING:
            yield waiting.pop(max(waiting, key=lambda shape: len(waiting[shape])))
    yield from waiting.values()


def read_pair(sample: Sample, table: NDArray[np.uint8]) -> Pair:
    """Image [H, W, 3] and labels [H, W] of a sample; `table` [256] maps mask values to labels.

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
    return image, table[mask]


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


def as_report(confusion: Confusion, metadata: Metadata, data: SegmentationData, images: int) -> EvalReport:
    """Compute the report from the confusion matrix of `images` images."""
    iou, pixels = confusion.iou, confusion.matrix.sum(axis=1)
    steps = [c.step for c in metadata.classes]
    latest = max(steps)
    labelled = np.isin(BACKGROUND, id_table(data))
    rows = range(0 if labelled else 1, len(steps))  # a void background is not a class
    return EvalReport(
        images=images,
        classes=tuple(
            ClassResult(c.name, c.step, float(iou[row]), int(pixels[row])) for row, c in enumerate(metadata.classes)
        ),
        old=mean_iou(iou, [r for r in rows if steps[r] < latest]),
        new=mean_iou(iou, [r for r in rows if steps[r] == latest]),
        all=mean_iou(iou, rows),
        pixel_accuracy=confusion.pixel_accuracy,
        unknown=tuple(name for name in data.names if name not in {c.name for c in metadata.classes}),
        confusion=confusion.matrix,
    )


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value

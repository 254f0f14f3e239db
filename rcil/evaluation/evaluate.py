"""Evaluating a checkpoint on images with masks; classes are matched by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rcil.core.images import read_rgb
from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.scan import id_table
from rcil.data.types import IGNORE, Sample, SegmentationData
from rcil.evaluation.metrics import Confusion, mean_iou
from rcil.evaluation.resampling import Pair, centre_crop
from rcil.inference import Model
from rcil.model.metadata import Metadata

GPU_PIXELS = 2**21
"""Pixels that a GPU segments at a time: eight images of 512 x 512."""
MAX_WAITING = 64
"""Images that wait in memory for others of their size."""


@dataclass(frozen=True)
class ClassResult:
    """One class of the model."""

    name: str
    step: int
    iou: float
    """NaN if it neither occurs nor is predicted."""
    pixels: int


@dataclass(frozen=True)
class EvalReport:
    """What `rcil eval` prints, writes and compares."""

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
            "classes": [
                {"name": c.name, "step": c.step, "iou": _number(c.iou), "pixels": c.pixels} for c in self.classes
            ],
            "unknown_classes": list(self.unknown),
            "confusion": self.confusion.tolist(),
        }


def evaluate(
    model: Model,
    data: SegmentationData,
    samples: Sequence[Sample],
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    scale: float = 1.0,
    test_crop: int | None = None,
) -> EvalReport:
    """What a model gets right on samples, by class and over old, new and all classes; arguments as of `measure`."""
    confusion = measure(model, data, samples, progress, scale=scale, test_crop=test_crop)
    return as_report(confusion, model.metadata, data, len(samples))


def measure(
    model: Model,
    data: SegmentationData,
    samples: Sequence[Sample],
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    scale: float = 1.0,
    test_crop: int | None = None,
    dtype: torch.dtype = torch.float32,
    pixels: int | None = None,
) -> Confusion:
    """Segment every sample and compare with its mask, at the mask's size or at that of a centre crop.

    Args:
        model: A model of any form; it is folded first.
        data: Where the samples come from; its class names decide which mask value is which row.
        samples: What to evaluate on.
        progress: Told how many of how many samples are done.
        scale: Size at which the network sees images, as a factor.
        test_crop: Side of the square in the middle that images and masks are cut to, after the shorter side was
            resized to it, as in the published codes; None evaluates whole images.
        dtype: Half precision runs the network under autocast.
        pixels: Images of one size are segmented together as long as they have at most so many pixels; by default
            `GPU_PIXELS` on a GPU, and one image at a time on a CPU.
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
    for group in of_one_size(pairs, pixels):
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            masks = model.folded.segment_all([image for image, _ in group], scale=scale)
        for (_, truth), rows in zip(group, masks, strict=True):
            confusion.update(truth, rows)
        done += len(group)
        progress(done, len(samples))
    return confusion


def of_one_size(pairs: Iterable[Pair], pixels: int) -> Iterator[list[Pair]]:
    """All pairs in groups of one size, each of at most `pixels` pixels or of a single image."""
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
    """Image [H, W, 3] and labels [H, W] of a sample; `table` [256] gives the label of every mask value.

    A mask of another size is refused, not resized: that of a photo which its viewers turn would lie across it.
    """
    image, mask = read_rgb(sample.image), read_mask(sample.mask)
    if image.shape[:2] != mask.shape:
        (height, width), (rows, columns) = image.shape[:2], mask.shape
        raise DataError(
            f"{sample.mask} has not the size of its image: {columns}x{rows}, not {width}x{height}",
            "Correct it; `rcil data check` on the site folder lists all like it.",
        )
    return image, table[mask]


def rows_by_value(data: SegmentationData, names: Sequence[str]) -> NDArray[np.uint8]:
    """Classifier row of every mask value [256]; classes the model does not know are background, its row 0."""
    if not set(names[1:]) & set(data.names[1:]):
        raise DataError(
            f"{data.root} shares no class with the model",
            f"The model knows {', '.join(names)}; the data names {', '.join(data.names)}.",
        )
    row = {name: index for index, name in enumerate(names)}
    by_id = np.zeros(256, np.uint8)
    by_id[IGNORE] = IGNORE
    for class_id, name in enumerate(data.names):
        by_id[class_id] = row.get(name, 0)
    return by_id[id_table(data)]


def as_report(confusion: Confusion, metadata: Metadata, data: SegmentationData, images: int) -> EvalReport:
    """The report of a confusion matrix over `images` images."""
    iou, pixels = confusion.iou, confusion.matrix.sum(axis=1)
    steps = [c.step for c in metadata.classes]
    latest = max(steps)
    rows = range(len(steps))
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

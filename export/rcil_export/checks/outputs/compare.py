"""Comparing two artefacts on the same images: logits, masks, confidences and mIoU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.log import Progress
from rcil.core.log_histogram import LogHistogram
from rcil.data.types import SegmentationData
from rcil.evaluation.evaluate import Confusion, mean_iou, rows_by_value
from rcil.model.class_match import match_classes
from rcil.model.metadata import Metadata
from rcil_export.checks.artefact import Artefact, GraphArtefact, Prediction
from rcil_export.checks.limits import Limits, limits_for
from rcil_export.checks.outputs.pixels import Disagreements, PixelComparison, compare_pixels
from rcil_export.checks.outputs.report import (
    PARTS,
    Agreement,
    Errors,
    ImageNumbers,
    OutputsReport,
    PartNumbers,
    WorstImage,
)
from rcil_export.checks.outputs.variants import batch_item, size_items
from rcil_export.checks.result import Item
from rcil_export.images import CheckImage, CheckImages, common_shape, fit

WORST_SIDE = 160
"""Longest side of the pictures in a report."""


def compare_outputs(
    a: Artefact,
    b: Artefact,
    images: CheckImages,
    limits: Limits | None = None,
    *,
    scale: float | None = None,
    progress: Progress = lambda done, total: None,
) -> OutputsReport:
    """Run both on every image, one at a time, and compare b with a.

    Args:
        a: The reference.
        b: The artefact that is checked.
        images: Resized where a or b does not take their size, see `images.fit`.
        limits: None: the defaults of the less exact of both precisions.
        scale: Factor by which images are resized where several sizes can be used; None: photographs are seen as in the
            training of b, and generated images as they are.
        progress: Receives the number of compared images and their total.
    """
    shape = common_shape(a.shape, b.shape)
    limits = limits or limits_for(a.precision, b.precision)
    tally = _Tally(a.metadata, b.metadata, limits, images)
    if scale is None:
        scale = b.metadata.training_scale if images.files else 1.0
    for done, image in enumerate(images, 1):
        fitted = fit(image, shape, scale)
        first, second = a.predict(fitted.pixels), b.predict(fitted.pixels)
        tally.add(fitted, first, second)
        progress(done, len(images))
    further = [_one_class(tally)]
    if len(images):
        further.append(batch_item(b, images, limits) if isinstance(b, GraphArtefact) else None)
        further += size_items(a, b, images.readers[0](), limits)
    return tally.report(a.name, b.name, tuple(item for item in further if item is not None))


def _of_latest_step(names: Sequence[str], later: Metadata) -> NDArray[np.bool_]:
    """Whether each class was taught in the step of the later model [names]."""
    step_of = {c.name: c.step for c in later.classes}
    return np.array([step_of[name] >= later.step for name in names])


def _one_class(tally: _Tally) -> Item | None:
    """A warning if the second artefact gives all pixels of all images one class."""
    if len(tally.predicted) != 1:
        return None
    (row,) = tally.predicted
    name = tally.match.names[row] if row >= 0 else "a class that only it has"
    text = f"WARNING: every pixel of all {len(tally.images)} images is {name}"
    detail = {"class": name}
    return Item("one_class", "Classes predicted", None, text, "more than one class on the images", detail, warning=True)


class _Tally:
    """Sums over images; only a thumbnail of the worst image is kept."""

    def __init__(self, a: Metadata, b: Metadata, limits: Limits, images: CheckImages) -> None:
        self.match = match = match_classes(a.classes, b.classes)
        newest = _of_latest_step(match.names, b if b.step >= a.step else a)
        self.limits = limits
        self.source = images
        self.table = _rows_of_truth(images.data, match.names)
        self.rows = {"all": np.arange(len(match.names)), "old": np.flatnonzero(~newest), "new": np.flatnonzero(newest)}
        self.histograms = {part: LogHistogram() for part in PARTS}
        self.agreements = {part: Agreement(0, 0, 0) for part in PARTS}
        self.confusions = self._confusions()
        self.disagreements = Disagreements(match.names)
        self.images: list[ImageNumbers] = []
        self.predicted: set[int] = set()
        self.absolute = float("nan")
        self.confidence = (float("nan"), float("nan"))
        self.worst: WorstImage | None = None
        self.worst_score = -1.0

    def add(self, image: CheckImage, first: Prediction, second: Prediction) -> None:
        found = compare_pixels(
            self.match, (first.logits, second.logits), (first.mask, second.mask), tie=self.limits.tie
        )
        self._add_confidence(first, second)
        histograms = {part: LogHistogram() for part in PARTS}
        agreements = {}
        for part in PARTS:
            if found.errors is not None:
                histograms[part].add(found.errors[self.rows[part]])
            agreements[part] = self._agreement(found, part)
            self.histograms[part].merge(histograms[part])
            self.agreements[part] += agreements[part]
        confusions = self._add_truth(image, found)
        self.disagreements.add(found.mask_a[found.differs], found.mask_b[found.differs], found.margins)
        parts = {part: self._numbers(part, histograms[part], agreements[part], confusions) for part in PARTS}
        height, width = image.pixels.shape[:2]
        self.images.append(ImageNumbers(image.name, (height, width), found.spread, parts))
        self.predicted.update(np.unique(found.mask_b).tolist())
        self._keep_worst(image, found, histograms["all"])

    def _add_confidence(self, first: Prediction, second: Prediction) -> None:
        """Only if both have the same classes, because a probability depends on all classes."""
        if first.confidence is None or second.confidence is None or not self.match.complete:
            return
        apart = np.abs(first.confidence - second.confidence)
        apart[~np.isfinite(apart)] = np.inf
        mean, largest = self.confidence
        self.confidence = float(np.fmax(mean, apart.mean())), float(np.fmax(largest, apart.max()))

    def _agreement(self, found: PixelComparison, part: str) -> Agreement:
        there = found.known if part == "all" else found.known & np.isin(found.mask_a, self.rows[part])
        return Agreement(int(there.sum()), int((found.differs & there).sum()), int((found.tied & there).sum()))

    def _add_truth(self, image: CheckImage, found: PixelComparison) -> tuple[Confusion, ...]:
        """Confusion matrices of this image, also added to the sums; all zeros without a mask."""
        here = self._confusions()
        if image.truth is not None and self.table is not None:
            truth = self.table[image.truth]
            for confusion, total, mask in zip(here, self.confusions, (found.mask_a, found.mask_b), strict=True):
                rows = np.where(mask < 0, len(self.match.names), mask)
                confusion.update(truth[found.known], rows[found.known])
                total.matrix += confusion.matrix
        return here

    def _confusions(self) -> tuple[Confusion, Confusion]:
        """Confusion matrices of both artefacts, with an extra column for mask values that are no class."""
        return Confusion(len(self.match.names) + 1), Confusion(len(self.match.names) + 1)

    def _numbers(
        self, part: str, histogram: LogHistogram, agreement: Agreement, confusions: tuple[Confusion, ...]
    ) -> PartNumbers:
        rows = self.rows[part].tolist()
        first, second = (mean_iou(confusion.iou, rows) for confusion in confusions)
        names = tuple(self.match.names[row] for row in rows)
        return PartNumbers(names, Errors.of(histogram), agreement, first, second)

    def _keep_worst(self, image: CheckImage, found: PixelComparison, histogram: LogHistogram) -> None:
        if found.errors is not None:
            absolute = histogram.largest * found.spread
            self.absolute = absolute if math.isnan(self.absolute) else max(self.absolute, absolute)
        score = float(found.differs.mean()) if found.errors is None else histogram.largest
        if score <= self.worst_score:
            return
        self.worst_score = score
        errors = None if found.errors is None else shrink(found.errors.max(axis=0), WORST_SIDE)
        differs = shrink(found.differs, WORST_SIDE)
        height, width = differs.shape
        small = cv2.resize(image.pixels, (width, height), interpolation=cv2.INTER_AREA)
        self.worst = WorstImage(image.name, np.asarray(small, np.uint8), errors, differs)

    def report(self, name_a: str, name_b: str, further: tuple[Item, ...]) -> OutputsReport:
        return OutputsReport(
            name_a=name_a,
            name_b=name_b,
            limits=self.limits,
            images_from=self.source.description,
            match=self.match,
            parts={
                part: self._numbers(part, self.histograms[part], self.agreements[part], self.confusions)
                for part in PARTS
            },
            images=tuple(self.images),
            required_absolute=self.absolute,
            confidence=self.confidence,
            further=further,
            swaps=self.disagreements.swaps(),
            histogram=self.histograms["all"].bars(),
            worst=self.worst,
        )


def _rows_of_truth(data: SegmentationData | None, names: Sequence[str]) -> NDArray[np.uint8] | None:
    """Common row of every mask value [256]; None if the masks contain none of the common classes.

    That is not an error: a folder for a new class may label nothing else, and two steps share only old classes.
    """
    if data is None or not set(names[1:]) & set(data.names[1:]):
        return None
    return rows_by_value(data, names)


def shrink(values: NDArray[Any], longest: int) -> NDArray[Any]:
    """A map [H, W] reduced to sides of at most `longest`; each cell is the maximum of the values it covers."""
    step = max(1, -(-max(values.shape) // longest))
    for axis in (0, 1):
        values = np.maximum.reduceat(values, np.arange(0, values.shape[axis], step), axis=axis)
    return values

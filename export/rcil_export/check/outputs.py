"""Two artefacts on the same images: how far their logits differ, where their masks differ, what it costs in mIoU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.evaluate import rows_by_value
from rcil.images import Image
from rcil.metrics import Confusion, mean_iou
from rcil_export.check.artefact import Artefact
from rcil_export.check.class_match import ClassMatch, match_classes
from rcil_export.check.disagreement import Disagreements, Swap
from rcil_export.check.images import CheckImage, CheckImages, common_shape, fit
from rcil_export.check.limits import Limits, limits_for
from rcil_export.check.log_histogram import LogHistogram
from rcil_export.check.pixels import PixelComparison, compare_pixels
from rcil_export.check.result import Item, Result

PARTS = ("all", "old", "new")
WORST_SIDE = 160
"""Longest side of the pictures that a report keeps."""


@dataclass(frozen=True)
class Errors:
    """Errors of logits, as shares of the range of the first artefact's logits; NaN where there are none."""

    max: float
    """The tolerance that a comparison would need to pass."""
    p50: float
    p99: float
    p999: float

    @classmethod
    def of(cls, histogram: LogHistogram) -> Errors:
        """From counted errors."""
        largest = histogram.largest if histogram.total else float("nan")
        return cls(largest, *(histogram.quantile(share) for share in (0.5, 0.99, 0.999)))


@dataclass(frozen=True)
class Agreement:
    """Pixels by whether both artefacts gave them the same class."""

    pixels: int
    differing: int
    """Another class, ties aside."""
    tied: int
    """Another class, but the logits of both classes are as good as equal."""

    @property
    def share(self) -> float:
        """Of pixels with the same class, ties left out; NaN without pixels."""
        counted = self.pixels - self.tied
        return 1 - self.differing / counted if counted else float("nan")

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.pixels + other.pixels, self.differing + other.differing, self.tied + other.tied)


@dataclass(frozen=True)
class PartNumbers:
    """What was measured for all, for old or for new classes.

    Errors are those of the classes' logits; agreement is that of the pixels to which the first artefact gave one of
    them.
    """

    classes: tuple[str, ...]
    errors: Errors
    agreement: Agreement
    miou_a: float = float("nan")
    miou_b: float = float("nan")

    @property
    def miou_drop(self) -> float:
        """Points of mIoU that the second lost; negative if it gained, NaN without masks."""
        return 100 * (self.miou_a - self.miou_b)

    def as_document(self) -> dict[str, Any]:
        """JSON-ready; what is unknown or not finite becomes null."""
        return {
            "classes": list(self.classes),
            "errors": {key: _number(value) for key, value in asdict(self.errors).items()},
            "agreement": _number(self.agreement.share),
            **asdict(self.agreement),
            "miou_first": _number(self.miou_a),
            "miou_second": _number(self.miou_b),
            "miou_drop": _number(self.miou_drop),
        }


@dataclass(frozen=True)
class ImageNumbers:
    """One image."""

    name: str
    size: tuple[int, int]
    """Height and width at which it was compared."""
    logit_range: float
    parts: dict[str, PartNumbers]


@dataclass(frozen=True)
class WorstImage:
    """The image with the largest error (the most differing pixels, without logits), small enough for a report."""

    name: str
    pixels: Image
    """RGB [h, w, 3]."""
    errors: NDArray[np.float32] | None
    """Largest error over the classes [h, w], and over the pixels that one cell stands for."""
    differs: NDArray[np.bool_]
    """Whether any pixel of the cell differs [h, w]."""


@dataclass(frozen=True)
class OutputsReport:
    """What `compare_outputs` measured."""

    name_a: str
    name_b: str
    limits: Limits
    images_from: str
    match: ClassMatch
    parts: dict[str, PartNumbers]
    """`all`, `old`, `new`, over all images."""
    images: tuple[ImageNumbers, ...]
    required_absolute: float
    """Largest error in the unit of the logits; NaN without logits."""
    swaps: tuple[Swap, ...]
    """Which class became which, the most frequent first."""
    histogram: tuple[list[float], list[int]]
    """Upper edges of error bins and how many logits are in each."""
    worst: WorstImage | None

    def as_result(self) -> Result:
        """What was required and what was found."""
        items = [self._classes(), self._error()]
        items += [self._agreement(part) for part in PARTS if part == "all" or self.parts[part].classes]
        items.append(self._miou())
        return Result("outputs", f"Outputs of {self.name_b} against {self.name_a}", tuple(items))

    def as_document(self) -> dict[str, Any]:
        """JSON-ready: the result with every number behind it."""
        edges, counts = self.histogram
        return {
            **self.as_result().as_document(),
            "first": self.name_a,
            "second": self.name_b,
            "limits": self.limits.model_dump(),
            "images_from": self.images_from,
            "parts": {part: numbers.as_document() for part, numbers in self.parts.items()},
            "required_tolerance": {
                "relative": _number(self.parts["all"].errors.max),
                "absolute": _number(self.required_absolute),
            },
            "swaps": [swap.as_document() for swap in self.swaps],
            "histogram": {"upper_edges": [_number(edge) for edge in edges], "counts": counts},
            "images": [
                {
                    "name": image.name,
                    "size": list(image.size),
                    "logit_range": _number(image.logit_range),
                    "parts": {part: numbers.as_document() for part, numbers in image.parts.items()},
                }
                for image in self.images
            ],
        }

    def _classes(self) -> Item:
        match = self.match
        if match.complete:
            measured = f"the same {len(match.names)}" + ("" if match.same_rows else ", in other rows; matched by name")
        else:
            lists = (("only in the first", match.only_a), ("only in the second", match.only_b))
            apart = "; ".join(f"{where}: {', '.join(names)}" for where, names in lists if names)
            measured = f"{len(match.names)} in common; {apart}"
        return Item("classes", "Same classes", match.complete, measured, "the same names")

    def _error(self) -> Item:
        errors, limit = self.parts["all"].errors, self.limits.error
        required = "not limited" if limit is None else f"at most {limit:.1e} of the logit range"
        if math.isnan(errors.max):
            return Item("error", "Error of the logits", None, "one of them gives no logits", required)
        by_part = [f"{part} {self.parts[part].errors.max:.1e}" for part in PARTS[1:] if self.parts[part].classes]
        measured = (
            f"needs a tolerance of {errors.max:.1e} ({', '.join(by_part)}); "
            f"median {errors.p50:.1e}, 99 % {errors.p99:.1e}, 99.9 % {errors.p999:.1e}"
        )
        passed = math.isfinite(errors.max) if limit is None else errors.max <= limit
        detail = {"absolute": _number(self.required_absolute)}
        detail |= {part: self.parts[part].as_document()["errors"] for part in PARTS}
        return Item("error", "Error of the logits", passed, measured, required, detail)

    def _agreement(self, part: str) -> Item:
        agreement = self.parts[part].agreement
        limit = self.limits.agreement if part == "all" else self.limits.agreement_old_new
        key, of = ("agreement", "") if part == "all" else (f"agreement_{part}", f", {part} classes")
        title, required = f"Same class{of}", f"at least {limit:.2%} of pixels, ties within {self.limits.tie:.0e} aside"
        if not agreement.pixels:
            return Item(key, title, None, "the first gives no pixel such a class", required)
        measured = (
            f"{agreement.share:.4%} of {agreement.pixels:,} pixels: "
            f"{agreement.differing:,} differ, {agreement.tied:,} are ties"
        )
        passed = math.isnan(agreement.share) or agreement.share >= limit
        detail: dict[str, Any] = {**asdict(agreement), "agreement": _number(agreement.share)}
        if part == "all":
            detail["swaps"] = [swap.as_document() for swap in self.swaps[:10]]
        return Item(key, title, passed, measured, required, detail)

    def _miou(self) -> Item:
        limit = self.limits.miou_drop
        required = f"at most {limit:g} points lost"
        drops = {part: self.parts[part].miou_drop for part in PARTS if not math.isnan(self.parts[part].miou_drop)}
        if not drops:
            return Item("miou", "Mean IoU", None, "no masks to compare with", required)
        measured = ", ".join(
            f"{part} {100 * self.parts[part].miou_a:.2f} -> {100 * self.parts[part].miou_b:.2f}" for part in drops
        )
        return Item("miou", "Mean IoU", max(drops.values()) <= limit, measured, required, {"drop": drops})


def compare_outputs(
    a: Artefact,
    b: Artefact,
    images: CheckImages,
    limits: Limits | None = None,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> OutputsReport:
    """Run both on every image, one at a time, and compare b with a.

    Args:
        a: The reference.
        b: What is checked.
        images: Resized where a or b does not take their size, see `images.fit`.
        limits: None: the defaults of the less exact of both precisions.
        progress: Told how many of how many images are done.
    """
    shape = common_shape(a.shape, b.shape)
    tally = _Tally(match_classes(a.metadata, b.metadata), limits or limits_for(a.precision, b.precision), images)
    for done, image in enumerate(images, 1):
        fitted = fit(image, shape)
        first, second = a.predict(fitted.pixels), b.predict(fitted.pixels)
        tally.add(fitted, (first.logits, second.logits), (first.mask, second.mask))
        progress(done, len(images))
    return tally.report(a.name, b.name)


class _Tally:
    """Sums over images; of the images themselves only the worst is kept, and small."""

    def __init__(self, match: ClassMatch, limits: Limits, images: CheckImages) -> None:
        self.match = match
        self.limits = limits
        self.source = images
        self.table = None if images.data is None else rows_by_value(images.data, match.names)
        self.rows = {
            "all": np.arange(len(match.names)),
            "old": np.flatnonzero(~match.new),
            "new": np.flatnonzero(match.new),
        }
        self.histograms = {part: LogHistogram() for part in PARTS}
        self.agreements = {part: Agreement(0, 0, 0) for part in PARTS}
        self.confusions = tuple(Confusion(len(match.names)) for _ in range(2))
        self.disagreements = Disagreements(match.names)
        self.images: list[ImageNumbers] = []
        self.absolute = float("nan")
        self.worst: WorstImage | None = None
        self.worst_score = -1.0

    def add(self, image: CheckImage, logits: tuple[Any, Any], masks: tuple[Any, Any]) -> None:
        found = compare_pixels(self.match, logits, masks, tie=self.limits.tie)
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
        self._keep_worst(image, found, histograms["all"])

    def _agreement(self, found: PixelComparison, part: str) -> Agreement:
        there = found.known if part == "all" else found.known & np.isin(found.mask_a, self.rows[part])
        return Agreement(int(there.sum()), int((found.differs & there).sum()), int((found.tied & there).sum()))

    def _add_truth(self, image: CheckImage, found: PixelComparison) -> tuple[Confusion, ...]:
        """Confusion of this image alone, also added to the sums; all zeros without a mask."""
        here = tuple(Confusion(len(self.match.names)) for _ in range(2))
        if image.truth is not None and self.table is not None:
            truth = self.table[image.truth]
            for confusion, total, mask in zip(here, self.confusions, (found.mask_a, found.mask_b), strict=True):
                confusion.update(truth[found.known], mask[found.known])  # type: ignore[arg-type]
                total.matrix += confusion.matrix
        return here

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

    def report(self, name_a: str, name_b: str) -> OutputsReport:
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
            swaps=self.disagreements.swaps(),
            histogram=self.histograms["all"].bars(),
            worst=self.worst,
        )


def shrink(values: NDArray[Any], longest: int) -> NDArray[Any]:
    """A map [H, W] with sides of at most `longest`; a cell holds the largest of the values it stands for."""
    step = max(1, -(-max(values.shape) // longest))
    for axis in (0, 1):
        values = np.maximum.reduceat(values, np.arange(0, values.shape[axis], step), axis=axis)
    return values


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None

"""Measurements of a comparison of outputs, and their limits."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image
from rcil.core.log_histogram import LogHistogram
from rcil.model.class_match import ClassMatch
from rcil_export.checks.limits import Limits
from rcil_export.checks.outputs.pixels import Swap
from rcil_export.checks.result import Item, Result

PARTS = ("all", "old", "new")


@dataclass(frozen=True)
class Errors:
    """Errors of logits, as shares of the range of the first artefact's logits; NaN where there are none."""

    max: float
    """The tolerance that the comparison would need to pass."""
    p50: float
    p99: float
    p999: float

    @classmethod
    def of(cls, histogram: LogHistogram) -> Errors:
        """Maximum and quantiles of a histogram of errors."""
        largest = histogram.largest if histogram.total else float("nan")
        return cls(largest, *(histogram.quantile(share) for share in (0.5, 0.99, 0.999)))


@dataclass(frozen=True)
class Agreement:
    """Number of pixels with the same and with different classes."""

    pixels: int
    differing: int
    """Pixels with another class, ties aside."""
    tied: int
    """Pixels with another class whose two logits are almost equal."""

    @property
    def share(self) -> float:
        """Share of pixels with the same class, ties aside; NaN without pixels."""
        counted = self.pixels - self.tied
        return 1 - self.differing / counted if counted else float("nan")

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.pixels + other.pixels, self.differing + other.differing, self.tied + other.tied)


@dataclass(frozen=True)
class PartNumbers:
    """Measurements for all, old or new classes.

    Errors are those of the classes' logits. Agreement is that of the pixels to which the first artefact gave one of the
    classes.
    """

    classes: tuple[str, ...]
    errors: Errors
    agreement: Agreement
    miou_a: float = float("nan")
    miou_b: float = float("nan")

    @property
    def miou_drop(self) -> float:
        """Points of mIoU that the second artefact lost; negative if it gained, NaN without masks."""
        return 100 * (self.miou_a - self.miou_b)

    def as_document(self) -> dict[str, Any]:
        """JSON-ready; unknown and infinite numbers become null."""
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
    """Measurements of one image."""

    name: str
    size: tuple[int, int]
    """Height and width at which it was compared."""
    logit_range: float
    parts: dict[str, PartNumbers]


@dataclass(frozen=True)
class WorstImage:
    """A thumbnail of the image with the largest error, or without logits the most differing pixels."""

    name: str
    pixels: Image
    """RGB [h, w, 3]."""
    errors: NDArray[np.float32] | None
    """Largest error over the classes and over the pixels of a cell [h, w]."""
    differs: NDArray[np.bool_]
    """Whether any pixel of the cell differs [h, w]."""


@dataclass(frozen=True)
class OutputsReport:
    """The result of `compare_outputs`."""

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
    confidence: tuple[float, float]
    """Mean difference of the worst image and largest difference of any pixel; NaN if one gives no confidence."""
    further: tuple[Item, ...]
    """Items about other sizes and batches, and a warning if the second artefact predicts one class everywhere."""
    swaps: tuple[Swap, ...]
    """Which class became which, the most frequent first."""
    histogram: tuple[list[float], list[int]]
    """Upper edges of error bins and how many logits are in each."""
    worst: WorstImage | None

    def as_result(self) -> Result:
        """The measurements against their limits."""
        items = [self._classes(), self._error()]
        items += [self._agreement(part) for part in PARTS if part == "all" or self.parts[part].classes]
        items += [item for item in (self._confidence(), *self.further) if item is not None]
        items.append(self._miou())
        return Result("outputs", f"Outputs of {self.name_b} against {self.name_a}", tuple(items))

    def as_document(self) -> dict[str, Any]:
        """JSON-ready: the result with all measurements."""
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
            lists = (("only in the first", match.gone), ("only in the second", match.added))
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
        if not agreement.pixels and part != "all":
            return Item(key, title, None, "the first gives no pixel such a class", required)
        if math.isnan(agreement.share) and part == "all":
            return Item(key, title, False, "no pixel could be compared", required, asdict(agreement))
        measured = (
            f"{agreement.share:.4%} of {agreement.pixels:,} pixels: "
            f"{agreement.differing:,} differ, {agreement.tied:,} are ties"
        )
        passed = math.isnan(agreement.share) or agreement.share >= limit
        detail: dict[str, Any] = {**asdict(agreement), "agreement": _number(agreement.share)}
        if part == "all":
            detail["swaps"] = [swap.as_document() for swap in self.swaps[:10]]
        return Item(key, title, passed, measured, required, detail)

    def _confidence(self) -> Item | None:
        """None if an artefact gives no confidence."""
        mean, largest = self.confidence
        if math.isnan(mean):
            return None
        limit = self.limits.confidence
        measured = f"{mean:.1e} in the mean of the worst image, {largest:.1e} at most"
        detail = {"mean": _number(mean), "largest": _number(largest)}
        required = f"at most {limit:.0e} in the mean of an image"
        return Item("confidence", "Error of the confidence", mean <= limit, measured, required, detail)

    def _miou(self) -> Item:
        limit = self.limits.miou_drop
        required = f"at most {limit:g} points lost"
        drops = {part: self.parts[part].miou_drop for part in PARTS if not math.isnan(self.parts[part].miou_drop)}
        if not drops:
            return Item("miou", "Mean IoU", None, "not measured: there are no masks of these classes", required)
        measured = ", ".join(
            f"{part} {100 * self.parts[part].miou_a:.2f} -> {100 * self.parts[part].miou_b:.2f}" for part in drops
        )
        return Item("miou", "Mean IoU", max(drops.values()) <= limit, measured, required, {"drop": drops})


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None

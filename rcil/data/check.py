"""Check a site folder for problems that would affect training, and draw its masks over its images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rcil.core.drawing import Image, fitted, grid, legend, lut_of, overlay
from rcil.core.images import read_rgb
from rcil.core.log import Progress
from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.scan import MaskContent, id_table, scan
from rcil.data.site import pair_files, read_classes
from rcil.data.types import IGNORE, ClassSpec, Sample, SegmentationData

FEW_PIXELS, FEW_IMAGES = 1000, 5
"""A class with fewer pixels or images is unlikely to be learned."""
ENOUGH_IMAGES = 20
"""Number of training images per class below which the check does not call a folder fit for training."""
ALPHA = 0.55
"""Opacity of the class colours."""


@dataclass(frozen=True)
class Problem:
    """One error or warning."""

    severity: Literal["error", "warning"]
    place: str
    """A file, or `class NAME`."""
    message: str


@dataclass(frozen=True)
class ClassCount:
    """Number of pixels and images of a class."""

    id: int
    name: str
    pixels: int
    images: int
    training_images: int
    """Images in the split `train`, or all images if there are no splits."""


@dataclass
class CheckReport:
    """Everything found in a site folder."""

    root: Path
    classes: tuple[ClassSpec, ...] = ()
    images: dict[str, int] = field(default_factory=dict)
    """Number of images per split."""
    counts: list[ClassCount] = field(default_factory=list)
    ignored: int = 0
    """Number of ignored pixels."""
    problems: list[Problem] = field(default_factory=list)
    good: list[Sample] = field(default_factory=list)
    """Samples without errors, for pictures."""

    @property
    def ok(self) -> bool:
        """Whether there are no errors; warnings do not count."""
        return not any(p.severity == "error" for p in self.problems)

    @property
    def scarce(self) -> list[str]:
        """Classes with fewer training images than `ENOUGH_IMAGES`; background does not count.

        Classes that no training mask labels do not count either: where only a new class was labelled, these are the
        old ones, and the other splits have them to measure with.
        """
        return [c.name for c in self.counts[1:] if 0 < c.training_images < ENOUGH_IMAGES]

    @property
    def verdict(self) -> str:
        """Whether the folder is fit for training, in words."""
        if not self.ok:
            return "not fit for training"
        if not any(count.images for count in self.counts[1:]):
            return "no errors, but no class is labelled"
        if not any(count.training_images for count in self.counts[1:]):
            return "no errors, but no training image shows a class"
        if self.scarce:
            few = ", ".join(self.scarce[:5]) + (f" and {len(self.scarce) - 5} more" if len(self.scarce) > 5 else "")
            return f"no errors, but fewer than {ENOUGH_IMAGES} training images of {few}"
        return "fit for training"

    def add(self, severity: Literal["error", "warning"], place: str | Path, message: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(severity, str(place), message))

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "root": str(self.root),
            "ok": self.ok,
            "verdict": self.verdict,
            "images": self.images,
            "classes": [asdict(c) for c in self.counts],
            "ignored_pixels": self.ignored,
            "problems": [asdict(p) for p in self.problems],
        }


def check_site(root: Path, progress: Progress = lambda done, total: None) -> CheckReport:
    """Check a site folder and collect all problems. Raises only if it is not a site folder.

    Args:
        root: The site folder.
        progress: Called with the number of finished samples and their total.
    """
    report = CheckReport(root, read_classes(root))
    pairing = pair_files(root)
    report.problems.extend(Problem("error", str(path), message) for path, message in pairing.problems)
    report.problems.extend(Problem("warning", str(path), message) for path, message in pairing.doubtful)
    report.images = {split or "(no split)": len(samples) for split, samples in pairing.splits.items()}
    samples = [(split, sample) for split, group in pairing.splits.items() for sample in group]
    data = SegmentationData(root, report.classes, {})
    pixels, images, training = np.zeros((3, 256), np.int64)
    for done, (split, sample) in enumerate(samples, 1):
        content = _check_sample(data, sample, report)
        if content is not None:
            pixels += content.pixels
            images += content.pixels > 0
            training += (content.pixels > 0) & (split in ("", "train"))
        progress(done, len(samples))
    if not samples:
        report.add("error", root, "there are no images with masks")
    _count(report, pixels, images, training)
    return report


def _check_sample(data: SegmentationData, sample: Sample, report: CheckReport) -> MaskContent | None:
    """Check one image and its mask; returns the content of the mask if it is readable."""
    before = len(report.problems)
    image = content = None
    try:
        image = read_rgb(sample.image)
    except DataError as error:
        report.add("error", sample.image, _without_path(error, sample.image))
    try:
        (content,) = scan(data, [sample])
    except DataError as error:
        report.add("error", sample.mask, _without_path(error, sample.mask))
    if content is None:
        return None
    if image is not None and image.shape[:2] != content.size:
        (ih, iw), (mh, mw) = image.shape[:2], content.size
        report.add("error", sample.mask, f"the mask has {mw}x{mh} pixels, the image {iw}x{ih}")
    unknown = sorted(v for v in content.present if v != IGNORE and v >= len(data.classes))
    if unknown:
        listed = ", ".join(f"{v} ({content.pixels[v]} pixels)" for v in unknown[:5])
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        hint = "; this many values look like grey levels or colours, not class ids" if len(unknown) > 20 else ""
        last = len(data.classes) - 1
        known = f"; the classes are 0 {data.names[0]} to {last} {data.names[last]}, and {IGNORE} is ignored"
        report.add("error", sample.mask, f"unknown ids: {listed}{more}{hint}{known}")
    if content.present <= {0, IGNORE}:
        report.add("warning", sample.mask, "contains only background")
    if not any(p.severity == "error" for p in report.problems[before:]):
        report.good.append(sample)
    return content


def _count(
    report: CheckReport, pixels: NDArray[np.int64], images: NDArray[np.int64], training: NDArray[np.int64]
) -> None:
    """Count the pixels and images of every class, each array [256], and warn about rare classes."""
    report.ignored = int(pixels[IGNORE])
    for index, spec in enumerate(report.classes):
        count = ClassCount(index, spec.name, int(pixels[index]), int(images[index]), int(training[index]))
        report.counts.append(count)
        if not count.images:
            text = "no pixels"
        elif count.images < FEW_IMAGES or count.pixels < FEW_PIXELS:
            text = f"only {count.pixels} pixels in {count.images} images"
        elif index and 0 < count.training_images < ENOUGH_IMAGES:
            text = f"only {count.training_images} training images"
        else:
            continue
        advice = f"; label at least {ENOUGH_IMAGES}" if count.images and index else ""
        report.add("warning", f"class {spec.name}", f"{text}{advice}")


def _without_path(error: DataError, path: Path) -> str:
    """The message without the file name, which is printed next to it."""
    return f"{error.message.removeprefix(str(path)).lstrip(': ')}. {error.hint}"


def draw_sample(data: SegmentationData, sample: Sample) -> Image:
    """Draw a mask over its image [H, W, 3]."""
    lut = lut_of({index: spec.colour for index, spec in enumerate(data.classes)})
    mask = id_table(data)[read_mask(sample.mask)]
    return overlay(read_rgb(sample.image), mask, lut, ALPHA)


def contact_sheet(data: SegmentationData, samples: Sequence[Sample], *, columns: int = 4, cell: int = 240) -> Image:
    """Draw overlays of evenly spread samples in a grid, with a legend below."""
    chosen = [samples[i] for i in np.linspace(0, len(samples) - 1, min(len(samples), 3 * columns)).astype(int)]
    cells = [fitted(draw_sample(data, sample), (cell, cell)) for sample in chosen]
    sheet = grid([cells[start : start + columns] for start in range(0, len(cells), columns)])
    return np.vstack([sheet, legend([(c.name, c.colour) for c in data.classes], sheet.shape[1])])

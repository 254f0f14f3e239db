"""Looking for what will go wrong in training before it does. Computes; the command line renders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rcil.core.images import read_rgb
from rcil.core.reading import DataError
from rcil.data.scan import MaskContent, scan
from rcil.data.site import pair_files, read_classes
from rcil.data.types import IGNORE, ClassSpec, Sample, SegmentationData

FEW_PIXELS, FEW_IMAGES = 1000, 5
"""A class below either is unlikely to be learned."""


@dataclass(frozen=True)
class Problem:
    """One finding."""

    severity: Literal["error", "warning"]
    place: str
    """A file, or `class NAME`."""
    message: str


@dataclass(frozen=True)
class ClassCount:
    """How much of a class there is."""

    id: int
    name: str
    pixels: int
    images: int


@dataclass
class CheckReport:
    """Everything found in a site folder."""

    root: Path
    classes: tuple[ClassSpec, ...] = ()
    images: dict[str, int] = field(default_factory=dict)
    """Images of each split."""
    counts: list[ClassCount] = field(default_factory=list)
    ignored: int = 0
    """Pixels without a class."""
    problems: list[Problem] = field(default_factory=list)
    good: list[Sample] = field(default_factory=list)
    """Samples without an error, for pictures."""

    @property
    def ok(self) -> bool:
        """No error; warnings may be there."""
        return not any(p.severity == "error" for p in self.problems)

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "root": str(self.root),
            "ok": self.ok,
            "images": self.images,
            "classes": [asdict(c) for c in self.counts],
            "ignored_pixels": self.ignored,
            "problems": [asdict(p) for p in self.problems],
        }


def check_site(root: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> CheckReport:
    """Check everything, collecting all problems; only a folder that is no site folder at all raises.

    Args:
        root: The site folder.
        progress: Told how many of how many samples are done.
    """
    report = CheckReport(root, read_classes(root))
    pairing = pair_files(root)
    report.problems.extend(Problem("error", str(path), message) for path, message in pairing.problems)
    report.problems.extend(Problem("warning", str(path), message) for path, message in pairing.doubtful)
    report.images = {split or "(no split)": len(samples) for split, samples in pairing.splits.items()}
    samples = [sample for group in pairing.splits.values() for sample in group]
    data = SegmentationData(root, report.classes, {})
    pixels, images = np.zeros(256, np.int64), np.zeros(256, np.int64)
    for done, sample in enumerate(samples, 1):
        content = _check_sample(data, sample, report)
        if content is not None:
            pixels += content.pixels
            images += content.pixels > 0
        progress(done, len(samples))
    if not samples:
        report.problems.append(Problem("error", str(root), "there is no image with a mask"))
    _count(report, pixels, images)
    return report


def _check_sample(data: SegmentationData, sample: Sample, report: CheckReport) -> MaskContent | None:
    """One image and its mask; the mask's content if it can be trusted."""
    before = len(report.problems)
    image = content = None
    try:
        image = read_rgb(sample.image)
    except DataError as error:
        report.problems.append(Problem("error", str(sample.image), _without_path(error, sample.image)))
    try:
        (content,) = scan(data, [sample])
    except DataError as error:
        report.problems.append(Problem("error", str(sample.mask), _without_path(error, sample.mask)))
    if content is None:
        return None
    if image is not None and image.shape[:2] != content.size:
        (ih, iw), (mh, mw) = image.shape[:2], content.size
        report.problems.append(Problem("error", str(sample.mask), f"the mask is {mw}x{mh}, the image {iw}x{ih} pixels"))
    unknown = sorted(v for v in content.present if v != IGNORE and v >= len(data.classes))
    if unknown:
        listed = ", ".join(f"{v} ({content.pixels[v]} pixels)" for v in unknown[:5])
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        hint = "; so many values look like grey levels or colours, not ids" if len(unknown) > 20 else ""
        report.problems.append(Problem("error", str(sample.mask), f"unknown ids: {listed}{more}{hint}"))
    if content.present <= {0, IGNORE}:
        report.problems.append(Problem("warning", str(sample.mask), "nothing but background"))
    if not any(p.severity == "error" for p in report.problems[before:]):
        report.good.append(sample)
    return content


def _count(report: CheckReport, pixels: NDArray[np.int64], images: NDArray[np.int64]) -> None:
    """Totals of every class, and a warning for each that is too rare."""
    report.ignored = int(pixels[IGNORE])
    for index, spec in enumerate(report.classes):
        count = ClassCount(index, spec.name, int(pixels[index]), int(images[index]))
        report.counts.append(count)
        if count.images < FEW_IMAGES or count.pixels < FEW_PIXELS:
            text = f"only {count.pixels} pixels in {count.images} images" if count.images else "no pixel anywhere"
            report.problems.append(Problem("warning", f"class {spec.name}", text))


def _without_path(error: DataError, path: Path) -> str:
    """The message without the file's name, which stands beside it."""
    return f"{error.message.removeprefix(str(path)).lstrip(': ')}. {error.hint}"

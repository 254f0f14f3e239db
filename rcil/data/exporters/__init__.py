"""Write the masks of a site folder for labelling tools; `rcil.data.converters` reads them back.

Masks are exact in every format: one region per class of an image, where touching objects of one class are one region.
Polygons cannot have holes, so a hole is drawn as a further polygon, of background or another class. Read back with
`rcil data convert`, they give the same masks; a labelling tool fills their edges by its own rules. Ignored pixels
(255) have the label `ignore`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.files import check_writable, copy_file
from rcil.core.log import DryRun, Progress
from rcil.core.reading import creating, readable, require_free
from rcil.data.exporters import coco, cvat, label_studio, labelme
from rcil.data.exporters.layout import Export, find_labelled, labels_of

__all__ = ["FORMATS", "ExportSummary", "check_format", "dry_run", "export_site", "write_export"]


@dataclass(frozen=True)
class Format:
    """How a format is written."""

    write: Callable[[Path, Export], None]
    images: str = "images"
    """Folder of the images in the export."""
    polygons: bool = True
    """Whether the format has polygons."""


FORMATS = {
    "cvat": Format(cvat.write_xml),
    "cvat-masks": Format(cvat.write_masks, "JPEGImages", polygons=False),
    "coco": Format(coco.write),
    "labelme": Format(labelme.write, ""),
    "label-studio": Format(label_studio.write),
}
"""Formats by name: CVAT for images 1.1, CVAT's Segmentation mask 1.1, COCO instances, labelme and Label Studio."""


@dataclass(frozen=True)
class ExportSummary:
    """The result of an export."""

    target: Path
    labels: tuple[str, ...]
    images: dict[str, int]
    """Number of images per split; `default` without splits."""


def export_site(
    site: Path, target: Path, kind: str, *, polygons: bool = False, progress: Progress = lambda done, total: None
) -> ExportSummary:
    """Write the images and masks of a site folder for a labelling tool.

    Args:
        site: The site folder.
        target: The folder to create, which appears complete or not at all.
        kind: One of `FORMATS`.
        polygons: Write outlines instead of masks, where the format has them.
        progress: Called with the number of finished images and their total.

    Raises:
        ConfigError: The format is unknown, or has no polygons.
        DataError: The site folder is incomplete or damaged, or the target is in use.
    """
    check_format(kind, polygons=polygons)
    require_free(target)
    with readable(site):
        export = _collect(site, polygons=polygons)
    with creating(target) as folder:
        return write_export(export, folder, kind, target, progress)


def dry_run(site: Path, target: Path, kind: str, *, polygons: bool = False) -> DryRun:
    """Report what `export_site` would do; masks are not read."""
    check_format(kind, polygons=polygons)
    require_free(target)
    check_writable(target)
    with readable(site):
        export = _collect(site, polygons=polygons)
        size = sum(image.sample.image.stat().st_size for image in export.images)
    return DryRun(
        {str(site): f"{len(export.labels) - 1} classes besides background, {len(export.images)} images"},
        {str(target): f"{len(export.images)} images and their annotations for {kind}"},
        {"disk": f"{size / 2**20:.1f} MiB for the copied images"},
    )


def check_format(kind: str, *, polygons: bool) -> None:
    """Raise for an unknown format, or one without polygons if they are asked for."""
    if kind not in FORMATS:
        raise ConfigError(f"unknown annotation format '{kind}'", did_you_mean(kind, FORMATS))
    if polygons and not FORMATS[kind].polygons:
        raise ConfigError(f"{kind} has no polygons", "Omit --polygons, or choose another format.")


def _collect(site: Path, *, polygons: bool, predicted: bool = False) -> Export:
    return Export(labels_of(site), tuple(find_labelled(site)), polygons=polygons, predicted=predicted)


def export_predictions(site: Path, folder: Path, kind: str) -> None:
    """Write the masks of a site folder into an existing folder, marked as predictions where the format can say so."""
    write_export(_collect(site, polygons=False, predicted=True), folder, kind, folder)


def write_export(
    export: Export, folder: Path, kind: str, target: Path, progress: Progress = lambda done, total: None
) -> ExportSummary:
    """Write the annotations, then copy the images."""
    FORMATS[kind].write(folder, export)
    for done, image in enumerate(export.images, 1):
        copy_file(image.sample.image, folder / FORMATS[kind].images / image.path)
        progress(done, len(export.images))
    counts = Counter(image.subset for image in export.images)
    return ExportSummary(target, tuple(label.name for label in export.labels), dict(counts))

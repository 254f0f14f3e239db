"""Convert annotation exports into site folders.

A site folder holds `images/<split>/NAME.{jpg,png}` (the bytes of the originals), `masks/<split>/NAME.png` (8-bit grey
class ids, 255 = ignore) and `classes.txt` (one name per line, line number = id, background first). Each format has a
module with a `read` function; `site_writer` writes the site folder.

Outlines are filled with `cv2.fillPoly` on whole pixels. COCO and YOLO measure from the corner of the picture, so the
pixel of a vertex is the floor of its coordinates; labelme's are rounded. OpenCV counts the outline to the inside, so a
shape may reach one pixel further right and down than its exact area.

Everywhere, a class called background or _background_ is class 0, and one called ignore, __ignore__ or void becomes 255.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.files import check_writable
from rcil.core.log import DryRun
from rcil.core.reading import DataError, readable, require_free
from rcil.data.converters import coco, cvat, labelme, yolo
from rcil.data.converters.annotations import Annotations
from rcil.data.converters.site_writer import ConvertSummary, write_site

__all__ = ["FORMATS", "ConvertSummary", "convert", "dry_run"]

FORMATS = {"cvat": cvat.read, "coco": coco.read, "labelme": labelme.read, "yolo": yolo.read}
"""Readers by name."""


def convert(
    kind: str, source: Path, target: Path, *, images: Path | None = None, split: str | None = None
) -> ConvertSummary:
    """Convert an annotation export into a site folder, which is created atomically.

    Args:
        kind: `cvat` (Segmentation mask 1.1), `coco`, `labelme` or `yolo` (segmentation).
        source: The unpacked export; for COCO also a single json file.
        target: The site folder; must not exist, or be empty.
        images: Folder with the images, if the export has none.
        split: The split for exports that record none (labelme, a single COCO file, images
            that CVAT has in no subset); `train` by default.

    Raises:
        ConfigError: The kind is unknown, or a split is given for an export that has its own.
        DataError: Something in the export is missing or wrong, or the target is in use.
    """
    return write_site(_read(kind, source, target, images, split), target)


def dry_run(kind: str, source: Path, target: Path, *, images: Path | None = None, split: str | None = None) -> DryRun:
    """Report what `convert` would do; annotations are read, images are not."""
    annotations = _read(kind, source, target, images, split)
    check_writable(target)
    size = sum(picture.image.stat().st_size for picture in annotations.pictures)
    counts = Counter(picture.split for picture in annotations.pictures)
    return DryRun(
        {str(source): f"{len(annotations.classes)} classes, {', '.join(f'{n} {name}' for name, n in counts.items())}"},
        {str(target): f"{counts.total()} images with masks, classes.txt"},
        {"disk": f"{size / 2**20:.1f} MiB for the copied images"},
    )


def _read(kind: str, source: Path, target: Path, images: Path | None, split: str | None) -> Annotations:
    if kind not in FORMATS:
        raise ConfigError(f"unknown annotation format '{kind}'", did_you_mean(kind, FORMATS))
    require_free(target)
    if not source.exists():
        raise DataError(f"no annotations at {source}", "Give the unpacked export.")
    with readable(source):
        return FORMATS[kind](source, images, split)

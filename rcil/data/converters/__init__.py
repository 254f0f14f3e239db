"""Annotation exports turned into a site folder.

A site folder holds `images/<split>/NAME.{jpg,png}` (the bytes of the originals), `masks/<split>/NAME.png` (8-bit grey
class ids, 255 = ignore) and `classes.txt` (one name a line, line number = id, background first). Each format has a
module whose `read` finds out what is there; `site_writer` writes them all.

Outlines are filled with `cv2.fillPoly` on whole pixels. COCO and YOLO measure from the corner of the picture, so the
pixel of a vertex is the floor of its coordinates; labelme's are rounded. OpenCV counts the outline to the inside, so a
shape may reach one pixel further right and down than its exact area.

Everywhere, a class called background or _background_ is class 0, and one called ignore, __ignore__ or void becomes 255.
"""

from __future__ import annotations

from pathlib import Path

from rcil.data.converters import coco, cvat, labelme, yolo
from rcil.data.converters.site_writer import ConvertSummary, write_site
from rcil.data.errors import DataError, readable
from rcil.errors import ConfigError, did_you_mean
from rcil.files import is_free

__all__ = ["FORMATS", "ConvertSummary", "convert"]

FORMATS = {"cvat": cvat.read, "coco": coco.read, "labelme": labelme.read, "yolo": yolo.read}
"""Readers by name."""


def convert(
    kind: str, source: Path, target: Path, *, images: Path | None = None, split: str | None = None
) -> ConvertSummary:
    """Convert an annotation export into a site folder, which appears whole or not at all.

    Args:
        kind: `cvat` (Segmentation mask 1.1), `coco`, `labelme` or `yolo` (segmentation).
        source: The unpacked export; for COCO also a single json file.
        target: The site folder; must not exist, or be empty.
        images: Where the images are, when they are not in the export.
        split: The split to fill, for exports that record none (labelme, a single COCO file); `train` by default.

    Raises:
        ConfigError: No such kind, or a split for an export that has its own.
        DataError: Something in the export is missing or wrong, or the target is in use.
    """
    if kind not in FORMATS:
        raise ConfigError(f"unknown annotation format '{kind}'", did_you_mean(kind, FORMATS))
    if not is_free(target):
        raise DataError(f"{target} is in use", "Name a folder that does not exist yet, or an empty one.")
    if not source.exists():
        raise DataError(f"no annotations at {source}", "Name the unpacked export.")
    with readable(source):
        annotations = FORMATS[kind](source, images, split)
    return write_site(annotations, target)

"""Convert annotation exports into site folders.

A site folder holds `images/<split>/NAME.{jpg,png}` (the bytes of the originals), `masks/<split>/NAME.png` (8-bit grey
class ids, 255 = ignore) and `classes.txt` (one name per line, line number = id, background first). Each format has a
module with a `read` function; `write_site` writes the site folder.

Outlines are filled with `cv2.fillPoly` on whole pixels. COCO and YOLO measure from the corner of the picture, so the
pixel of a vertex is the floor of its coordinates; labelme's are rounded. OpenCV counts the outline to the inside, so a
shape may reach one pixel further right and down than its exact area.

Everywhere, a class called background or _background_ is class 0, and one called ignore, __ignore__ or void becomes 255.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.files import check_writable, write_file
from rcil.core.images import decode_rgb
from rcil.core.log import DryRun
from rcil.core.masks import Mask, write_mask
from rcil.core.palette import colours_for
from rcil.core.reading import DataError, creating, readable, require_free
from rcil.data.converters import coco, cvat, label_studio, labelme, roboflow, via, yolo
from rcil.data.converters.annotations import SUFFIXES, Annotations, Picture
from rcil.data.converters.archive import unpacked
from rcil.data.converters.detect import detect_format
from rcil.data.site import palette_of, write_classes
from rcil.data.types import ClassSpec

__all__ = ["AUTO", "FORMATS", "ConvertSummary", "convert", "dry_run"]

FORMATS = {
    "cvat": cvat.read,
    "coco": coco.read,
    "label-studio": label_studio.read,
    "labelme": labelme.read,
    "roboflow": roboflow.read,
    "via": via.read,
    "yolo": yolo.read,
}
"""Readers by name."""
AUTO = "auto"
"""The format is recognised by its files."""


def convert(
    kind: str, source: Path, target: Path, *, images: Path | None = None, split: str | None = None
) -> ConvertSummary:
    """Convert an annotation export into a site folder, which is created atomically.

    Args:
        kind: `cvat` (CVAT for images 1.1 or Segmentation mask 1.1), `coco`, `label-studio`, `labelme`, `roboflow`
            (semantic masks), `via` (2.x) or `yolo` (segmentation); `auto` recognises the format.
        source: The export: a folder, a ZIP file, or the annotation file itself where the format has a single one.
        target: The site folder; must not exist, or be empty.
        images: Folder with the images, if the export has none.
        split: The split for exports that record none (labelme, a single COCO file, images
            that CVAT has in no subset); `train` by default.

    Raises:
        ConfigError: The kind is unknown, or a split is given for an export that has its own.
        DataError: Something in the export is missing or wrong, or the target is in use.
    """
    with _opened(kind, source, target, images, split) as (_, annotations):
        return write_site(annotations, target)


def dry_run(kind: str, source: Path, target: Path, *, images: Path | None = None, split: str | None = None) -> DryRun:
    """Report what `convert` would do; annotations are read, images are not."""
    with _opened(kind, source, target, images, split) as (found, annotations):
        check_writable(target)
        size = sum(0 if picture.embedded else picture.image.stat().st_size for picture in annotations.pictures)
    counts = Counter(picture.split for picture in annotations.pictures)
    listed = ", ".join(f"{number} {name}" for name, number in counts.items())
    return DryRun(
        {str(source): f"{found}, {len(annotations.classes)} classes, {listed}"},
        {str(target): f"{counts.total()} images with masks, classes.txt"},
        {"disk": f"{size / 2**20:.1f} MiB for the copied images"},
    )


@contextlib.contextmanager
def _opened(
    kind: str, source: Path, target: Path, images: Path | None, split: str | None
) -> Iterator[tuple[str, Annotations]]:
    """The format and its annotations; files of an archive exist inside the block only."""
    if kind not in (*FORMATS, AUTO):
        raise ConfigError(f"unknown annotation format '{kind}'", did_you_mean(kind, (*FORMATS, AUTO)))
    require_free(target)
    if not source.exists():
        raise DataError(f"no annotations at {source}", "Give the export: a folder, a ZIP file or an annotation file.")
    with readable(source), unpacked(source) as folder:
        found = detect_format(folder) if kind == AUTO else kind
        yield found, FORMATS[found](folder, images, split)


@dataclass(frozen=True)
class ConvertSummary:
    """The result of a conversion."""

    target: Path
    classes: tuple[str, ...]
    images: dict[str, int]
    """Number of images per split."""
    background_only: int
    """Number of images without annotations."""
    skipped: dict[str, int]
    """Number of skipped annotations by kind, for example shapes without an area."""


def _clean(text: str) -> str:
    """`text` as a safe file or folder name."""
    return re.sub(r'[\x00-\x1f\x7f\ud800-\udfff<>:"/\\|?*]', "_", text).strip(" .") or "_"


def _site_names(paths: Sequence[PurePosixPath]) -> list[str]:
    """Names in the site folder: the paths without suffix, so that the folders of an export are kept."""
    names = ["/".join(map(_clean, path.with_suffix("").parts)) for path in paths]
    name, count = Counter(name.casefold() for name in names).most_common(1)[0]
    if count > 1:
        clash = [str(path) for path, other in zip(paths, names, strict=True) if other.casefold() == name]
        raise DataError(f"{' and '.join(clash)} would both be called '{name}'", "Rename one of the images.")
    return names


def write_site(annotations: Annotations, target: Path) -> ConvertSummary:
    """Build the site folder under a temporary name, then rename it."""
    images = Counter(_clean(picture.split) for picture in annotations.pictures)
    classes = list(map(ClassSpec, annotations.classes, colours_for(annotations.classes, annotations.colours)))
    palette = palette_of(classes)
    marked = 0
    with creating(target) as site:
        for split in images:
            pictures = [picture for picture in annotations.pictures if _clean(picture.split) == split]
            names = _site_names([picture.name for picture in pictures])
            for name, picture in zip(names, pictures, strict=True):
                marked += _write_picture(picture, site, split, name, palette)
        write_classes(site, classes)
    background_only = images.total() - marked
    return ConvertSummary(target, annotations.classes, dict(images), background_only, annotations.skipped)


def _write_picture(picture: Picture, site: Path, split: str, name: str, palette: Mask) -> bool:
    """Write the bytes of the image, and its mask; returns whether it has annotations."""
    data = picture.read()
    height, width, _ = decode_rgb(data, picture.image).shape
    mask = picture.draw(height, width)
    if mask.shape != (height, width):
        raise DataError(
            f"{picture.image} is {width} x {height} pixels, its mask {mask.shape[1]} x {mask.shape[0]}",
            "Image and annotation do not belong together.",
        )
    write_file(site / "images" / split / f"{name}{SUFFIXES[picture.image.suffix.lower()]}", data)
    write_mask(site / "masks" / split / f"{name}.png", mask, palette)
    return bool(mask.any())

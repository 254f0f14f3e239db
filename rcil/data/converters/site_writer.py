"""Write converted annotations as a site folder, atomically."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rcil.core.files import building, replacing
from rcil.core.masks import write_mask
from rcil.core.reading import DataError
from rcil.data.converters.annotations import SUFFIXES, Annotations, Picture, read_colours


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
    return re.sub(r"[^\w.\- ]", "_", text).strip(" .") or "_"


def _site_names(paths: Sequence[PurePosixPath]) -> list[str]:
    """File names without suffix; equal names are prefixed with their folders, joined by `__`."""
    stems = [_clean(path.stem) for path in paths]
    often = Counter(stem.casefold() for stem in stems)
    names = [
        stem if often[stem.casefold()] == 1 else "__".join(map(_clean, path.with_suffix("").parts))
        for stem, path in zip(stems, paths, strict=True)
    ]
    name, count = Counter(name.casefold() for name in names).most_common(1)[0]
    if count > 1:
        clash = [str(path) for path, other in zip(paths, names, strict=True) if other.casefold() == name]
        raise DataError(f"{' and '.join(clash)} would both be called '{name}'", "Rename one of the images.")
    return names


def write_site(annotations: Annotations, target: Path) -> ConvertSummary:
    """Build the site folder under a temporary name, then rename it."""
    images = Counter(_clean(picture.split) for picture in annotations.pictures)
    marked = 0
    try:
        with building(target) as site:
            for split in images:
                pictures = [picture for picture in annotations.pictures if _clean(picture.split) == split]
                names = _site_names([picture.name for picture in pictures])
                for name, picture in zip(names, pictures, strict=True):
                    marked += _write_picture(picture, site, split, name)
            with replacing(site / "classes.txt") as part:
                part.write_text("".join(f"{name}\n" for name in annotations.classes), encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"cannot write {target}: {error.strerror or error}", "Check free space and permissions."
        ) from error
    background_only = images.total() - marked
    return ConvertSummary(target, annotations.classes, dict(images), background_only, annotations.skipped)


def _write_picture(picture: Picture, site: Path, split: str, name: str) -> bool:
    """Copy the image and write its mask; returns whether it has annotations."""
    height, width, _ = read_colours(picture.image).shape
    size = height, width
    mask = picture.draw(height, width)
    if mask.shape != size:
        raise DataError(
            f"{picture.image} is {width} x {height} pixels, its mask {mask.shape[1]} x {mask.shape[0]}",
            "Image and annotation do not belong together.",
        )
    suffix = SUFFIXES[picture.image.suffix.lower()]
    with replacing(site / "images" / split / f"{name}{suffix}") as part:
        shutil.copyfile(picture.image, part)
    write_mask(site / "masks" / split / f"{name}.png", mask)
    return bool(mask.any())

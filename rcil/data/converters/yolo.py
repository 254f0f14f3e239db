"""YOLO segmentation: one text file per image, one class number and outline (in fractions of the image) per line.

The format has no drawing order, so large outlines are drawn before small ones. An image without a label file shows
background only, as YOLO has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from rcil.core.documents import yaml_entries
from rcil.core.masks import Mask
from rcil.core.reading import DataError, existing_folder, read_lines, read_text
from rcil.data.converters.annotations import (
    SPLIT_NAMES,
    SUFFIXES,
    Annotations,
    Picture,
    below,
    class_table,
    fill_polygon,
    no_split,
)

_HINT = (
    "Expected images/<split>/* and labels/<split>/*.txt, or <split>/images and <split>/labels, and the names in "
    "data.yaml or classes.txt."
)
_YAML_HINT = "Write them as 'names: [a, b]', as a list of '- a' lines or as '0: a' lines; or give classes.txt."
_SLACK = 0.01
"""How far outside the image an outline may lie; more means that the numbers are not fractions."""


def read(source: Path, images: Path | None, split: str | None) -> Annotations:
    """Pair every image with the label file of the same name in the folder of its split."""
    names = _names(source)
    classes, ids = class_table(names, source)
    values = [ids[name.strip()] for name in names]
    folders = _folders(source, images, split)
    pictures = tuple(picture for folder in folders for picture in _pictures(folder, values))
    if not pictures:
        raise DataError(f"no JPEG or PNG images in {images or source}", _HINT)
    labels = {path.with_suffix("") for folder in folders for path in folder.labels.rglob("*.txt")}
    seen = {
        folder.labels / path.relative_to(folder.images).with_suffix("")
        for folder in folders
        for path in _images(folder.images)
    }
    if not labels & seen:
        raise DataError(f"no label file in {source} belongs to an image in {images or source}", _HINT)
    files = sum(path.is_file() for folder in folders for path in folder.images.rglob("*"))
    skipped = Counter({"label files without an image": len(labels - seen)})
    skipped["files that are neither JPEG nor PNG"] = files - len(pictures)
    return Annotations(classes, pictures, dict(+skipped))


@dataclass(frozen=True)
class _Folder:
    """The images of a split, and their label files."""

    split: str
    images: Path
    labels: Path


def _folders(source: Path, images: Path | None, split: str | None) -> list[_Folder]:
    """The three layouts: images/<split>, <split>/images as Roboflow has it, and images without splits."""
    root = images or source / "images"
    if images is None and not root.is_dir():
        splits = sorted(folder for folder in source.iterdir() if (folder / "images").is_dir())
        found = [_Folder(folder.name, folder / "images", folder / "labels") for folder in splits]
    else:
        splits = sorted(folder for folder in existing_folder(root, _HINT).iterdir() if folder.is_dir())
        found = [_Folder(folder.name, folder, source / "labels" / folder.name) for folder in splits]
    if not found and root.is_dir():
        return [_Folder(split or "train", root, source / "labels")]
    no_split(split, "yolo")
    return [replace(folder, split=SPLIT_NAMES.get(folder.split, folder.split)) for folder in found]


def yaml_names(text: str, source: Path) -> list[str]:
    """The value of `names:` in a data.yaml: a list, or a mapping from numbers."""
    try:
        entries = yaml_entries(text, "names")
    except ValueError as error:
        raise DataError(f"{source}: the names cannot be read ({error})", _YAML_HINT) from error
    if not entries:
        raise DataError(f"{source} has no 'names:'", _YAML_HINT)
    keys = [key for key, _ in entries]
    if not any(keys):
        return [name for _, name in entries]
    if sorted(keys) != sorted(map(str, range(len(keys)))):
        raise DataError(f"{source}: the names are not numbered 0 to {len(keys) - 1}", _YAML_HINT)
    return [dict(entries)[str(number)] for number in range(len(keys))]


def _names(source: Path) -> list[str]:
    for file in ("data.yaml", "data.yml"):
        path = source / file
        if path.is_file():
            return yaml_names(read_text(path, _HINT), path)
    names = "\n".join(read_lines(source / "classes.txt", _HINT)).strip()
    return names.split("\n")  # keep empty lines, which would shift the numbers; they are rejected as names


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def _pictures(folder: _Folder, values: list[int]) -> Iterator[Picture]:
    for image in _images(folder.images):
        name = PurePosixPath(image.relative_to(folder.images).as_posix())
        below(folder.images, name, folder.images)
        labels = below(folder.labels, name.with_suffix(".txt"), folder.images)
        yield Picture(folder.split, name, image, partial(_draw, labels, values))


def _draw(labels: Path, values: list[int], height: int, width: int) -> Mask:
    mask = np.zeros((height, width), np.uint8)
    lines = read_lines(labels, _HINT) if labels.exists() else []
    shapes: list[tuple[int, int, npt.NDArray[np.float64]]] = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        where = f"{labels}, line {number}"
        value, points = _outline(line, values, where)
        points = np.floor(points * (width, height))
        area = np.zeros_like(mask)
        fill_polygon(area, points, 1, where)
        shapes.append((int(area.sum(dtype=np.int64)), value, points))
    for _, value, points in sorted(shapes, key=lambda shape: -shape[0]):
        fill_polygon(mask, points, value, str(labels))
    return mask


def _outline(line: str, values: list[int], where: str) -> tuple[int, npt.NDArray[np.float64]]:
    """Mask value and points as fractions, [N, 2]."""
    index, *rest = line.split()
    if not index.isdecimal() or len(index) > 9 or int(index) >= len(values):
        raise DataError(f"{where}: the class '{index:.20}' is not one of 0 to {len(values) - 1}", "Correct the names.")
    if len(rest) < 6 or len(rest) % 2:
        found = "a box" if len(rest) == 4 else f"{len(rest)} coordinates"
        raise DataError(f"{where}: {found}, not an outline of three points or more", "Export as YOLO segmentation.")
    try:
        points = np.array(rest, np.float64).reshape(-1, 2)
    except ValueError as error:
        raise DataError(f"{where}: a coordinate is not a number", _HINT) from error
    if not np.all((points >= -_SLACK) & (points <= 1 + _SLACK)):
        raise DataError(f"{where}: coordinates must be fractions from 0 to 1", "Divide by the width and height.")
    return values[int(index)], points

"""Roboflow's "Semantic Segmentation Masks": `NAME_mask.png` next to `NAME.jpg`, with values from `_classes.csv`.

The export has one folder per split, each with its own `_classes.csv`, or no split folders at all.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np

from rcil.core.masks import Mask, read_mask
from rcil.core.reading import DataError, existing_folder, read_text
from rcil.data.converters.annotations import (
    SPLIT_NAMES,
    Annotations,
    Picture,
    below,
    class_table,
    find_by_stem,
    no_split,
)

CLASSES = "_classes.csv"
_HINT = "Export from Roboflow as 'Semantic Segmentation Masks'."
_MASK = "_mask.png"


def read(source: Path, images: Path | None, split: str | None) -> Annotations:
    """Pair every mask with its image; the tables of all splits must agree."""
    existing_folder(source, _HINT)
    tables = sorted(source.glob(f"*/{CLASSES}"))
    if tables:
        no_split(split, "roboflow")
    elif (source / CLASSES).is_file():
        tables = [source / CLASSES]
    else:
        raise DataError(f"no {CLASSES} in {source} or its folders", _HINT)
    by_table = {path: _names(path) for path in tables}
    names = by_table[tables[0]]
    for path, others in by_table.items():
        if others != names:
            raise DataError(f"{path} differs from {tables[0]}", "Export all splits together.")
    classes, ids = class_table((names[value] for value in sorted(names)), tables[0])
    values = {value: ids[name] for value, name in names.items()}
    pictures = []
    for path in tables:
        inner = "" if path.parent == source else path.parent.name
        own = SPLIT_NAMES.get(inner, inner) or split or "train"
        pictures += list(_pictures(path.parent, (images / inner) if images else path.parent, own, values))
    if not pictures:
        raise DataError(f"no *{_MASK} next to {tables[0]}", _HINT)
    return Annotations(classes, tuple(pictures))


def _names(path: Path) -> dict[int, str]:
    """Class name by pixel value; the first line is a heading."""
    names: dict[int, str] = {}
    try:
        rows = [row for row in csv.reader(io.StringIO(read_text(path, _HINT)), skipinitialspace=True) if row][1:]
    except csv.Error as error:
        raise DataError(f"{path} is not a table ({error})", _HINT) from error
    for number, row in enumerate(rows, 2):
        value = row[0].strip()
        if len(row) != 2 or not value.isdecimal() or len(value) > 3 or int(value) > 255 or int(value) in names:
            raise DataError(f"{path}, line {number}: '{','.join(row)}'", "A line reads 'value, name', values to 255.")
        names[int(value)] = row[1].strip()
    return names


def _pictures(folder: Path, images: Path, split: str, values: dict[int, int]) -> Iterator[Picture]:
    for mask in sorted(folder.rglob(f"*{_MASK}")):
        name = PurePosixPath(mask.relative_to(folder).as_posix())
        below(folder, name, folder)
        stem = name.with_name(name.name.removesuffix(_MASK))
        image = find_by_stem(stem, images, mask)
        yield Picture(split, stem.with_name(f"{stem.name}{image.suffix}"), image, partial(_draw, mask, values))


def _draw(path: Path, values: dict[int, int], height: int, width: int) -> Mask:
    """Pixel values to class ids. The size is the mask's own; the caller compares it with the image."""
    mask = read_mask(path)
    table = np.zeros(256, np.uint8)
    table[list(values)] = list(values.values())
    unknown = sorted(set(np.unique(mask).tolist()) - values.keys())
    if unknown:
        raise DataError(f"{path} holds the value {unknown[0]}, which {CLASSES} does not list", _HINT)
    return np.asarray(table[mask], np.uint8)

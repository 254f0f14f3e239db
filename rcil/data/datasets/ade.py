"""ADE20K as packed for the scene parsing challenge: `ADEChallengeData2016`, 150 classes.

Mask value 0 means "none of the 150". The continual protocols treat it as background, so it is class 0 here and the
ids on disk need no translation.
"""

from __future__ import annotations

import re
from pathlib import Path

from rcil.core.palette import colours_for
from rcil.core.reading import DataError, existing_folder, read_lines
from rcil.data.datasets.samples import checked_split
from rcil.data.types import ClassSpec, Sample, SegmentationData

CLASSES = 150
_FOLDERS = {"train": "training", "val": "validation"}
_HINT = (
    "Expected ADEChallengeData2016 with images/{training,validation} and annotations/{training,validation}, as "
    "unpacked from ADEChallengeData2016.zip."
)


def read_ade(root: Path) -> SegmentationData:
    """Read ADE20K from `ADEChallengeData2016` or the folder that holds it."""
    inner = root / "ADEChallengeData2016"
    base = inner if inner.is_dir() else root
    splits = {split: _split(base, folder) for split, folder in _FOLDERS.items()}
    names = ("background", *_names(base / "objectInfo150.txt"))
    classes = tuple(map(ClassSpec, names, colours_for(names)))
    return SegmentationData(base, classes, splits)


def _split(base: Path, folder: str) -> tuple[Sample, ...]:
    images = existing_folder(base / "images" / folder, _HINT)
    masks = existing_folder(base / "annotations" / folder, _HINT)
    samples = (
        Sample(f"{folder}/{image.stem}", image, masks / f"{image.stem}.png") for image in sorted(images.glob("*.jpg"))
    )
    return checked_split(samples, images, _HINT)


def _names(path: Path) -> list[str]:
    """The first synonym of each class, or numbered names where the table was not unpacked.

    A first synonym that is taken gives way to the full entry, so that names stay unique.
    """
    if not path.is_file():
        return [f"class_{index}" for index in range(1, CLASSES + 1)]
    hint = f"Unpack the original file again, or remove it to get class_1 to class_{CLASSES}."
    rows = [line.split("\t") for line in read_lines(path, hint) if line]
    column = rows[0].index("Name") if rows and "Name" in rows[0] else None
    if column is None or len(rows) != CLASSES + 1 or any(len(row) <= column or not row[column] for row in rows):
        raise DataError(f"{path} is not a tab-separated table of {CLASSES} names under 'Name'", hint)
    names: list[str] = []
    for row in rows[1:]:
        first = re.split("[,;]", row[column])[0].strip()
        names.append(row[column] if first in names else first)
    return names

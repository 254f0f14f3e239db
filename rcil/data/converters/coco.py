"""COCO instances: polygons and run lengths, plain or compressed.

Large regions are drawn before small ones, so that a small object stays visible whatever the order in the file. Crowd
regions are rough outlines around many objects: they become 255 (ignore) below everything else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from rcil.core.masks import Mask
from rcil.core.palette import Colour
from rcil.core.reading import DataError
from rcil.data.converters.annotations import (
    SPLIT_NAMES,
    Annotations,
    Picture,
    check_size,
    class_table,
    fill_polygon,
    find_image,
    no_split,
    read_json,
    safe_path,
    split_names,
    without_top,
)
from rcil.data.converters.shapes import expand_runs
from rcil.data.types import IGNORE

_ROBOFLOW = "_annotations.coco.json"
"""Roboflow's file in the folder of each split."""
_HINT = "Expected a COCO instances file, with images, annotations and categories."
_RLE_HINT = "Export the annotation again."


class _Entry(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)


class _Image(_Entry):
    id: int | str
    file_name: str
    width: int | None = None
    height: int | None = None


class _Category(_Entry):
    id: int
    name: str
    color: Any = None
    """RGB, which panoptic files and our own have."""


class _RunLengths(_Entry):
    size: tuple[int, int]
    counts: list[int] | str


class _Annotation(_Entry):
    image_id: int | str
    category_id: int
    iscrowd: bool = False
    segmentation: list[list[float]] | _RunLengths | None = None


class _File(_Entry):
    images: list[_Image]
    annotations: list[_Annotation]
    categories: list[_Category]


def read(source: Path, images: Path | None, split: str | None) -> Annotations:
    """Read one json file, or those of a folder: `annotations/instances_<split>.json`, Roboflow's
    `<split>/_annotations.coco.json`, or a single json file.

    Class ids follow the category ids in rising order, whatever their gaps.
    """
    files = _split_files(source, split)
    base = source if source.is_dir() else source.parent
    base = base.parent if base.name == "annotations" else base
    categories: dict[int, str] = {}
    pictures: list[Picture] = []
    skipped: Counter[str] = Counter()
    colours: dict[str, Colour] = {}
    for name, path in files.items():
        content = read_json(path, _File, _HINT)
        found = {category.id: category.name.strip() for category in content.categories}
        if len(found) != len(content.categories) or (categories and found != categories):
            raise DataError(f"{path}: the categories are repeated, or differ from another split's", "Use one table.")
        categories = found
        classes, ids = class_table((categories[key] for key in sorted(categories)), path)
        values = {key: ids[label] for key, label in categories.items()}
        subset = path.parent.name if path.name == _ROBOFLOW else path.stem.removeprefix("instances_")
        roots = [images] if images else [base / "images", base]
        folders = [*(root / part for root in roots for part in dict.fromkeys((name, subset))), *roots]
        pictures += _pictures(content, path, name, folders, values)
        colours |= {c.name.strip(): colour for c in content.categories if (colour := _colour(c.color))}
        skipped["annotations without a region"] += sum(not a.segmentation for a in content.annotations)
    if not pictures:
        raise DataError(f"{source} lists no images", _HINT)
    kept = {name: colour for name, colour in colours.items() if name in classes}
    return Annotations(classes, tuple(pictures), dict(+skipped), kept)


def _colour(value: Any) -> Colour | None:
    """RGB if this is a list of three bytes."""
    if not isinstance(value, list) or len(value) != 3 or not all(type(v) is int and 0 <= v < 256 for v in value):
        return None
    return value[0], value[1], value[2]


def decode_counts(text: str, source: str) -> list[int]:
    """The run lengths in pycocotools' compressed form.

    Each character holds six bits, offset by '0': five bits of the number, lowest first, and a continuation bit. The
    sign is extended. From the fourth number on, the difference to the number two before is stored.
    """
    counts: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64 or shift > 30:
            raise DataError(f"{source}: the compressed run lengths are unreadable", _RLE_HINT)
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        value = shift = 0
    if shift:
        raise DataError(f"{source}: the compressed run lengths end early", _RLE_HINT)
    return counts


def _split_files(source: Path, split: str | None) -> dict[str, Path]:
    if source.is_file():
        return {split or "train": source}
    found = sorted((source / "annotations").glob("instances_*.json"))
    if not found and (by_folder := sorted(source.glob(f"*/{_ROBOFLOW}"))):
        no_split(split, "coco (folder)")
        return {SPLIT_NAMES.get(path.parent.name, path.parent.name): path for path in by_folder}
    single = [path for path in source.glob("*.json") if path.name != "prelabel.json"]
    if not found and len(single) == 1:
        return {split or "train": single[0]}
    if not found:
        raise DataError(f"no annotations/instances_<split>.json in {source}", "Or name the json file itself.")
    subsets = {path.stem.removeprefix("instances_"): path for path in found}
    splits = split_names(subsets, split, "coco (folder)")
    if len(set(splits.values())) < len(splits):
        raise DataError(f"{source} has a file for no subset and one for '{split or 'train'}'", "Choose another split.")
    return {splits[name]: path for name, path in subsets.items()}


def _pictures(content: _File, path: Path, split: str, folders: list[Path], values: dict[int, int]) -> Iterator[Picture]:
    regions: defaultdict[int | str, list[_Annotation]] = defaultdict(list)
    for annotation in content.annotations:
        if annotation.category_id not in values:
            raise DataError(f"{path}: an annotation has the unknown category {annotation.category_id}", _HINT)
        regions[annotation.image_id].append(annotation)
    known = [image.id for image in content.images]
    if len(set(known)) != len(known) or not regions.keys() <= set(known):
        raise DataError(f"{path}: image ids are repeated, or annotations belong to unlisted images", _HINT)
    for image in content.images:
        name = safe_path(image.file_name, path)
        draw = partial(_draw, f"{path}, {name}", (image.height, image.width), regions[image.id], values)
        yield Picture(split, without_top(name, "images"), find_image(name, folders, path), draw)


def _draw(
    where: str,
    declared: tuple[int | None, int | None],
    annotations: list[_Annotation],
    values: dict[int, int],
    height: int,
    width: int,
) -> Mask:
    check_size(where, declared, (height, width))
    mask = np.zeros((height, width), np.uint8)
    marked = [annotation for annotation in annotations if annotation.segmentation]
    # Every region is drawn twice, to measure and to fill it, so that they need not all be kept in memory.
    areas = [np.count_nonzero(_region(a, height, width, where)) for a in marked]
    for index in sorted(range(len(marked)), key=lambda i: (not marked[i].iscrowd, -areas[i])):
        annotation = marked[index]
        value = IGNORE if annotation.iscrowd else values[annotation.category_id]
        mask[_region(annotation, height, width, where)] = value
    return mask


def _region(annotation: _Annotation, height: int, width: int, where: str) -> npt.NDArray[np.bool_]:
    """The pixels of one annotation; several polygons are joined."""
    if isinstance(annotation.segmentation, _RunLengths):
        return _runs(annotation.segmentation, height, width, where)
    region = np.zeros((height, width), np.uint8)
    for flat in annotation.segmentation or []:
        if len(flat) % 2:
            raise DataError(f"{where}: a polygon has an odd number of coordinates", "Correct or delete it.")
        fill_polygon(region, np.floor(np.array(flat, np.float64)).reshape(-1, 2), 1, where)
    return region.astype(bool)


def _runs(rle: _RunLengths, height: int, width: int, where: str) -> npt.NDArray[np.bool_]:
    """Decode column-major run lengths, which start with pixels outside the region."""
    counts = decode_counts(rle.counts, where) if isinstance(rle.counts, str) else rle.counts
    if rle.size != (height, width):
        raise DataError(f"{where}: the run lengths do not cover {width} x {height} pixels", _RLE_HINT)
    return expand_runs(counts, (height, width), where, _RLE_HINT).reshape(width, height).T

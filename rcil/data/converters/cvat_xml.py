"""CVAT's "CVAT for images 1.1": one `annotations.xml` with shapes, masks as run lengths, and coloured labels.

Masks, polygons, boxes and ellipses have an area. They are drawn by rising `z_order`, then in the order of the file, as
CVAT does. The run lengths of a mask cover its box row by row and start with pixels outside the mask.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from rcil.core.masks import Mask
from rcil.core.palette import Colour
from rcil.core.reading import DataError, read_text
from rcil.data.converters.annotations import (
    Annotations,
    Picture,
    check_size,
    class_table,
    fill_polygon,
    find_image,
    safe_path,
    split_names,
    without_top,
)
from rcil.data.converters.shapes import ellipse, expand_runs, rotated_box

FILE = "annotations.xml"
_HINT = "Export from CVAT as 'CVAT for images 1.1'."
_FIX = "Correct or delete the shape in CVAT and export again."
_DRAWN = ("mask", "polygon", "box", "ellipse")


def read(source: Path, images: Path | None, split: str | None) -> Annotations:
    """Read an annotations.xml, or the folder that holds it with its images."""
    path = source / FILE if source.is_dir() else source
    root = _parse(path)
    found = root.findall("image")
    if not found:
        raise DataError(f"{path} lists no images", f"{_HINT} Tracks of videos are not read.")
    colours = _labels(root, path)
    classes, values = class_table(colours, path)
    subsets = split_names(dict.fromkeys(_subset(image) for image in found), split, "cvat")
    folders = [images] if images else [path.parent / "images", path.parent]
    pictures = tuple(_pictures(found, path, folders, subsets, values))
    skipped = Counter(shape.tag for image in found for shape in image if shape.tag not in _DRAWN)
    kept = {name: colour for name, colour in colours.items() if name in classes and colour is not None}
    return Annotations(classes, pictures, dict(skipped), kept)


def parse_xml(text: str, path: Path, hint: str) -> ElementTree.Element:
    """Parse an XML text; entities, which can expand to more than fits in memory, are refused."""
    if re.search("<!(DOCTYPE|ENTITY)", text, re.IGNORECASE):
        raise DataError(f"{path} declares a document type, which no labelling tool writes", hint)
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid XML ({error})", hint) from error


def _parse(path: Path) -> ElementTree.Element:
    root = parse_xml(read_text(path, _HINT), path, _HINT)
    if root.tag != "annotations":
        raise DataError(f"{path} holds <{root.tag}>, not <annotations>", _HINT)
    return root


def _labels(root: ElementTree.Element, path: Path) -> dict[str, Colour | None]:
    """Names and colours of the labels in the order of the project; without that list, the used names in order."""
    colours: dict[str, Colour | None] = {}
    for label in root.iterfind("meta//labels/label"):
        name = (label.findtext("name") or "").strip()
        if label.find("parent") is None:  # parts of skeletons have a parent
            colours[name] = parse_colour(label.findtext("color") or "")
    used = {(shape.get("label") or "").strip(): None for shape in root.iterfind("image/*") if shape.tag in _DRAWN}
    if not colours:
        return dict.fromkeys(sorted(used))
    unlisted = sorted(used.keys() - colours.keys())
    if unlisted:
        raise DataError(f"{path} uses the label '{unlisted[0]}', which its <labels> do not list", _HINT)
    return colours


def parse_colour(text: str) -> Colour | None:
    """RGB of `#rrggbb`, or None."""
    found = re.fullmatch("#([0-9a-fA-F]{6})", text.strip())
    if not found:
        return None
    red, green, blue = bytes.fromhex(found[1])
    return red, green, blue


def _subset(image: ElementTree.Element) -> str:
    return image.get("subset") or "default"


def _pictures(
    found: list[ElementTree.Element], path: Path, folders: list[Path], subsets: dict[str, str], values: dict[str, int]
) -> Iterator[Picture]:
    for image in found:
        name, subset = safe_path(image.get("name") or "", path), _subset(image)
        places = [*folders, *(folder / subset for folder in folders)]
        file = find_image(name, places, path)
        yield Picture(
            subsets[subset], without_top(name, subset), file, partial(_draw, f"{path}, {name}", image, values)
        )


def _draw(where: str, image: ElementTree.Element, values: dict[str, int], height: int, width: int) -> Mask:
    declared = (_number(image, "height", where, height), _number(image, "width", where, width))
    check_size(where, declared, (height, width))
    mask = np.zeros((height, width), np.uint8)
    shapes = [shape for shape in image if shape.tag in _DRAWN]
    for shape in sorted(shapes, key=lambda shape: _number(shape, "z_order", where, 0)):
        _draw_shape(mask, shape, values[(shape.get("label") or "").strip()], f"{where}, {shape.tag}")
    return mask


def _draw_shape(mask: Mask, shape: ElementTree.Element, value: int, where: str) -> None:
    if shape.tag == "mask":
        _paste(mask, shape, value, where)
    elif shape.tag == "polygon":
        pairs = [pair.split(",") for pair in (shape.get("points") or "").split(";")]
        if any(len(pair) != 2 for pair in pairs):
            raise DataError(f"{where}: the points are unreadable", _FIX)
        points = np.array([[_float(text, where) for text in pair] for pair in pairs], np.float64)
        fill_polygon(mask, np.floor(points), value, where)
    else:
        fill_polygon(mask, np.floor(_outline(shape, where)), value, where)


def _outline(shape: ElementTree.Element, where: str) -> npt.NDArray[np.float64]:
    """Corners of a box, or points of an ellipse, turned about the centre, [N, 2]."""

    def given(name: str, default: str = "") -> float:
        return _float(shape.get(name, default), where)

    angle = given("rotation", "0")
    if shape.tag == "box":
        left, top, right, bottom = (given(name) for name in ("xtl", "ytl", "xbr", "ybr"))
        return rotated_box(left, top, right, bottom, angle)
    return ellipse((given("cx"), given("cy")), (given("rx"), given("ry")), angle)


def _paste(mask: Mask, shape: ElementTree.Element, value: int, where: str) -> None:
    left, top, width, height = (_number(shape, name, where) for name in ("left", "top", "width", "height"))
    if min(left, top) < 0 or min(width, height) < 1 or top + height > mask.shape[0] or left + width > mask.shape[1]:
        raise DataError(f"{where}: it reaches beyond the image", _FIX)
    texts = (shape.get("rle") or "").split(",")
    if not all(text.strip().isdecimal() and len(text) < 12 for text in texts):
        raise DataError(f"{where}: the run lengths are unreadable", _FIX)
    runs = expand_runs([int(text) for text in texts], (height, width), where, _FIX)
    mask[top : top + height, left : left + width][runs.reshape(height, width)] = value


def _float(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise DataError(f"{where}: '{text[:40]}' is not a number", _FIX) from error


def _number(element: ElementTree.Element, name: str, where: str, default: int | None = None) -> int:
    """A whole number; CVAT writes some of them as `12.00`."""
    text = element.get(name)
    if text is None and default is not None:
        return default
    value = _float(text or "", where)
    if not abs(value) < 1e9 or value != int(value):
        raise DataError(f"{where}: {name} is '{text}'", _FIX)
    return int(value)

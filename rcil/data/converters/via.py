"""VGG Image Annotator 2: a project or an annotation file as JSON, or a CSV file.

Polygons, rectangles, circles and ellipses have an area and are drawn in the order of the file; points and lines are
counted. The class of a region is one of its attributes: the only one, or the first of `class`, `label`, `name`,
`category` and `type`. Class ids follow the options of that attribute in a project, otherwise alphabetical order.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rcil.core.documents import parse_json
from rcil.core.masks import Mask
from rcil.core.reading import DataError, read_text
from rcil.data.converters.annotations import Annotations, Picture, class_table, fill_polygon, find_image, safe_path
from rcil.data.converters.shapes import ellipse, rotated_box

_HINT = "Export the annotations of VIA 2 as JSON or CSV, or save the project."
_FIX = "Correct or delete the region in VIA and export again."
_DRAWN = ("polygon", "rect", "circle", "ellipse")
_CLASS_ATTRIBUTES = ("class", "label", "name", "category", "type")


@dataclass(frozen=True)
class _Region:
    shape: dict[str, Any]
    attributes: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.shape.get("name"))


@dataclass
class _Content:
    regions: dict[str, list[_Region]] = field(default_factory=dict)
    """By the name of the image; images without regions have an empty list."""
    options: dict[str, list[str]] = field(default_factory=dict)
    """Values of each attribute, if a project lists them."""


def read(source: Path, images: Path | None, split: str | None) -> Annotations:
    """Read a JSON or CSV file, or the only one of a folder."""
    path = _only_file(source) if source.is_dir() else source
    content = _read_csv(path) if path.suffix.lower() == ".csv" else _read_json(path)
    if not content.regions:
        raise DataError(f"{path} lists no images", _HINT)
    attribute = _class_attribute(path, content)
    labels = {
        name: [(_label(region, attribute, f"{path}, {name}"), region) for region in regions if region.kind in _DRAWN]
        for name, regions in content.regions.items()
    }
    used = {label for regions in labels.values() for label, _ in regions}
    listed = [name for name in content.options.get(attribute, []) if name]
    classes, values = class_table([*listed, *sorted(used - set(listed))], path)
    folders = [images] if images else [path.parent, path.parent / "images"]
    pictures = []
    for name, regions in labels.items():
        image = safe_path(name, path)
        draw = partial(_draw, f"{path}, {name}", [(values[label], region) for label, region in regions])
        pictures.append(Picture(split or "train", image, find_image(image, folders, path), draw))
    skipped = Counter(r.kind for regions in content.regions.values() for r in regions if r.kind not in _DRAWN)
    return Annotations(classes, tuple(pictures), dict(skipped))


def _only_file(folder: Path) -> Path:
    files = sorted(folder.glob("*.json")) or sorted(folder.glob("*.csv"))
    if len(files) != 1:
        raise DataError(f"{folder} holds {len(files)} json files", "Name the json or csv file of the export.")
    return files[0]


def _read_json(path: Path) -> _Content:
    try:
        document = parse_json(read_text(path, _HINT))
        project = document if "_via_img_metadata" in document else {}
        options = {
            name: [str(option) for option in described.get("options") or {}]
            for name, described in ((project.get("_via_attributes") or {}).get("region") or {}).items()
        }
        content = _Content(options=options)
        for entry in (project.get("_via_img_metadata") or document).values():
            regions = entry["regions"]
            regions = list(regions.values()) if isinstance(regions, dict) else regions  # a mapping until version 2.0
            found = [_Region(dict(r["shape_attributes"]), dict(r["region_attributes"])) for r in regions]
            content.regions.setdefault(str(entry["filename"]), []).extend(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not a file of VIA 2 ({type(error).__name__}: {error})", _HINT) from error
    return content


def _read_csv(path: Path) -> _Content:
    content = _Content()
    try:
        rows = list(csv.reader(io.StringIO(read_text(path, _HINT))))
        columns = [column.strip().lstrip("#") for column in rows[0]]
        for row in rows[1:]:
            cells = dict(zip(columns, row, strict=True)) if row else {}
            if not cells:
                continue
            regions = content.regions.setdefault(cells["filename"], [])
            shape = parse_json(cells["region_shape_attributes"])
            if shape:  # an image without regions has one line with empty attributes
                regions.append(_Region(dict(shape), dict(parse_json(cells["region_attributes"]))))
    except (csv.Error, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path} is not a CSV file of VIA 2 ({type(error).__name__}: {error})", _HINT) from error
    return content


def _class_attribute(path: Path, content: _Content) -> str:
    """The attribute that holds the class of a region."""
    drawn = [r for regions in content.regions.values() for r in regions if r.kind in _DRAWN]
    names = {name for region in drawn for name in region.attributes} or set(content.options)
    if len(names) == 1:
        return names.pop()
    for name in _CLASS_ATTRIBUTES:
        if name in names:
            return name
    if not names:
        raise DataError(f"{path}: the regions have no attribute with a class", "Add an attribute 'class' in VIA.")
    listed = ", ".join(sorted(names))
    raise DataError(f"{path}: which of {listed} is the class?", "Rename the attribute with the class to 'class'.")


def _label(region: _Region, attribute: str, where: str) -> str:
    """The class of a region: a text, or the only marked option of a checkbox."""
    value = region.attributes.get(attribute)
    if isinstance(value, dict):
        marked = [str(name) for name, is_marked in value.items() if is_marked]
        value = marked[0] if len(marked) == 1 else None
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: a {region.kind} has no single '{attribute}'", _FIX)
    return value.strip()


def _draw(where: str, regions: list[tuple[int, _Region]], height: int, width: int) -> Mask:
    mask = np.zeros((height, width), np.uint8)
    for value, region in regions:
        try:
            points = _outline(region.shape)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{where}: a {region.kind} is unreadable", _FIX) from error
        fill_polygon(mask, np.floor(points), value, where)
    return mask


def _outline(shape: dict[str, Any]) -> npt.NDArray[np.float64]:
    """Points of a shape, (x, y) [N, 2]."""
    if shape["name"] == "polygon":
        pairs = zip(shape["all_points_x"], shape["all_points_y"], strict=True)
        return np.array([(float(x), float(y)) for x, y in pairs], np.float64).reshape(-1, 2)
    if shape["name"] == "rect":
        x, y, width, height = (float(shape[key]) for key in ("x", "y", "width", "height"))
        return rotated_box(x, y, x + width, y + height, 0)
    radii = [float(shape[key]) for key in (("r", "r") if shape["name"] == "circle" else ("rx", "ry"))]
    centre = float(shape["cx"]), float(shape["cy"])
    return ellipse(centre, (radii[0], radii[1]), float(np.rad2deg(float(shape.get("theta") or 0))))

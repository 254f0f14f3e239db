"""Label Studio's JSON export: brush strokes, polygons, rectangles and ellipses, drawn in the order of the file.

The latest annotation of a task counts, unless it was cancelled. Tasks that nobody annotated are left out and counted;
only if there is no annotation at all, predictions are read instead. Class ids follow `config.xml` or `labels.txt` next
to the file, otherwise alphabetical order: the export does not contain the list of labels.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, RootModel

from rcil.core.errors import did_you_mean
from rcil.core.masks import Mask
from rcil.core.palette import Colour
from rcil.core.reading import DataError, read_lines, read_text
from rcil.data.brush import decode_brush
from rcil.data.converters.annotations import (
    Annotations,
    Picture,
    check_size,
    class_table,
    fill_polygon,
    find_image,
    read_json,
    safe_path,
    without_top,
)
from rcil.data.converters.cvat_xml import parse_colour, parse_xml
from rcil.data.converters.shapes import ellipse, rotated_box

CONFIG = "config.xml"
_HINT = "Export from Label Studio as JSON, not as JSON-MIN."
_FIX = "Correct or delete the region in Label Studio and export again."
_DRAWN = ("brushlabels", "polygonlabels", "rectanglelabels", "ellipselabels")
_LABEL_KEYS = (*_DRAWN, "labels")
_UPLOAD = re.compile(r"[0-9a-f]{8}-(.+)")
"""Label Studio prefixes the names of uploaded files."""


class _Entry(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)


class _Result(_Entry):
    id: str | None = None
    type: str
    value: dict[str, Any]
    width: int | None = Field(None, alias="original_width")
    height: int | None = Field(None, alias="original_height")
    rotation: float = Field(0, alias="image_rotation")

    @property
    def label(self) -> str:
        """The first label; empty if there is none."""
        for key in _LABEL_KEYS:
            names = self.value.get(key)
            if isinstance(names, list) and names and isinstance(names[0], str):
                return names[0].strip()
        return ""

    @property
    def kind(self) -> str:
        """One of `_DRAWN`, also for regions of the plain tags Brush, Polygon and so on; otherwise the type."""
        plain = f"{self.type}labels"
        return plain if plain in _DRAWN else self.type


class _Annotation(_Entry):
    result: list[_Result]
    cancelled: bool = Field(False, alias="was_cancelled")

    def joined(self) -> _Annotation:
        """With the labels of the tag Labels, which stores them as a result of its own under the id of the region."""
        names = {found.id: found.label for found in self.result if found.type == "labels" and found.id}
        drawn = {found.id for found in self.result if found.kind in _DRAWN}
        results = [
            found
            if found.label
            else found.model_copy(update={"value": {**found.value, "labels": [names[found.id]]}})
            if found.id in names
            else found
            for found in self.result
            if found.type != "labels" or found.id not in drawn
        ]
        return self.model_copy(update={"result": results})


class _Task(_Entry):
    data: dict[str, Any]
    annotations: list[_Annotation] = []
    completions: list[_Annotation] = []
    """Annotations, as versions before 1.0 called them."""
    predictions: list[_Annotation | int] = []

    def latest(self, *, predicted: bool) -> _Annotation | None:
        """The annotation that counts."""
        if predicted:
            return next((found for found in reversed(self.predictions) if isinstance(found, _Annotation)), None)
        valid = [found for found in (*self.completions, *self.annotations) if not found.cancelled]
        return valid[-1] if valid else None


class _File(RootModel[list[_Task]]):
    pass


def read(source: Path, images: Path | None, split: str | None) -> Annotations:
    """Read a JSON file, or the only one of a folder."""
    path = _json_file(source) if source.is_dir() else source
    tasks = read_json(path, _File, _HINT).root
    predicted = not any(task.latest(predicted=False) for task in tasks)
    found = [(task, result.joined()) for task in tasks if (result := task.latest(predicted=predicted))]
    if not found:
        raise DataError(f"{path} holds no annotations", _HINT)
    results = [result for _, annotation in found for result in annotation.result]
    names, colours = _names(path, results)
    classes, values = class_table(names, path)
    folders = [images] if images else [path.parent, path.parent / "images"]
    pictures = tuple(_pictures(path, found, folders, split, values))
    skipped = Counter(result.type for result in results if result.kind not in _DRAWN)
    skipped["tasks without an annotation"] = len(tasks) - len(found)
    kept = {name: colour for name, colour in colours.items() if name in classes}
    return Annotations(classes, pictures, dict(+skipped), kept)


def _json_file(folder: Path) -> Path:
    files = sorted(path for path in folder.glob("*.json") if path.name != "prelabel.json")
    if len(files) != 1:
        raise DataError(f"{folder} holds {len(files)} json files", "Name the json file of the export.")
    return files[0]


def _names(path: Path, results: list[_Result]) -> tuple[list[str], dict[str, Colour]]:
    """Class names in order, with their colours; raises for a used label that is not listed."""
    used = {result.label for result in results if result.kind in _DRAWN}
    if "" in used:
        raise DataError(f"{path}: a region has no label", _FIX)
    config, listing = path.with_name(CONFIG), path.with_name("labels.txt")
    colours: dict[str, Colour] = {}
    if config.is_file():
        labels = list(parse_xml(read_text(config, _HINT), config, _HINT).iter("Label"))
        names = [(label.get("value") or "").strip() for label in labels]
        for name, element in zip(names, labels, strict=True):
            colour = parse_colour(element.get("background") or "")
            colours |= {name: colour} if colour else {}
        listing = config
    elif listing.is_file():
        names = [line for line in read_lines(listing, _HINT) if line]
    else:
        names = sorted(used)
    for label in sorted(used):
        if label not in names:
            raise DataError(
                f"{path} uses the label '{label}', which {listing} does not list", did_you_mean(label, names)
            )
    return names, colours


def _pictures(
    path: Path, found: list[tuple[_Task, _Annotation]], folders: list[Path], split: str | None, values: dict[str, int]
) -> Iterator[Picture]:
    for number, (task, annotation) in enumerate(found):
        where = f"{path}, task {number}"
        name = _image_name(task, where, path)
        recorded = task.data.get("split")
        own = recorded if isinstance(recorded, str) and recorded else ""
        end = _end_found(name, folders)
        inside = without_top(without_top(end, "images"), own)
        image = find_image(end, folders, path)
        yield Picture(split or own or "train", inside, image, partial(_draw, f"{where} ({name})", annotation, values))


def _image_name(task: _Task, where: str, path: Path) -> PurePosixPath:
    """The path of the image: a local file below its root, or the last part of a URL or an upload."""
    texts = [text for key, text in task.data.items() if isinstance(text, str) and key != "split"]
    texts.sort(key=lambda text: not PurePosixPath(urlsplit(text).path).suffix and "?d=" not in text)
    if not texts:
        raise DataError(f"{where} names no image", _HINT)
    try:
        parts = urlsplit(task.data["image"] if isinstance(task.data.get("image"), str) else texts[0])
        local = parse_qs(parts.query).get("d")
    except ValueError as error:
        raise DataError(f"{where}: the address of the image is unreadable", _HINT) from error
    if local:
        return safe_path(local[0].lstrip("/"), path)
    return safe_path(PurePosixPath(unquote(parts.path)).name, path)


def _end_found(name: PurePosixPath, folders: list[Path]) -> PurePosixPath:
    """The longest end of a path that is in one of the folders; an upload also without its prefix."""
    ends = [PurePosixPath(*name.parts[start:]) for start in range(len(name.parts))]
    upload = _UPLOAD.fullmatch(name.name)
    ends += [PurePosixPath(upload[1])] if upload else []
    return next((end for end in ends if any((folder / end).is_file() for folder in folders)), name)


def _draw(where: str, annotation: _Annotation, values: dict[str, int], height: int, width: int) -> Mask:
    mask = np.zeros((height, width), np.uint8)
    for number, result in enumerate(annotation.result):
        if result.kind in _DRAWN:
            place = f"{where}, region {number}"
            check_size(place, (result.height, result.width), (height, width))
            if result.rotation % 360:
                raise DataError(f"{place}: the image was turned by {result.rotation:g} degrees", "Turn it back.")
            _draw_result(mask, result, values[result.label], place)
    return mask


def _draw_result(mask: Mask, result: _Result, value: int, where: str) -> None:
    """Coordinates are percentages of the image."""
    height, width = mask.shape
    try:
        if result.kind == "brushlabels":
            rle = [int(byte) for byte in result.value["rle"]]
            mask[decode_brush(rle, (height, width), where)] = value
            return
        if result.kind == "polygonlabels":
            points = np.array(result.value["points"], np.float64).reshape(-1, 2) * (width / 100, height / 100)
        else:
            round_one = result.kind == "ellipselabels"
            sides = ("radiusX", "radiusY") if round_one else ("width", "height")
            x, y, w, h = (float(result.value[key]) / 100 for key in ("x", "y", *sides))
            x, y, w, h = x * width, y * height, w * width, h * height
            angle = float(result.value.get("rotation") or 0)
            points = ellipse((x, y), (w, h), angle) if round_one else rotated_box(x, y, x + w, y + h, angle, (x, y))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where}: the {result.type} is unreadable", _FIX) from error
    fill_polygon(mask, np.floor(points), value, where)

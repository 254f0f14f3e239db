"""labelme: one JSON file per image, with shapes drawn in the order of the file, as labelme does.

Polygons, rectangles, circles and masks have an area and are drawn; lines and points have none and are counted.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from rcil.core.errors import did_you_mean
from rcil.core.images import JPEG, PNG
from rcil.core.masks import Mask, decode_mask
from rcil.core.reading import DataError, existing_folder, read_lines
from rcil.data.converters.annotations import (
    Annotations,
    Picture,
    class_table,
    fill_polygon,
    find_by_stem,
    find_image,
    json_files,
    read_json,
    safe_path,
    without_top,
)

_HINT = "Expected the folder with labelme's json files."
_DRAWN = {"polygon": 3, "rectangle": 2, "circle": 2, "mask": 2}
"""Shapes with an area, and the minimum number of points of each."""
_SPLITS = {"train", "val", "test"}


class _Shape(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)

    label: str
    points: list[tuple[float, float]]
    shape_type: str | None = None
    mask: str | None = None

    @property
    def kind(self) -> str:
        """The shape type; old files omit it for polygons."""
        return self.shape_type or "polygon"


class _File(BaseModel):
    shapes: list[_Shape]
    image_path: str | None = Field(None, alias="imagePath")
    height: int | None = Field(None, alias="imageHeight")
    width: int | None = Field(None, alias="imageWidth")
    embedded: Annotated[bool, BeforeValidator(bool)] = Field(False, alias="imageData")
    """Whether the file holds the image itself. The data is read when it is needed, because it may be large."""
    split: str | None = None
    """Written by `rcil data export`; labelme keeps it."""


class _Embedded(BaseModel):
    data: str = Field(alias="imageData")


def read(source: Path, images: Path | None, split: str | None) -> Annotations:
    """Read every JSON file below a folder.

    A split is the one that was asked for or that the file names. Otherwise top-level folders called train, val and test
    are splits, if there are no others. Class ids follow `labels.txt` if it exists, otherwise alphabetical order.
    """
    paths = json_files(existing_folder(source, _HINT))
    if not paths:
        raise DataError(f"no json files in {source}", _HINT)
    files = {path: read_json(path, _File, _HINT) for path in paths}
    classes, values = class_table(_names(source, files), source)
    tops = {path.relative_to(source).parts[0] for path in paths}
    by_folder = split is None and tops <= _SPLITS
    pictures = []
    for path, content in files.items():
        relative = PurePosixPath(path.relative_to(source).as_posix())
        top = split or content.split or (relative.parts[0] if by_folder else "train")
        image, embedded = _image(path, content, images)
        name = relative.parent / image.name
        name = without_top(name, top) if by_folder or content.split == top else name
        pictures.append(Picture(top, name, image, partial(_draw, path, content, values), embedded))
    skipped = Counter(shape.kind for content in files.values() for shape in content.shapes if shape.kind not in _DRAWN)
    return Annotations(classes, tuple(pictures), dict(skipped))


def _names(source: Path, files: dict[Path, _File]) -> list[str]:
    """Class names in order; raises for a used label that is not listed."""
    used = {s.label.strip(): path for path, content in files.items() for s in content.shapes if s.kind in _DRAWN}
    listing = source / "labels.txt"
    if not listing.is_file():
        return sorted(used)
    names = [line for line in read_lines(listing, _HINT) if line]
    for label, path in used.items():
        if label not in names:
            raise DataError(
                f"{path} uses the label '{label}', which {listing} does not list", did_you_mean(label, names)
            )
    return names


def _image(path: Path, content: _File, images: Path | None) -> tuple[Path, Callable[[], bytes] | None]:
    """Find the image of a JSON file: by `imagePath`, in the image folder, next to the JSON file, or inside it."""
    folder = images or path.parent
    told = PurePosixPath((content.image_path or "").replace("\\", "/"))
    try:
        if content.image_path:
            return find_image(safe_path(told.name if images else str(told), path), [folder], path), None
        return find_by_stem(PurePosixPath(path.stem), folder, path), None
    except DataError:
        if not content.embedded:
            raise
    data = _embedded(path)
    suffix = ".png" if data.startswith(PNG) else ".jpg"
    return path.with_name(f"{told.stem or path.stem}{suffix}"), partial(_embedded, path)


def _embedded(path: Path) -> bytes:
    """The image inside a JSON file."""
    try:
        data = base64.b64decode(read_json(path, _Embedded, _HINT).data, validate=True)
    except ValueError as error:
        raise DataError(f"{path}: imageData is not base64", "Save it again in labelme, or give the image.") from error
    if not data.startswith((PNG, JPEG)):
        raise DataError(f"{path}: imageData is neither JPEG nor PNG", "Give the folder with the image.")
    return data


def _draw(path: Path, content: _File, values: dict[str, int], height: int, width: int) -> Mask:
    declared = content.height or height, content.width or width
    if declared != (height, width):
        raise DataError(
            f"{path} was drawn on {declared[1]} x {declared[0]} pixels, the image is {width} x {height}",
            "Use the images that were annotated.",
        )
    mask = np.zeros((height, width), np.uint8)
    for number, shape in enumerate(content.shapes):
        if shape.kind in _DRAWN:
            _draw_shape(mask, shape, values[shape.label.strip()], f"{path}, shape {number}")
    return mask


def _draw_shape(mask: Mask, shape: _Shape, value: int, where: str) -> None:
    points = np.floor(np.array(shape.points, np.float64).reshape(-1, 2) + 0.5)
    if len(points) < _DRAWN[shape.kind]:
        raise DataError(f"{where}: a {shape.kind} with {len(points)} points", "Correct or delete it in labelme.")
    if shape.kind == "circle":
        (x, y), (edge_x, edge_y) = shape.points[:2]
        _fill_circle(mask, points[0], float(np.hypot(edge_x - x, edge_y - y)), value)
    elif shape.kind == "mask":
        _paste(mask, points[0], shape, value, where)
    elif shape.kind == "rectangle":
        (left, top), (right, bottom) = points.min(axis=0), points.max(axis=0)
        corners = np.array([(left, top), (right, top), (right, bottom), (left, bottom)])
        fill_polygon(mask, corners, value, where)
    else:
        fill_polygon(mask, points, value, where)


def _fill_circle(mask: Mask, centre: npt.NDArray[np.float64], radius: float, value: int) -> None:
    """All pixels whose centre is within the radius."""
    y, x = np.ogrid[: mask.shape[0], : mask.shape[1]]
    mask[np.hypot(x - centre[0], y - centre[1]) <= radius] = value


def _paste(mask: Mask, corner: npt.NDArray[np.float64], shape: _Shape, value: int, where: str) -> None:
    """Decode a mask shape: a base64 PNG whose first point is its upper left pixel."""
    try:
        data = base64.b64decode(shape.mask or "", validate=True)
    except ValueError as error:  # not base64, or not even ASCII
        raise DataError(f"{where}: the mask is not base64", "Draw it again in labelme.") from error
    drawn = decode_mask(data, where)
    left, top = int(corner[0]), int(corner[1])
    bottom, right = top + drawn.shape[0], left + drawn.shape[1]
    if left < 0 or top < 0 or bottom > mask.shape[0] or right > mask.shape[1]:
        raise DataError(f"{where}: the mask reaches beyond the image", "Draw it again in labelme.")
    mask[top:bottom, left:right][drawn > 0] = value

"""Write labelme files: one JSON next to each image, with mask shapes or polygons."""

from __future__ import annotations

import base64
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from rcil.core.documents import write_json
from rcil.core.files import write_file
from rcil.core.masks import Mask, encode_mask
from rcil.data.exporters.layout import Export
from rcil.data.exporters.regions import box_of, class_regions, polygons

_VERSION = "5.5.0"
"""The version of labelme whose files these are; mask shapes need 5.2 or newer."""


def write(folder: Path, export: Export) -> None:
    """Write the JSON files, and labels.txt for `labelme --labels`."""
    lines = ["__ignore__", "_background_", *(label.name for label in export.drawn_labels)]
    write_file(folder / "labels.txt", "".join(f"{line}\n" for line in lines))
    for image, mask in export.masks():
        path = PurePosixPath(image.path)
        document = {
            "version": _VERSION,
            "flags": {},
            "shapes": _polygons(mask, export) if export.polygons else _masks(mask, export),
            "imagePath": path.name,
            "imageData": None,
            "imageHeight": mask.shape[0],
            "imageWidth": mask.shape[1],
            **({"split": image.split} if image.split else {}),  # labelme keeps entries that it does not know
        }
        write_json(folder / path.with_suffix(".json"), document)


def _shape(label: str, kind: str, points: list[Any], mask: str | None = None) -> dict[str, Any]:
    common = {"group_id": None, "description": "", "shape_type": kind, "mask": mask}
    return {"label": label, "points": points, **common, "flags": {}}


def _masks(mask: Mask, export: Export) -> list[dict[str, Any]]:
    """One mask per class: its pixels inside a box whose corners are the first and the last pixel."""
    shapes = []
    for value, region in class_regions(mask):
        left, top, width, height = box_of(region)
        part = region[top : top + height, left : left + width].astype(np.uint8)
        corners = [[left, top], [left + width - 1, top + height - 1]]
        pixels = base64.b64encode(encode_mask(part)).decode()
        shapes.append(_shape(export.by_value[value].name, "mask", corners, pixels))
    return shapes


def _polygons(mask: Mask, export: Export) -> list[dict[str, Any]]:
    return [_shape(export.by_value[value].name, "polygon", points.tolist()) for value, points in polygons(mask)]

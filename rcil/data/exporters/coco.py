"""Write COCO instances: run lengths, one annotation per class of an image, or polygons."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from rcil.core.documents import write_json
from rcil.core.masks import Mask
from rcil.data.exporters.layout import Export
from rcil.data.exporters.regions import box_of, class_regions, polygons, run_lengths


def write(folder: Path, export: Export) -> None:
    """Write annotations/instances_<split>.json; category ids are class ids, and 255 is `ignore`."""
    categories = [
        {"id": label.value, "name": label.name, "supercategory": "", "color": list(label.colour)}
        for label in export.drawn_labels
    ]
    files: dict[str, dict[str, list[Any]]] = {}
    for image, mask in export.masks():
        empty: dict[str, list[Any]] = {"images": [], "annotations": [], "categories": categories}
        content = files.setdefault(image.subset, empty)
        number = len(content["images"]) + 1
        height, width = mask.shape
        name = PurePosixPath(image.path)
        name = name.relative_to(image.split) if image.split else name
        content["images"].append({"id": number, "file_name": str(name), "width": width, "height": height})
        for entry in _polygons(mask) if export.polygons else _runs(mask):
            content["annotations"].append({"id": len(content["annotations"]) + 1, "image_id": number, **entry})
    for subset, content in files.items():
        write_json(folder / "annotations" / f"instances_{subset}.json", content)


def _runs(mask: Mask) -> list[dict[str, Any]]:
    """Column-major run lengths. COCO's own files have them for crowds only, but its tools read them for any region."""
    return [
        {
            "category_id": value,
            "segmentation": {"size": list(mask.shape), "counts": run_lengths(region.T.ravel())},
            "area": int(np.count_nonzero(region)),
            "bbox": list(box_of(region)),
            "iscrowd": 0,
        }
        for value, region in class_regions(mask)
    ]


def _polygons(mask: Mask) -> list[dict[str, Any]]:
    """Outlines through the centres of pixels."""
    found = []
    for value, points in polygons(mask):
        (left, top), (right, bottom) = points.min(axis=0).tolist(), points.max(axis=0).tolist()
        x, y = points.astype(np.float64).T
        area = abs(float(x @ np.roll(y, 1) - y @ np.roll(x, 1))) / 2
        found.append(
            {
                "category_id": value,
                "segmentation": [(points + 0.5).ravel().tolist()],
                "area": area,
                "bbox": [left + 0.5, top + 0.5, right - left, bottom - top],
                "iscrowd": 0,
            }
        )
    return found

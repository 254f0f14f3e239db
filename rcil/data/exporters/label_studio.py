"""Write Label Studio tasks: brush strokes or polygons, and the labelling configuration of the project.

Images are referred to as local files below the exported folder, which Label Studio serves if it is started with
`LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true` and `LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT=<the folder>`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from rcil.core.documents import write_json
from rcil.core.files import write_file
from rcil.core.masks import Mask
from rcil.data.brush import encode_brush
from rcil.data.exporters.layout import Export, hex_colour
from rcil.data.exporters.regions import class_regions, polygons

TASKS, CONFIG = "tasks.json", "config.xml"
LOCAL_FILES = "/data/local-files/?d="


def write(folder: Path, export: Export) -> None:
    """Write tasks.json and config.xml; predictions stay predictions, so that reviewed tasks can be told apart."""
    tasks = []
    for image, mask in export.masks():
        data = {"image": f"{LOCAL_FILES}{quote(f'images/{image.path}')}", "split": image.split}
        result = _results(mask, export)
        key = "predictions" if export.predicted else "annotations"
        tasks.append({"data": data, key: [{"result": result}]})
    write_json(folder / TASKS, tasks)
    write_file(folder / CONFIG, _config(export))


def _config(export: Export) -> str:
    """The labelling configuration: paste it into the project's settings."""
    view = ElementTree.Element("View")
    ElementTree.SubElement(view, "Image", {"name": "image", "value": "$image", "zoom": "true"})
    tag = "PolygonLabels" if export.polygons else "BrushLabels"
    labels = ElementTree.SubElement(view, tag, {"name": "label", "toName": "image"})
    for label in export.drawn_labels:
        ElementTree.SubElement(labels, "Label", {"value": label.name, "background": hex_colour(label.colour)})
    ElementTree.indent(view)
    return ElementTree.tostring(view, encoding="unicode") + "\n"


def _results(mask: Mask, export: Export) -> list[dict[str, Any]]:
    height, width = mask.shape
    kind = "polygonlabels" if export.polygons else "brushlabels"
    values: list[tuple[int, dict[str, Any]]]
    if export.polygons:
        values = [
            (value, {"points": ((points + 0.5) * 100 / (width, height)).tolist(), "closed": True})
            for value, points in polygons(mask)
        ]
    else:
        values = [(value, {"format": "rle", "rle": encode_brush(region)}) for value, region in class_regions(mask)]
    return [
        {
            "id": f"region{number}",
            "from_name": "label",
            "to_name": "image",
            "type": kind,
            "original_width": width,
            "original_height": height,
            "image_rotation": 0,
            "value": {**content, kind: [export.by_value[value].name]},
        }
        for number, (value, content) in enumerate(values)
    ]

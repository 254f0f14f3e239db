"""Write for CVAT: "CVAT for images 1.1", and "Segmentation mask 1.1"."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from rcil.core.drawing import lut_of
from rcil.core.files import write_file
from rcil.core.images import write_image
from rcil.core.masks import Mask
from rcil.core.reading import DataError
from rcil.data.exporters.layout import Export, Label, hex_colour
from rcil.data.exporters.regions import box_of, class_regions, polygons, run_lengths


def write_xml(folder: Path, export: Export) -> None:
    """Write annotations.xml, with one mask per class of an image, or polygons in their drawing order."""
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    task = ElementTree.SubElement(ElementTree.SubElement(root, "meta"), "task")
    ElementTree.SubElement(task, "size").text = str(len(export.images))
    ElementTree.SubElement(task, "mode").text = "annotation"
    labels = ElementTree.SubElement(task, "labels")
    for label in export.drawn_labels:
        entry = ElementTree.SubElement(labels, "label")
        for tag, text in (("name", label.name), ("color", hex_colour(label.colour)), ("type", "any")):
            ElementTree.SubElement(entry, tag).text = text
        ElementTree.SubElement(entry, "attributes")
    for number, (image, mask) in enumerate(export.masks()):
        height, width = mask.shape
        where = {"id": str(number), "name": image.path, "subset": image.subset}
        element = ElementTree.SubElement(root, "image", {**where, "width": str(width), "height": str(height)})
        _add_shapes(element, mask, export)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    write_file(folder / "annotations.xml", f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n')


def _add_shapes(image: ElementTree.Element, mask: Mask, export: Export) -> None:
    common = {"source": "auto" if export.predicted else "manual", "occluded": "0"}
    if export.polygons:
        for order, (value, points) in enumerate(polygons(mask)):
            text = ";".join(f"{x + 0.5:.2f},{y + 0.5:.2f}" for x, y in points.tolist())
            shape = {"label": export.by_value[value].name, **common, "points": text, "z_order": str(order)}
            ElementTree.SubElement(image, "polygon", shape)
        return
    for value, region in class_regions(mask):
        left, top, width, height = box_of(region)
        runs = run_lengths(region[top : top + height, left : left + width].ravel())
        box = {"left": str(left), "top": str(top), "width": str(width), "height": str(height), "z_order": "0"}
        shape = {"label": export.by_value[value].name, **common, "rle": ", ".join(map(str, runs)), **box}
        ElementTree.SubElement(image, "mask", shape)


def write_masks(folder: Path, export: Export) -> None:
    """Write SegmentationClass/*.png in the colours that labelmap.txt explains, and a list per split."""
    labels = (export.by_value[0], *export.labels)
    _check_labels(labels)
    lines = [f"{label.name}:{','.join(map(str, label.colour))}::\n" for label in labels]
    write_file(folder / "labelmap.txt", "# label:color_rgb:parts:actions\n" + "".join(lines))
    colours = lut_of({label.value: label.colour for label in labels})
    lists: dict[str, list[str]] = {}
    for image, mask in export.masks():
        name = str(Path(image.path).with_suffix(""))
        lists.setdefault(image.subset, []).append(name)
        write_image(folder / "SegmentationClass" / f"{name}.png", np.asarray(colours[mask], np.uint8))
    for subset, names in lists.items():
        write_file(folder / "ImageSets" / "Segmentation" / f"{subset}.txt", "".join(f"{name}\n" for name in names))


def _check_labels(labels: tuple[Label, ...]) -> None:
    """Raise for what labelmap.txt cannot hold."""
    for label in labels:
        if label.name.startswith("#"):
            raise DataError(f"labelmap.txt takes the class '{label.name}' for a comment", "Rename the class.")
    colour, count = Counter(label.colour for label in labels).most_common(1)[0]
    if count > 1:
        names = " and ".join(label.name for label in labels if label.colour == colour)
        raise DataError(f"{names} have the same colour {','.join(map(str, colour))}", "Change one in dataset.yaml.")

"""Draws an existing mask over its image, with the names and colours of a model's classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rcil.core.drawing import legend, lut_of, overlay
from rcil.core.images import Image, read_rgb
from rcil.core.mask_classes import recorded_names
from rcil.core.masks import Mask, decode_mask
from rcil.core.reading import DataError, read_bytes
from rcil.data.site import read_classes
from rcil.model.header import read_header
from rcil.model.metadata import ClassInfo
from rcil_export.graph.description import parse_description, read_texts

IGNORE = 255
_HINT = "Pass the model that wrote the mask with --model, or a later step of it."


def read_class_table(model: Path) -> tuple[ClassInfo, ...]:
    """The classes of a checkpoint or of an exported graph."""
    if model.suffix.lower() == ".onnx":
        return parse_description(read_texts(model), model)[0].classes
    return read_header(model).metadata.classes


def draw_overlay(image: Path, mask: Path, classes: Sequence[ClassInfo], alpha: float, *, with_legend: bool) -> Image:
    """The image with its mask drawn over it, [H, W, 3], and optionally a legend below.

    Raises:
        DataError: The sizes differ, or the mask holds a class that is not in the table.
    """
    data = read_bytes(mask, "Check the path.")
    pixels, ids = read_rgb(image), decode_mask(data, str(mask))
    if pixels.shape[:2] != ids.shape:
        raise DataError(
            f"{mask} is {ids.shape[1]}x{ids.shape[0]} pixels, {image} is {pixels.shape[1]}x{pixels.shape[0]}",
            "Pass the mask that belongs to this image, at the same size.",
        )
    names = recorded_names(data, str(mask))
    drawn = classes_of_mask(ids, site_names(mask) if names is None else names, classes, str(mask))
    hidden = next((id_ for id_, info in drawn.items() if info is classes[0]), 0)
    picture = overlay(
        pixels, ids, lut_of({id_: c.colour for id_, c in drawn.items()}), alpha, background=hidden, ignore=IGNORE
    )
    if not with_legend:
        return picture
    return np.vstack([picture, legend([(c.name, c.colour) for c in classes], picture.shape[1])])


def site_names(mask: Path) -> dict[int, str] | None:
    """Class names by id of the site folder that a mask belongs to; None for a mask elsewhere."""
    for folder in mask.absolute().parents:
        files = (folder.parent / name for name in ("classes.txt", "dataset.yaml"))
        if folder.name == "masks" and any(map(Path.is_file, files)):
            return {id_: spec.name for id_, spec in enumerate(read_classes(folder.parent))}
    return None


def classes_of_mask(
    ids: Mask, names: dict[int, str] | None, classes: Sequence[ClassInfo], source: str
) -> dict[int, ClassInfo]:
    """The class of every id in a mask, except ignored pixels.

    Args:
        ids: Class ids [H, W].
        names: Class names by id that the mask or its site records; classes are then matched by name. None if there are
            none: the ids are those of the table.
        classes: Classes of the model.
        source: The mask, for errors.
    """
    by_name, by_id = {c.name: c for c in classes}, {c.id: c for c in classes}
    found, missing = {}, []
    for id_ in (int(value) for value in np.unique(ids)):
        info = by_id.get(id_) if names is None else by_name.get(names.get(id_, ""))
        if info is not None:
            found[id_] = info
        elif id_ != IGNORE:
            missing.append(f"{id_} ({names[id_]})" if names and id_ in names else str(id_))
    if missing:
        known = ", ".join(f"{c.id} {c.name}" for c in classes[:12]) + (", ..." if len(classes) > 12 else "")
        what = "class" if len(missing) == 1 else "classes"
        raise DataError(f"{source} holds the {what} {', '.join(missing)}, which the model lacks: {known}", _HINT)
    return found

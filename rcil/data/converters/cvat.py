"""CVAT's "Segmentation mask 1.1": VOC folders, and colours that `labelmap.txt` explains.

Palette masks are also read by colour, since the order of the palette is not specified.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np

from rcil.core.images import read_rgb
from rcil.core.masks import Mask
from rcil.core.palette import Colour
from rcil.core.reading import DataError, existing_folder, read_lines
from rcil.data.converters import cvat_xml
from rcil.data.converters.annotations import (
    Annotations,
    Picture,
    below,
    class_table,
    find_by_stem,
    safe_path,
    split_names,
    without_top,
)

_HINT = "Export from CVAT as 'Segmentation mask 1.1' or 'CVAT for images 1.1'."
_BLACK = 0


def read(source: Path, images: Path | None, split: str | None) -> Annotations:
    """Read the masks named by the lists in `ImageSets/Segmentation`, one split per list; or CVAT's own XML."""
    if source.suffix.lower() == ".xml" or (source / cvat_xml.FILE).is_file():
        return cvat_xml.read(source, images, split)
    existing_folder(source, _HINT)
    classes, values, colours = _label_map(source / "labelmap.txt")
    folder = images or source / "JPEGImages"
    existing_folder(folder, "Export with images, or give the folder that holds them.")
    lists = sorted(existing_folder(source / "ImageSets" / "Segmentation", _HINT).glob("*.txt"))
    splits = split_names((listing.stem for listing in lists), split, "cvat")
    pictures = tuple(
        picture for listing in lists for picture in _pictures(source, listing, splits[listing.stem], folder, values)
    )
    if not pictures:
        raise DataError(f"the lists in {source / 'ImageSets' / 'Segmentation'} name no images", _HINT)
    return Annotations(classes, pictures, colours=colours)


def _label_map(path: Path) -> tuple[tuple[str, ...], dict[int, int], dict[str, Colour]]:
    """Class names, mask value by colour (0xRRGGBB), and RGB by class. Black is background unless the file says
    otherwise.
    """
    colours: dict[str, int] = {}
    for number, line in enumerate(read_lines(path, _HINT), 1):
        if not line or line.startswith("#"):
            continue
        name, *rest = line.rsplit(":", 3)
        channels = [channel.strip() for channel in rest[0].split(",")] if rest else []
        if len(channels) != 3 or not all(c.isdecimal() and len(c) <= 3 and int(c) < 256 for c in channels):
            raise DataError(f"{path}, line {number}: '{line}'", "A line reads name:r,g,b:: with numbers up to 255.")
        red, green, blue = map(int, channels)
        colour = red << 16 | green << 8 | blue
        if name in colours or colour in colours.values():
            raise DataError(f"{path}, line {number}: '{line}' repeats a name or colour", "Give each label its own.")
        colours[name] = colour
    classes, ids = class_table(colours, path)
    values = {colour: ids[name.strip()] for name, colour in colours.items()}
    shown = {classes[value]: _rgb(colour) for colour, value in values.items() if value < len(classes)}
    return classes, values if 0 in values.values() else {_BLACK: 0} | values, shown


def _rgb(colour: int) -> Colour:
    return colour >> 16, colour >> 8 & 255, colour & 255


def _pictures(source: Path, listing: Path, split: str, images: Path, values: dict[int, int]) -> Iterator[Picture]:
    for line in read_lines(listing, _HINT):
        if not line:
            continue
        name = safe_path(line, listing)
        mask = source / "SegmentationClass" / f"{name}.png"
        if not mask.is_file():
            raise DataError(f"{listing} names '{line}', but there is no {mask}", _HINT)
        below(source / "SegmentationClass", PurePosixPath(f"{name}.png"), listing)
        image = find_by_stem(name, images, listing)
        inside = without_top(PurePosixPath(f"{name}{image.suffix}"), listing.stem)
        yield Picture(split, inside, image, partial(_draw, mask, values))


def _draw(path: Path, values: dict[int, int], height: int, width: int) -> Mask:
    """Colours to class ids. The size is the mask's own; the caller compares it with the image."""
    image = read_rgb(path).astype(np.int32)
    red, green, blue = image[..., 0], image[..., 1], image[..., 2]
    colours = red << 16 | green << 8 | blue
    known = np.array(sorted(values), np.int32)
    index = np.minimum(np.searchsorted(known, colours), len(known) - 1)
    unknown = colours[known[index] != colours]
    if unknown.size:
        first = int(unknown[0])
        count = int(np.count_nonzero(unknown == first))
        raise DataError(
            f"{path}: {count} pixels have the colour {','.join(map(str, _rgb(first)))}",
            "Add it to labelmap.txt, or export masks and labelmap together.",
        )
    return np.array([values[colour] for colour in known.tolist()], np.uint8)[index]

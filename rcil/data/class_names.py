"""Class names of public datasets, or from a text file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.palette import Colour, colours_for, voc_colour

VOC = [
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
]  # fmt: skip
CITYSCAPES = [
    "road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation", "terrain",
    "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
]  # fmt: skip
KNOWN = {"voc": VOC, "cityscapes": CITYSCAPES}


def published_colours(names: Sequence[str]) -> tuple[Colour, ...]:
    """The colours of PASCAL VOC if all names are its classes, otherwise the default colours."""
    if set(names) <= set(VOC):
        return tuple(voc_colour(VOC.index(name)) for name in names)
    return colours_for(names)


def read_names(source: str) -> list[str]:
    """Names of a known dataset, or the non-empty lines of a text file."""
    if source in KNOWN:
        return list(KNOWN[source])
    path = Path(source)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        hint = f"Give a text file with one name per line. {did_you_mean(source, KNOWN)}"
        raise ConfigError(f"cannot read class names from '{source}'", hint) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not a UTF-8 text file", "Write one class name per line, background first."
        ) from error
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise ConfigError(f"{path} names no classes", "Write one class name per line, background first.")
    return names

"""Shared by the readers of annotation exports: the result type, names, paths, pictures and outlines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeVar

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ValidationError

from rcil.core.errors import ConfigError
from rcil.core.masks import Mask
from rcil.core.palette import Colour
from rcil.core.reading import DataError, read_bytes
from rcil.data.types import IGNORE

SUFFIXES = {".jpg": ".jpg", ".jpeg": ".jpg", ".png": ".png"}
"""Image suffix in an export, in lower case -> suffix in a site folder."""

SPLIT_NAMES = {"valid": "val"}
"""Names of splits in exports -> those of site folders, where they differ."""

_BACKGROUND = {"background", "_background_"}
_IGNORED = {"ignore", "__ignore__", "void"}
_MAX_COORDINATE = 1e6
_NO_SUBSET = "default"
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True)
class Picture:
    """One annotated image of an export."""

    split: str
    name: PurePosixPath
    """Path of the image below its split in the export; distinguishes images with the same file name."""
    image: Path
    draw: Callable[[int, int], Mask]
    """(height, width) of the decoded image -> its mask."""
    embedded: Callable[[], bytes] | None = None
    """The encoded image, if the annotation file holds it; `image` is then only its name."""

    def read(self) -> bytes:
        """The bytes of the encoded image."""
        return self.embedded() if self.embedded else read_bytes(self.image, "Check the image folder.")


@dataclass(frozen=True)
class Annotations:
    """The content of an export."""

    classes: tuple[str, ...]
    pictures: tuple[Picture, ...]
    skipped: dict[str, int] = field(default_factory=dict)
    colours: dict[str, Colour] = field(default_factory=dict)
    """RGB by class name, where the format stores colours."""


def no_split(split: str | None, kind: str) -> None:
    """Raise if a split is requested although the export records its own."""
    if split is not None:
        raise ConfigError(f"{kind} exports record their splits, so '{split}' cannot be chosen", "Omit the split.")


def split_names(recorded: Iterable[str], asked: str | None, kind: str) -> dict[str, str]:
    """Map the subset names of an export to splits.

    CVAT calls what belongs to no subset `default`: that becomes the split that was asked for, or `train`.
    """
    names = list(recorded)
    if _NO_SUBSET not in names:
        no_split(asked, kind)
    return {name: (asked or "train") if name == _NO_SUBSET else name for name in names}


def is_background(name: str) -> bool:
    """Whether a label of this name means background."""
    return name.casefold() in _BACKGROUND


def is_ignored(name: str) -> bool:
    """Whether a label of this name marks pixels to ignore."""
    return name.casefold() in _IGNORED


def class_table(names: Iterable[str], source: Path) -> tuple[tuple[str, ...], dict[str, int]]:
    """The class names of the site folder, and the mask value of each name in the export."""
    given = [name.strip() for name in names]
    special = {name: 0 for name in given if is_background(name)}
    special |= {name: IGNORE for name in given if is_ignored(name)}
    kept = [name for name in given if name not in special]
    if not 0 < len(kept) < IGNORE:
        raise DataError(f"{source} names {len(kept)} classes besides background", f"Use 1 to {IGNORE - 1} classes.")
    for name in kept:
        if len(name.splitlines()) != 1 or kept.count(name) > 1:
            raise DataError(f"{source}: the class name {name!r} is empty, broken or repeated", "Rename the class.")
    return ("background", *kept), special | {name: index for index, name in enumerate(kept, 1)}


def safe_path(text: str, source: Path) -> PurePosixPath:
    """Check a file name from an annotation file; raises if it points outside its folder."""
    path = PurePosixPath(text.replace("\\", "/"))
    if not path.name or path.is_absolute() or ".." in path.parts or re.match("[A-Za-z]:", text) or "\0" in text:
        raise DataError(
            f"{source} names the image '{text}', which is not a path below the image folder",
            "Correct the name, or give the folder with the images.",
        )
    return path


def without_top(name: PurePosixPath, folder: str) -> PurePosixPath:
    """A path below a folder that repeats its split; other paths are returned as they are."""
    return PurePosixPath(*name.parts[1:]) if len(name.parts) > 1 and name.parts[0] == folder else name


def below(folder: Path, name: PurePosixPath, source: Path) -> Path:
    """A file of a folder; raises if a symbolic link leads outside the folder."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DataError(
            f"{source} names '{name}', a link that leads outside {folder}",
            "Copy the file there, or give the folder that holds it.",
        )
    return path


def find_image(name: PurePosixPath, folders: Sequence[Path], source: Path) -> Path:
    """The first image of that name in any of the folders; raises unless it is JPEG or PNG."""
    found = next((below(folder, name, source) for folder in folders if (folder / name).is_file()), None)
    if found is None:
        looked = ", ".join(map(str, folders))
        raise DataError(f"{source} names the image '{name}', which is not in {looked}", "Give the image folder.")
    if found.suffix.lower() not in SUFFIXES:
        raise DataError(f"{found} is neither JPEG nor PNG", "Convert the images first, keeping their sizes.")
    return found


def find_by_stem(stem: PurePosixPath, folder: Path, source: Path) -> Path:
    """`find_image` for annotations that name an image without its suffix."""
    for suffix in (*SUFFIXES, *map(str.upper, SUFFIXES)):
        if (folder / f"{stem}{suffix}").is_file():
            return below(folder, PurePosixPath(f"{stem}{suffix}"), source)
    raise DataError(f"{source} names '{stem}', but {folder} has no such JPEG or PNG", "Give the image folder.")


def json_files(folder: Path) -> list[Path]:
    """The JSON files below a folder, without the list of confidences that `rcil prelabel` writes."""
    return sorted(path for path in folder.rglob("*.json") if path != folder / "prelabel.json")


def read_json(path: Path, model: type[_Model], hint: str) -> _Model:
    """Read and validate a JSON file; the error names the first invalid entry."""
    try:
        return model.model_validate_json(read_bytes(path, hint))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        entry = ".".join(map(str, first["loc"])) or "file"
        raise DataError(f"{path}, {entry}: {first['msg']}", hint) from error


def fill_polygon(mask: Mask, points: npt.NDArray[np.float64], value: int, source: str) -> None:
    """Fill a closed outline of integer pixels (x, y) [N, 2]; parts outside the image are clipped."""
    if len(points) < 3 or not np.all(np.abs(points) <= _MAX_COORDINATE):
        raise DataError(f"{source}: an outline of {len(points)} points cannot be filled", "Correct or delete it.")
    cv2.fillPoly(mask, [points.astype(np.int32)], value)


def check_size(where: str, declared: tuple[int | None, int | None], actual: tuple[int, int]) -> None:
    """Raise if an image does not have the height and width that its annotation states."""
    if any(told not in (None, size) for told, size in zip(declared, actual, strict=True)):
        raise DataError(
            f"{where}: the image is {actual[1]} x {actual[0]} pixels, annotated as {declared[1]} x {declared[0]}",
            "Use the images that were annotated, or remove their EXIF rotation.",
        )

"""The data of the tables: CamVid in tiles, CamVid by sequence, generated sites."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.documents import write_json
from rcil.core.errors import ConfigError
from rcil.scenes import make_site

TILE = (90, 80)
"""CamVid's images are scaled to half their size, 180x240 pixels, and cut into six tiles each. Nearly every whole image
contains nearly every class, so the disjoint setting would have no images; with tiles, every step has some hundreds.
The tests use tiles too, so that the dilated convs of the head see the same context as in training.
"""
TESTED = 3
"""Every third test frame is used."""
SEQUENCES = ("0016E5", "0006R0", "0001TP")
DATA_TITLES = {"camvid": "CamVid", "voc": "the animal subset of PASCAL VOC 2012"}
SITE_DOMAINS = ("sunny", "rain", "night")


def prepare(name: str, target: Path, camvid: Path | None, voc: Path | None = None) -> Path:
    """Create the data called `name` in the folder `target`, unless it exists. Whole images are linked, not copied."""
    folder = target / name
    if folder.is_dir():
        return folder
    makers: dict[str, Callable[[Path], None]] = {
        "camvid": lambda part: cut_camvid(_given("camvid", camvid), part),
        "camvid-sequences": lambda part: camvid_by_sequence(_given("camvid", camvid), part),
        "camvid-whole": lambda part: part.symlink_to(_given("camvid", camvid).resolve()),
        "voc-animals": lambda part: part.symlink_to(_given("voc", voc).resolve()),
        "site": lambda part: _site(part, ("sunny",)),
        "site-domains": lambda part: _site(part, SITE_DOMAINS),
    }
    part = target / f".{name}.part"
    if part.is_symlink():
        part.unlink()
    shutil.rmtree(part, ignore_errors=True)
    target.mkdir(parents=True, exist_ok=True)
    makers[name](part)
    part.rename(folder)
    return folder


def _given(option: str, folder: Path | None) -> Path:
    if folder is None or not (folder / "classes.txt").is_file():
        title = DATA_TITLES[option]
        raise ConfigError(
            f"{title} is not in {folder}" if folder else f"no folder with {title} was given",
            f"Give --{option} DIR with images/{{train,val}}, masks/{{train,val}} and classes.txt.",
        )
    return folder


def _site(folder: Path, domains: tuple[str, ...]) -> None:
    make_site(folder, images=1000, size=(96, 96), frames=1, domains=domains)


def cut_camvid(source: Path, target: Path) -> None:
    """Write tiles of all training images and some test images, with their masks."""
    for kind in ("images", "masks"):
        for path in sorted((source / kind / "train").iterdir()):
            _cut(path, target / kind / "train")
        for path in sorted((source / kind / "val").iterdir())[::TESTED]:
            _cut(path, target / kind / "val")
    shutil.copy(source / "classes.txt", target / "classes.txt")


def camvid_by_sequence(source: Path, target: Path) -> None:
    """Write tiles whose domain is the sequence that they come from.

    The test split contains a single sequence, so the last fifth of the other sequences is added to it.
    """
    domains: dict[str, str] = {}
    for kind in ("images", "masks"):
        paths = sorted((source / kind / "train").iterdir())
        tested = sorted((source / kind / "val").iterdir())[::TESTED]
        for sequence in SEQUENCES:
            frames = [path for path in paths if path.name.startswith(sequence)]
            kept = len(frames) if sequence == "0016E5" else round(0.8 * len(frames))
            for path in frames[:kept]:
                for tile in _cut(path, target / kind / "train"):
                    domains[f"train/{tile.stem}"] = sequence
            tested += frames[kept:][::TESTED]
        for path in tested:
            for tile in _cut(path, target / kind / "val"):
                domains[f"val/{tile.stem}"] = path.name.split("_")[0]
    shutil.copy(source / "classes.txt", target / "classes.txt")
    write_json(target / "dataset.json", {"image_domains": domains})


def _cut(path: Path, folder: Path) -> list[Path]:
    """Write the tiles of an image or mask; return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = _half(path)
    height, width = TILE
    tiles = []
    for row in range(0, picture.shape[0] - height + 1, height):
        for column in range(0, picture.shape[1] - width + 1, width):
            tile = folder / f"{path.stem}_{row}_{column}.png"
            cv2.imwrite(str(tile), picture[row : row + height, column : column + width])
            tiles.append(tile)
    return tiles


def _half(path: Path) -> NDArray[np.uint8]:
    """Halve an image [H, W, 3] or a mask [H, W]; colours are averaged, class ids are sampled."""
    picture = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    assert picture is not None, path
    if picture.ndim == 2:
        return np.asarray(picture[::2, ::2], np.uint8)
    height, width = picture.shape[:2]
    return np.asarray(cv2.resize(picture, (width // 2, height // 2), interpolation=cv2.INTER_AREA), np.uint8)

"""The data of the tables: CamVid in tiles, CamVid by sequence, generated sites."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import cv2

from rcil.console import write_json
from rcil.data.generate import make_site
from rcil.errors import ConfigError

TILE = (180, 160)
"""CamVid's images have 360x480 pixels: six tiles each. Nearly every whole image holds nearly every class, which leaves
the disjoint setting nothing; of the tiles some hundreds are left for every step."""
SEQUENCES = ("0016E5", "0006R0", "0001TP")


def prepare(name: str, target: Path, camvid: Path | None) -> Path:
    """Make the data called `name` below `target`, unless it is there."""
    folder = target / name
    if folder.is_dir():
        return folder
    makers: dict[str, Callable[[Path], None]] = {
        "camvid": lambda part: cut_camvid(_given(camvid), part),
        "camvid-sequences": lambda part: camvid_by_sequence(_given(camvid), part),
        "site": lambda part: _site(part, ("sunny",)),
        "site-domains": lambda part: _site(part, ("sunny", "overcast", "rain", "night", "oldcam")),
    }
    part = target / f".{name}.part"
    shutil.rmtree(part, ignore_errors=True)
    makers[name](part)
    part.rename(folder)
    return folder


def _given(camvid: Path | None) -> Path:
    if camvid is None or not (camvid / "classes.txt").is_file():
        raise ConfigError(
            f"CamVid is not in {camvid}" if camvid else "no folder with CamVid was given",
            "Give --camvid DIR with images/{train,val}, masks/{train,val} and classes.txt.",
        )
    return camvid


def _site(folder: Path, domains: tuple[str, ...]) -> None:
    make_site(folder, images=1000, size=(96, 128), frames=1, domains=domains)


def cut_camvid(source: Path, target: Path) -> None:
    """Training images and masks in tiles, test images whole."""
    for kind in ("images", "masks"):
        for path in sorted((source / kind / "train").iterdir()):
            _cut(path, target / kind / "train")
        shutil.copytree(source / kind / "val", target / kind / "val")
    shutil.copy(source / "classes.txt", target / "classes.txt")


def camvid_by_sequence(source: Path, target: Path) -> None:
    """Tiles with the sequence that they come from as their domain.

    The test split is of one sequence alone, so the last fifth of the others' frames, in time, is added to it.
    """
    domains: dict[str, str] = {}
    for kind in ("images", "masks"):
        shutil.copytree(source / kind / "val", target / kind / "val")
        paths = sorted((source / kind / "train").iterdir())
        for sequence in SEQUENCES:
            frames = [path for path in paths if path.name.startswith(sequence)]
            kept = len(frames) if sequence == "0016E5" else round(0.8 * len(frames))
            for path in frames[:kept]:
                for tile in _cut(path, target / kind / "train"):
                    domains[f"train/{tile.stem}"] = sequence
            for path in frames[kept:]:
                shutil.copy(path, target / kind / "val" / path.name)
    for path in (target / "images" / "val").iterdir():
        domains[f"val/{path.stem}"] = path.name.split("_")[0]
    shutil.copy(source / "classes.txt", target / "classes.txt")
    write_json(target / "dataset.json", {"image_domains": domains})


def _cut(path: Path, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    picture = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    assert picture is not None, path
    height, width = TILE
    tiles = []
    for row in range(0, picture.shape[0] - height + 1, height):
        for column in range(0, picture.shape[1] - width + 1, width):
            tile = folder / f"{path.stem}_{row}_{column}.png"
            cv2.imwrite(str(tile), picture[row : row + height, column : column + width])
            tiles.append(tile)
    return tiles

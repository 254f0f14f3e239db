"""Small site folders."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import yaml


def write_sample(root: Path, split: str, name: str, mask: np.ndarray, suffix: str = ".jpg") -> None:  # type: ignore[type-arg]
    """An image whose brightness follows its mask, and the mask."""
    image, label = root / "images" / split / f"{name}{suffix}", root / "masks" / split / f"{name}.png"
    for path in (image, label):
        path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(image), np.repeat((mask * 60 + 20).astype(np.uint8)[..., None], 3, axis=2))
    cv2.imwrite(str(label), mask.astype(np.uint8))


def make_site(root: Path, *, splits: tuple[str, ...] = ("train", "val"), images: int = 6) -> Path:
    """Classes background, ball, cone; every image holds 40 x 40 pixels of each of the last two."""
    mask = np.zeros((64, 96), np.uint8)
    mask[8:48, 4:44], mask[8:48, 50:90] = 1, 2
    for split in splits:
        for index in range(images):
            write_sample(root, split, f"{split or 'flat'}_{index}", mask)
    (root / "classes.txt").write_text("background\nball\ncone\n")
    return root


def write_task(folder: Path) -> Path:
    """A task of two steps on a tiny site beside it, with a network that trains in a second."""
    make_site(folder / "site", images=10)
    document = {
        "name": "tiny",
        "recipe": "paper",
        "data": {"root": "site"},
        "protocol": {"steps": [["ball"], ["cone"]]},
        "network": {"backbone": "resnet18", "width": 4, "blocks": [1, 1, 1, 1], "head_width": 8},
        "training": {"epochs": [2, 2], "lr": [0.05, 0.02], "batch": 4, "crop": 64, "workers": 0, "save_every": 1},
    }
    path = folder / "task.yaml"
    path.write_text(yaml.safe_dump(document))
    return path

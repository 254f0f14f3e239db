"""Published dataset layouts in miniature."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np

from rcil.core.masks import Mask


def stripes(*values: int, side: int = 32) -> Mask:
    """A square mask with a stripe of each value."""
    return np.array(values, np.uint8)[np.arange(side) * len(values) // side][None].repeat(side, axis=0)


def write_pair(image: Path, label: Path, mask: Mask) -> None:
    """A mask, and an image of its size whose brightness follows it."""
    for path, pixels in ((image, np.repeat((mask * 37)[..., None], 3, axis=2)), (label, mask)):
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), pixels)


def write_voc(root: Path, lists: Mapping[str, Mapping[str, Mask]]) -> Path:
    """VOCdevkit/VOC2012 with these lists of named masks; `train_aug` has masks of its own, as published."""
    year = root / "VOCdevkit" / "VOC2012"
    for listing, masks in lists.items():
        folder = "SegmentationClassAug" if listing == "train_aug" else "SegmentationClass"
        for name, mask in masks.items():
            write_pair(year / "JPEGImages" / f"{name}.jpg", year / folder / f"{name}.png", mask)
        path = year / "ImageSets" / "Segmentation" / f"{listing}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{name}\n" for name in masks))
    return year


def write_ade(root: Path, train: list[Mask], val: list[Mask]) -> Path:
    """ADEChallengeData2016 with images numbered from 1."""
    base = root / "ADEChallengeData2016"
    for folder, short, masks in (("training", "train", train), ("validation", "val", val)):
        for number, mask in enumerate(masks, 1):
            name = f"ADE_{short}_{number:08d}"
            write_pair(base / "images" / folder / f"{name}.jpg", base / "annotations" / folder / f"{name}.png", mask)
    return base


def write_frame(root: Path, split: str, name: str, mask: Mask, ending: str = "Ids") -> None:
    """One Cityscapes frame, named city_sequence_frame, with `_labelIds` or `_labelTrainIds`."""
    city = name.split("_")[0]
    image = root / "leftImg8bit" / split / city / f"{name}_leftImg8bit.png"
    write_pair(image, root / "gtFine" / split / city / f"{name}_gtFine_label{ending}.png", mask)

"""Cityscapes, fine annotations: 19 classes, and cities as domains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rcil.core.reading import DataError, existing_folder
from rcil.data.class_names import CITYSCAPES
from rcil.data.datasets.samples import checked_split
from rcil.data.types import ClassSpec, Sample, SegmentationData

CITIES = (
    "aachen", "bremen", "darmstadt", "erfurt", "hanover", "krefeld", "strasbourg", "tubingen", "weimar", "bochum",
    "cologne", "dusseldorf", "hamburg", "jena", "monchengladbach", "stuttgart", "ulm", "zurich",
    "frankfurt", "lindau", "munster",
)  # fmt: skip
"""The cities in the order in which the domain protocols number them; the last three are the validation cities."""
TRAINING_CITIES = 18
"""Number of training cities, which come first."""

RAW_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
"""The value in `_labelIds.png` of each class, by class id."""

_COLOURS = (
    (128, 64, 128), (244, 35, 232), (70, 70, 70), (102, 102, 156), (190, 153, 153), (153, 153, 153), (250, 170, 30),
    (220, 220, 0), (107, 142, 35), (152, 251, 152), (70, 130, 180), (220, 20, 60), (255, 0, 0), (0, 0, 142),
    (0, 0, 70), (0, 60, 100), (0, 80, 100), (0, 0, 230), (119, 11, 32),
)  # fmt: skip
_IMAGE_END = "_leftImg8bit"
_HINT = (
    "Expected leftImg8bit/{train,val}/<city>/*_leftImg8bit.png and gtFine/{train,val}/<city>/*_gtFine_labelIds.png, as "
    "unpacked from leftImg8bit_trainvaltest.zip and gtFine_trainvaltest.zip into one folder."
)


def read_cityscapes(root: Path) -> SegmentationData:
    """Read Cityscapes from the folder that holds `leftImg8bit` and `gtFine`.

    `_labelTrainIds.png` files are used when every image has one; they already hold class ids. Otherwise the original
    `_labelIds.png` are used and `raw_to_id` translates them. `test` is listed when it was unpacked; its published masks
    are blank.
    """
    splits = ["train", "val"] + ["test"] * ((root / "leftImg8bit" / "test").is_dir())
    images = {split: _images(root, split) for split in splits}
    ready = all(_mask(root, image, "TrainIds").is_file() for found in images.values() for image in found)
    ending = "TrainIds" if ready else "Ids"
    return SegmentationData(
        root,
        tuple(ClassSpec(name, colour) for name, colour in zip(CITYSCAPES, _COLOURS, strict=True)),
        {split: _split(root, split, found, ending) for split, found in images.items()},
        {} if ready else {raw: index for index, raw in enumerate(RAW_IDS)},
    )


def legacy_cut(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Training and test images of some cities as the research code cuts them.

    It pools the training and validation cities, `data.splits["train"] + data.splits["val"]`. A step shuffles the images
    of its cities with NumPy's legacy generator, always seeded with 1, and trains on the first 80 %. The test shuffles
    the images of all cities so far in the same way and takes the last 20 %. Longer lists shuffle differently, so most
    of the final 695 test images were in some step's training images: 71.4 % in 11-5, 72.1 % in 11-1, 77.8 % in 1-1.
    """
    order = list(range(len(samples)))
    np.random.RandomState(1).shuffle(order)
    shuffled = [samples[index] for index in order]
    count = int(0.8 * len(shuffled))
    return shuffled[:count], shuffled[count:]


def _images(root: Path, split: str) -> list[Path]:
    folder = existing_folder(root / "leftImg8bit" / split, _HINT)
    found = sorted(folder.glob(f"*/*{_IMAGE_END}.png"))
    if not found:
        raise DataError(f"no <city>/*{_IMAGE_END}.png in {folder}", _HINT)
    return found


def _mask(root: Path, image: Path, ending: str) -> Path:
    city, name = image.parent, image.stem.removesuffix(_IMAGE_END)
    return root / "gtFine" / city.parent.name / city.name / f"{name}_gtFine_label{ending}.png"


def _split(root: Path, split: str, images: list[Path], ending: str) -> tuple[Sample, ...]:
    samples = (
        Sample(f"{split}/{image.parent.name}/{image.stem}", image, _mask(root, image, ending), image.parent.name)
        for image in images
    )
    return checked_split(samples, root / "leftImg8bit" / split, _HINT)

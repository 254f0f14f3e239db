"""PASCAL VOC 2012, with the augmented training list if it is installed.

The augmented set (SBD, 10 582 training images) comes as `SegmentationClassAug` and a list `train_aug.txt`, whose lines
are plain names or pairs such as `/JPEGImages/x.jpg /SegmentationClassAug/x.png`, depending on who packed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from rcil.core.palette import voc_colour
from rcil.core.reading import DataError, read_lines
from rcil.data.class_names import VOC
from rcil.data.datasets.samples import checked_split
from rcil.data.types import ClassSpec, Sample, SegmentationData

_AUGMENTED = ("train_aug.txt", "trainaug.txt")
_HINT = (
    "Expected VOCdevkit/VOC2012 with JPEGImages, SegmentationClass and ImageSets/Segmentation/{train,val}.txt, as "
    "unpacked from VOCtrainval_11-May-2012.tar; the augmented list needs SegmentationClassAug too."
)


def read_voc(root: Path) -> SegmentationData:
    """Read VOC 2012 from the folder that holds `VOCdevkit`, from `VOCdevkit`, or from `VOC2012`.

    `train` is the augmented list when there is one; `trainval` is there when its list is. Samples keep the order of
    their list, so that positions mean what they mean in published index files.
    """
    base = _year_folder(root)
    lists = base / "ImageSets" / "Segmentation"
    augmented = next((lists / name for name in _AUGMENTED if (lists / name).is_file()), None)
    if augmented:
        splits = {"train": _split(base, augmented, "SegmentationClassAug")}
    else:
        splits = {"train": _split(base, lists / "train.txt", "SegmentationClass")}
    splits["val"] = _split(base, lists / "val.txt", "SegmentationClass")
    if (lists / "trainval.txt").is_file():
        splits["trainval"] = _split(base, lists / "trainval.txt", "SegmentationClass")
    classes = tuple(ClassSpec(name, voc_colour(index)) for index, name in enumerate(VOC))
    return SegmentationData(base, classes, splits)


def _year_folder(root: Path) -> Path:
    candidates = (root / "VOCdevkit" / "VOC2012", root / "VOC2012", root)
    for folder in candidates:
        if (folder / "JPEGImages").is_dir():
            return folder
    looked = ", ".join(str(folder / "JPEGImages") for folder in candidates)
    raise DataError(f"no VOC 2012 below {root}: looked for {looked}", _HINT)


def _split(base: Path, listing: Path, masks: str) -> tuple[Sample, ...]:
    return checked_split(_samples(base, listing, masks), listing, _HINT)


def _samples(base: Path, listing: Path, masks: str) -> Iterator[Sample]:
    for number, line in enumerate(read_lines(listing, _HINT), 1):
        match [part.lstrip("/") for part in line.split()]:
            case []:
                continue
            case [name]:
                image, mask = f"JPEGImages/{name}.jpg", f"{masks}/{name}.png"
            case [image, mask]:
                pass
            case _:
                raise DataError(f"{listing}, line {number}: '{line}'", "Give a name, or an image path and a mask path.")
        parts = PurePosixPath(image).parts, PurePosixPath(mask).parts
        if () in parts or any(".." in path for path in parts):
            raise DataError(f"{listing}, line {number}: '{line}' is not a file of {base}", "Give paths below VOC2012.")
        name = PurePosixPath(image.removeprefix("JPEGImages/")).with_suffix("").as_posix()
        yield Sample(name, base / image, base / mask)

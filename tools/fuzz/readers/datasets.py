"""Folders of published datasets, and folders of classes for classification."""

from __future__ import annotations

import functools
from pathlib import Path
from random import Random

from rcil.classify.data import load_data
from rcil.classify.task import DataSection
from rcil.data.datasets import open_dataset
from rcil.data.scan import data_digest, present_classes
from tools.fuzz.cases import Case, Reader
from tools.fuzz.mutate import damaged
from tools.fuzz.seeds import damaged_image, jpeg, mask_png, misnamed, palette_png, png

LINES = (
    "a", "/JPEGImages/a.jpg /SegmentationClass/a.png", "/ a.png", "a b c", "../a", "/", "", "a/../a", "\0", "é", ".",
)  # fmt: skip


def readers() -> dict[str, Reader]:
    """The readers of this module."""
    datasets = {kind: Reader(kind, make, functools.partial(read_dataset, kind)) for kind, make in MAKERS.items()}
    return {**datasets, "classes": Reader("classes", make_classes, read_classes)}


def read_dataset(kind: str, folder: Path) -> None:
    """Read it as training does."""
    data = open_dataset(kind, folder)
    for split, samples in data.splits.items():
        present_classes(data, split)
        data_digest(samples)


def read_classes(folder: Path) -> None:
    """Read it as `rcil classify` does."""
    for evaluate in ("test", "held_out"):
        data = load_data(DataSection(kind="folder", root=folder, size=8, evaluate=evaluate))
        data.digest()
        for part in (data.train, data.test):
            for index in range(len(part.labels)):
                _ = part.images[index]


def make_voc(random: Random) -> Case:
    """VOC: one image in both lists, whose lines may be invalid."""
    lists = {name: "\n".join(_lines(random)).encode() for name in ("train", "val", "trainval")}
    if random.random() < 0.7:
        del lists["trainval"]
    files = {f"VOC2012/ImageSets/Segmentation/{name}.txt": text for name, text in lists.items()}
    files |= {"VOC2012/JPEGImages/a.jpg": jpeg(), "VOC2012/SegmentationClass/a.png": palette_png()}
    if random.random() < 0.3:
        files["VOC2012/ImageSets/Segmentation/train_aug.txt"] = "\n".join(_lines(random)).encode()
        files["VOC2012/SegmentationClassAug/a.png"] = mask_png()
    return _spoilt(random, files)


def make_ade(random: Random) -> Case:
    """ADE20K: one image per split, and the table of names."""
    rows = ["Idx\tRatio\tTrain\tVal\tName", *(f"{n}\t0\t0\t0\tname {n}, other" for n in range(1, 151))]
    files = {"objectInfo150.txt": "\n".join(rows).encode()} if random.random() < 0.5 else {}
    for split in ("training", "validation"):
        files |= {f"images/{split}/a.jpg": jpeg(), f"annotations/{split}/a.png": mask_png()}
    return _spoilt(random, files)


def make_cityscapes(random: Random) -> Case:
    """Cityscapes: one image of one city per split."""
    ending = random.choice(("Ids", "TrainIds"))
    files: Case = {}
    for split in ("train", "val"):
        files[f"leftImg8bit/{split}/ulm/a_leftImg8bit.png"] = png()
        files[f"gtFine/{split}/ulm/a_gtFine_label{ending}.png"] = mask_png()
    return _spoilt(random, files)


def make_classes(random: Random) -> Case:
    """Two classes with three images each."""
    names = [f"{split}/{c}/{n}.png" for split in ("train", "val") for c in ("cat", "dog") for n in range(3)]
    return _spoilt(random, {name: png() for name in random.sample(names, random.choice((0, 6, 12, 12, 12)))})


MAKERS = {"voc": make_voc, "ade": make_ade, "cityscapes": make_cityscapes}


def _lines(random: Random) -> list[str]:
    return ["a"] if random.random() < 0.6 else [random.choice(LINES) for _ in range(random.choice((0, 1, 2, 5)))]


def _spoilt(random: Random, files: Case) -> Case:
    """Make up to two files invalid, missing or misnamed."""
    for _ in range(random.choice((0, 1, 1, 2)) if files else 0):
        name = random.choice(list(files))
        match random.randrange(8):
            case 0:
                del files[name]
            case 1 | 2:
                files = misnamed(random, files, name)
            case _ if name.endswith((".png", ".jpg")):
                files[name] = damaged_image(random, files[name])
            case _:
                files[name] = damaged(random, files[name])
        if not files:
            break
    return files

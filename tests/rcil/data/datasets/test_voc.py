import struct
import zlib

import cv2
import numpy as np
import pytest

from rcil.data.datasets import open_dataset
from rcil.data.datasets.voc import read_voc
from rcil.data.errors import DataError
from rcil.data.masks import read_mask, write_mask
from rcil.errors import ConfigError


def write_palette(path, values):
    """An 8-bit palette PNG as VOC ships them."""
    height, width = values.shape
    lines = b"".join(b"\0" + row.astype(np.uint8).tobytes() for row in values)
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0),
        b"PLTE": bytes(range(256)) * 3,
        b"IDAT": zlib.compress(lines),
        b"IEND": b"",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + b"".join(
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
            for kind, body in chunks.items()
        )
    )


@pytest.fixture
def year(tmp_path):
    """VOC2012 with two training images, one for validation and one that only the augmented list knows."""
    year = tmp_path / "VOCdevkit" / "VOC2012"
    (year / "JPEGImages").mkdir(parents=True)
    lists = year / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    for index, name in enumerate(["2007_000032", "2007_000039", "2007_000033", "2008_000002"]):
        cv2.imwrite(str(year / "JPEGImages" / f"{name}.jpg"), np.zeros((3, 4, 3), np.uint8))
        if name != "2008_000002":
            write_palette(year / "SegmentationClass" / f"{name}.png", np.full((3, 4), index + 1))
    (lists / "train.txt").write_text("2007_000039\n2007_000032\n")
    (lists / "val.txt").write_text("2007_000033\n")
    return year


def names(samples):
    return [sample.name for sample in samples]


@pytest.mark.parametrize("root", ["", "VOCdevkit", "VOCdevkit/VOC2012"])
def test_the_three_roots(tmp_path, year, root):
    data = open_dataset("voc", tmp_path / root)
    assert data.root == year
    assert names(data.splits["train"]) == ["2007_000032", "2007_000039"]
    assert names(data.splits["val"]) == ["2007_000033"]
    assert data.splits.keys() == {"train", "val"}
    assert len(data.classes) == 21 and data.names[15] == "person" and data.classes[15].colour == (192, 128, 128)
    assert data.raw_to_id == {}


def test_masks_hold_class_ids(year):
    sample = read_voc(year).splits["val"][0]
    assert (read_mask(sample.mask) == 3).all()


def test_trainval_when_listed(year):
    (year / "ImageSets/Segmentation/trainval.txt").write_text("2007_000033\n2007_000039\n2007_000032\n")
    assert len(read_voc(year).splits["trainval"]) == 3


@pytest.mark.parametrize("line", ["{}", "/JPEGImages/{}.jpg /SegmentationClassAug/{}.png"])
@pytest.mark.parametrize("file", ["train_aug.txt", "trainaug.txt"])
def test_the_augmented_list_wins(year, line, file):
    listed = ["2008_000002", "2007_000032"]
    for name in listed:
        write_mask(year / "SegmentationClassAug" / f"{name}.png", np.full((3, 4), 20, np.uint8))
    (year / "ImageSets" / "Segmentation" / file).write_text("".join(line.replace("{}", n) + "\n" for n in listed))
    train = read_voc(year).splits["train"]
    assert names(train) == ["2007_000032", "2008_000002"]
    assert {sample.mask.parent.name for sample in train} == {"SegmentationClassAug"}
    assert (read_mask(train[0].mask) == 20).all()


def test_missing_masks_are_counted_and_named(year):
    (year / "ImageSets/Segmentation/train_aug.txt").write_text("2007_000032\n2008_000002\n")
    with pytest.raises(DataError, match=r"2 files .*train_aug.txt.* first .*SegmentationClassAug/2007_000032.png"):
        read_voc(year)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no images"),
        ("a b c\n", "line 1: 'a b c'"),
        ("\n../../secret\n", "line 2: .* leaves"),
        ("/JPEGImages/../../x.jpg /SegmentationClass/x.png", "line 1: .* leaves"),
        ("2007_000032\n2007_000032\n", "names '2007_000032' 2 times"),
    ],
)
def test_bad_lists(year, text, message):
    (year / "ImageSets/Segmentation/train.txt").write_text(text)
    with pytest.raises(DataError, match=rf"train\.txt.*{message}"):
        read_voc(year)


def test_a_list_that_is_no_text(year):
    (year / "ImageSets/Segmentation/train.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not a UTF-8"):
        read_voc(year)


def test_missing_list_and_missing_dataset(year, tmp_path):
    (year / "ImageSets/Segmentation/val.txt").unlink()
    with pytest.raises(DataError, match=r"val\.txt: No such file.*\n.*VOCtrainval"):
        read_voc(year)
    with pytest.raises(DataError, match=r"no VOC 2012 below .*VOCdevkit/VOC2012/JPEGImages"):
        read_voc(tmp_path / "empty")


def test_a_misspelt_kind(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'cityscapes'"):
        open_dataset("cityscape", tmp_path)

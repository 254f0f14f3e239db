import cv2
import numpy as np
import pytest

from rcil.data.datasets import open_dataset
from rcil.data.datasets.cityscapes import CITIES, read_cityscapes
from rcil.data.errors import DataError
from rcil.data.masks import read_mask, write_mask

FRAMES = {"train": ["zurich_000001_000019", "aachen_000000_000019"], "val": ["lindau_000000_000019"]}
RAW = {7: 0, 8: 1, 11: 2, 12: 3, 13: 4, 17: 5, 19: 6, 20: 7, 21: 8, 22: 9, 23: 10, 24: 11, 25: 12, 26: 13, 27: 14}
RAW |= {28: 15, 31: 16, 32: 17, 33: 18}


def frame(root, split, name, ending="Ids", value=26):
    city = name.split("_")[0]
    image = root / "leftImg8bit" / split / city / f"{name}_leftImg8bit.png"
    image.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(image), np.zeros((2, 2, 3), np.uint8))
    mask = root / "gtFine" / split / city / f"{name}_gtFine_label{ending}.png"
    write_mask(mask, np.full((2, 2), value, np.uint8))


@pytest.fixture
def root(tmp_path):
    for split, names in FRAMES.items():
        for name in names:
            frame(tmp_path, split, name)
    return tmp_path


def test_layout(root):
    data = open_dataset("cityscapes", root)
    train = data.splits["train"]
    assert [s.name for s in train] == [
        "train/aachen/aachen_000000_000019_leftImg8bit",
        "train/zurich/zurich_000001_000019_leftImg8bit",
    ]
    assert [s.domain for s in train] == ["aachen", "zurich"]
    assert [s.domain for s in data.splits["val"]] == ["lindau"]
    assert data.splits.keys() == {"train", "val"}
    assert data.raw_to_id == RAW
    assert read_mask(train[0].mask)[0, 0] == 26 and data.names[data.raw_to_id[26]] == "car"
    assert len(data.classes) == 19 and data.classes[0].colour == (128, 64, 128)


def test_train_ids_are_used_when_complete(root):
    for split, names in FRAMES.items():
        for name in names:
            frame(root, split, name, "TrainIds", 13)
    data = read_cityscapes(root)
    assert data.raw_to_id == {}
    assert data.splits["val"][0].mask.name == "lindau_000000_000019_gtFine_labelTrainIds.png"
    (root / "gtFine/val/lindau/lindau_000000_000019_gtFine_labelTrainIds.png").unlink()
    data = read_cityscapes(root)
    assert data.raw_to_id == RAW
    assert data.splits["train"][0].mask.name == "aachen_000000_000019_gtFine_labelIds.png"


def test_the_test_split_is_optional(root):
    frame(root, "test", "berlin_000000_000019", value=3)
    assert [s.domain for s in read_cityscapes(root).splits["test"]] == ["berlin"]


def test_missing_parts(root, tmp_path):
    (root / "gtFine/val/lindau/lindau_000000_000019_gtFine_labelIds.png").unlink()
    with pytest.raises(DataError, match=r"1 files .*first .*lindau_000000_000019_gtFine_labelIds\.png\n.*gtFine_train"):
        read_cityscapes(root)
    (root / "leftImg8bit/val/lindau/lindau_000000_000019_leftImg8bit.png").unlink()
    with pytest.raises(DataError, match=r"no <city>/\*_leftImg8bit\.png in .*val"):
        read_cityscapes(root)
    with pytest.raises(DataError, match=r"no folder at .*leftImg8bit/train"):
        read_cityscapes(tmp_path / "nowhere")


def test_city_order():
    assert len(set(CITIES)) == 21
    assert (CITIES[0], CITIES[9], CITIES[17], CITIES[20]) == ("aachen", "bochum", "zurich", "munster")

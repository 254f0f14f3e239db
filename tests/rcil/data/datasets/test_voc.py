import hashlib
import json
import os
import struct
import zlib
from itertools import combinations
from pathlib import Path

import cv2
import numpy as np
import pytest
from layouts import stripes, write_voc

from rcil.core.errors import ConfigError
from rcil.core.masks import read_mask, write_mask
from rcil.core.reading import DataError
from rcil.data.datasets import open_dataset
from rcil.data.datasets.voc import read_voc
from rcil.data.protocol import ClassStep, class_steps, select, split_order
from rcil.data.scan import present_classes

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "voc_splits.json").read_text())
PRESENCE = Path(__file__).parents[3] / "golden" / "voc_presence.npz"
FIRST = {"15-5s": 15, "10-1": 10}
"""Classes of step 0 of the tasks that the research code has index files of; later steps have one."""


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
    assert names(data.splits["train"]) == ["2007_000039", "2007_000032"]
    assert names(data.splits["val"]) == ["2007_000033"]
    assert data.splits.keys() == {"train", "val"}
    assert len(data.classes) == 21 and data.names[15] == "person" and data.classes[15].colour == (192, 128, 128)
    assert data.raw_to_id == {}


def test_masks_hold_class_ids(year):
    sample = read_voc(year).splits["val"][0]
    assert (read_mask(sample.mask) == 3).all()


def test_trainval_when_listed(year):
    (year / "ImageSets/Segmentation/trainval.txt").write_text("2007_000033\n2007_000039\n2007_000032\n")
    assert names(read_voc(year).splits["trainval"]) == ["2007_000033", "2007_000039", "2007_000032"]


@pytest.mark.parametrize("line", ["{}", "/JPEGImages/{}.jpg /SegmentationClassAug/{}.png"])
@pytest.mark.parametrize("file", ["train_aug.txt", "trainaug.txt"])
def test_the_augmented_list_wins(year, line, file):
    listed = ["2008_000002", "2007_000032"]
    for name in listed:
        write_mask(year / "SegmentationClassAug" / f"{name}.png", np.full((3, 4), 20, np.uint8))
    (year / "ImageSets" / "Segmentation" / file).write_text("".join(line.replace("{}", n) + "\n" for n in listed))
    train = read_voc(year).splits["train"]
    assert names(train) == listed
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
        ("\n../../secret\n", "line 2: .* is not a file of"),
        ("\n/ a.png\n", "line 2: .* is not a file of"),
        ("/JPEGImages/../../x.jpg /SegmentationClass/x.png", "line 1: .* is not a file of"),
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


def positions(present, step, setting="overlapped"):
    """What an index file of the research code holds: positions in the list of the images of a step."""
    place = {name: index for index, name in enumerate(present)}
    return [place[name] for name in select(step, present, setting)]


def digest(chosen):
    return hashlib.sha256(np.array(chosen, "<i8").tobytes()).hexdigest()


def steps_of(task):
    return class_steps(split_order(range(21), FIRST[task], 1))


def index_files(presence, task):
    """[count, hash] of the positions of every step of a task, as `GOLDEN` has them."""
    setting = "overlapped" if task.endswith("-ov") else "disjoint"
    found = {split: [] for split in GOLDEN["index_files"][task]}
    for step in steps_of(task.removesuffix("-ov")):
        chosen = {
            "train": positions(presence["train"], step, setting),
            "val": positions(presence["val"], step),
            "test_on_val": positions(presence["val"], ClassStep(step.index, step.seen, step.seen)),
        }
        for split, counted in found.items():
            counted.append([len(chosen[split]), digest(chosen[split])])
    return found


@pytest.fixture(scope="module")
def presence():
    """The classes of every image of PASCAL VOC 2012, without the images: bit c stands for class c."""
    with np.load(PRESENCE) as stored:
        return {
            split: {
                str(i): frozenset(c for c in range(21) if bits >> c & 1)
                for i, bits in enumerate(stored[split].tolist())
            }
            for split in ("train", "val")
        }


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Classes of 200 images of up to three, under names that the list does not have in order."""
    rng = np.random.default_rng(0)
    masks = {
        f"2007_{number:06d}": stripes(0, *rng.choice(range(1, 21), rng.integers(1, 4), replace=False), 255, side=10)
        for number in rng.permutation(200)
    }
    root = tmp_path_factory.mktemp("voc")
    write_voc(root, {"train": masks, "val": dict(list(masks.items())[:1])})
    data = read_voc(root)
    assert names(data.splits["train"]) == list(masks) != sorted(masks)
    return present_classes(data, "train")


class TestIndexFiles:
    @pytest.mark.parametrize("task", FIRST)
    def test_relations_of_the_official_ones(self, many, task):
        relations = GOLDEN["relations"]
        overlapped, disjoint = (
            [positions(many, step, setting) for step in steps_of(task)] for setting in ("overlapped", "disjoint")
        )
        assert len(overlapped) == relations[task]["steps"] == len(GOLDEN["index_files"][task]["train"])
        for found, known in ((overlapped, relations[f"{task}-ov"]), (disjoint, relations[task])):
            assert all(chosen == sorted(set(chosen)) for chosen in found)
            assert known["union_of_train"] == 10582 and set().union(*found) == set(range(200))
            assert (sum(map(len, found)) == 200) == (known["sum_of_train"] == 10582)
            apart = all(not set(a) & set(b) for a, b in combinations(found, 2))
            assert apart == known["train_steps_pairwise_disjoint"]
        subset = [set(d) <= set(o) for d, o in zip(disjoint, overlapped, strict=True)]
        assert subset == relations[f"{task} vs {task}-ov"]["disjoint_train_subset_of_overlap_train_per_step"]

    def test_a_class_has_the_same_images_whenever_it_comes(self, many):
        late, early = ([positions(many, step) for step in steps_of(task)] for task in FIRST)
        equal = [a == b for a, b in zip(late[1:], early[6:], strict=True)]
        assert equal == GOLDEN["relations"]["15-5s-ov steps 1-5 equal 10-1-ov steps 6-10"]

    @pytest.mark.parametrize("task", GOLDEN["index_files"])
    def test_every_step_has_the_official_images(self, presence, task):
        assert index_files(presence, task) == GOLDEN["index_files"][task]

    @pytest.mark.skipif("RCIL_VOC" not in os.environ, reason="RCIL_VOC names no folder with VOC 2012, augmented")
    def test_the_masks_hold_the_recorded_classes(self, presence):
        data = read_voc(Path(os.environ["RCIL_VOC"]))
        train, val = ([ids - {255} for ids in present_classes(data, split).values()] for split in ("train", "val"))
        assert train == list(presence["train"].values())
        assert val == list(presence["val"].values())

    def test_hashes_are_read_as_they_were_written(self):
        """The last test lists name every image."""
        assert [1449, digest(range(1449))] == GOLDEN["index_files"]["10-1"]["test_on_val"][-1]


def test_missing_list_and_missing_dataset(year, tmp_path):
    (year / "ImageSets/Segmentation/val.txt").unlink()
    with pytest.raises(DataError, match=r"val\.txt: No such file.*\n.*VOCtrainval"):
        read_voc(year)
    with pytest.raises(DataError, match=r"no VOC 2012 below .*VOCdevkit/VOC2012/JPEGImages"):
        read_voc(tmp_path / "empty")


def test_a_misspelt_kind(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'cityscapes'"):
        open_dataset("cityscape", tmp_path)

import shutil

import cv2
import numpy as np
import pytest

from rcil.core.errors import ConfigError
from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.converters import convert
from rcil.data.converters.yolo import yaml_names


def add(root, place, labels=None):
    path = root / "images" / f"{place}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.zeros((10, 20, 3), np.uint8))
    if labels is not None:
        text = root / "labels" / f"{place}.txt"
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text(labels)


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "yolo"
    add(root, "train/a", "1 0.26 0.1 0.51 0.1 0.51 0.39 0.26 0.39\n\n0 0 0 1 0 1 1 0 1\n")
    (root / "data.yaml").write_text("path: .\ntrain: images/train\nnames:\n  0: post\n  1: wire\n")
    return root


def test_outlines_are_scaled_and_small_ones_stay_visible(root, tmp_path):
    add(root, "val/cam/b")
    summary = convert("yolo", root, tmp_path / "site")
    assert summary.classes == ("background", "post", "wire")
    assert summary.images == {"train": 1, "val": 1} and summary.background_only == 1 and summary.skipped == {}
    expected = np.ones((10, 20), np.uint8)
    expected[1:4, 5:11] = 2  # x: floor(5.2) to floor(10.2), y: floor(1.0) to floor(3.9)
    np.testing.assert_array_equal(read_mask(tmp_path / "site/masks/train/a.png"), expected)
    assert not read_mask(tmp_path / "site/masks/val/cam/b.png").any()


def test_names_from_a_text_file_and_what_is_left_out(root, tmp_path):
    (root / "data.yaml").unlink()
    (root / "classes.txt").write_text("background\nwire\n")
    (root / "labels" / "train" / "lost.txt").write_text("")
    (root / "images" / "train" / "a.bmp").write_bytes(b"BM")
    summary = convert("yolo", root, tmp_path / "site")
    assert summary.classes == ("background", "wire")
    assert summary.skipped == {"label files without an image": 1, "files that are neither JPEG nor PNG": 1}
    assert np.unique(read_mask(tmp_path / "site/masks/train/a.png")).tolist() == [0, 1]


def test_layouts_of_other_tools(root, tmp_path):
    """Roboflow has the split on top and calls it valid; Label Studio has no splits."""
    flat = tmp_path / "flat"
    for kind in ("images", "labels"):
        (root / "valid").mkdir(exist_ok=True)
        (root / kind / "train").rename(root / "valid" / kind)
        (root / kind).rmdir()
        shutil.copytree(root / "valid" / kind, flat / kind)
    shutil.copy(root / "data.yaml", flat)
    assert convert("auto", root, tmp_path / "one").images == {"val": 1}
    assert convert("auto", flat, tmp_path / "two", split="test").images == {"test": 1}
    one, two = (read_mask(tmp_path / place) for place in ("one/masks/val/a.png", "two/masks/test/a.png"))
    assert np.unique(one).tolist() == [1, 2] and np.array_equal(one, two)
    with pytest.raises(ConfigError, match="record their splits"):
        convert("yolo", root, tmp_path / "three", split="val")


def test_images_elsewhere(root, tmp_path):
    (root / "images").rename(tmp_path / "photos")
    assert convert("yolo", root, tmp_path / "site", images=tmp_path / "photos").images == {"train": 1}


@pytest.mark.parametrize(
    "text",
    [
        "names: [a b, 'c, d', \"e#f\"]  # three",
        "nc: 3\nnames: [\n  a b, # first\n  'c, d',\n  \"e#f\",\n]\n",
        "names:\n- a b\n- 'c, d'\n\n# note\n- e#f # end\nnc: 3\n",
        "names:  # by number\n  0: a b\n  2: e#f\n  1: 'c, d'\ntrain: x\n",
        "names: {0: a b, 1: 'c, d', 2: \"e#f\"}",
        "'names' : [a b, 'c, d', e#f]\nroboflow:\n  0: x\n",
    ],
)
def test_ways_to_write_names(tmp_path, text):
    assert yaml_names(text, tmp_path) == ["a b", "c, d", "e#f"]


def test_apostrophes_and_padded_names(root, tmp_path):
    (root / "data.yaml").write_text("names: [driver's seat, cat's, ' dog''s, '] # it's")
    assert convert("yolo", root, tmp_path / "site").classes == ("background", "driver's seat", "cat's", "dog's,")


def test_an_empty_line_among_the_names_would_shift_them(root, tmp_path):
    (root / "data.yaml").unlink()
    (root / "classes.txt").write_text("post\n\nwire\n")
    with pytest.raises(DataError, match="class name '' is empty"):
        convert("yolo", root, tmp_path / "site")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nc: 3", "no 'names:'"),
        ("names: [a, b", "cannot be read"),
        ("names: some", "neither a list nor a mapping"),
        ("names:\nnc: 2", "neither a list nor a mapping"),
        ("names: []", "no 'names:'"),
        ("names: ['a]", "cannot be read"),
        ("names:\n- id: 1", "more than names"),
        ("names: {0: [a]}", "more than names"),
        ("names: {0: a, 2: b}", "not numbered 0 to 1"),
        ("names: {0: a, 0: b}", "not numbered 0 to 1"),
        ("names:\n- a\n-", "class name '' is empty"),
        ('names: ["a\\nb"]', "is empty, broken or repeated"),
    ],
)
def test_names_that_cannot_be_used(root, tmp_path, text, message):
    (root / "data.yaml").write_text(text)
    with pytest.raises(DataError, match=message):
        convert("yolo", root, tmp_path / "site")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2 0 0 1 0 1 1", "class '2' is not one of 0 to 1"),
        ("-1 0 0 1 0 1 1", "class '-1'"),
        ("x 0 0 1 0 1 1", "class 'x'"),
        ("9" * 5000 + " 0 0 1 0 1 1", "class '9+' is not one"),
        ("0 0.5 0.5 1 1", "a box, not an outline"),
        ("0 0 0 1 0 1 1 1", "7 coordinates"),
        ("0 0 0 1 0 1 one", "not a number"),
        ("0 0 0 19 0 19 9", "fractions from 0 to 1"),
        ("0 0 0 1 0 1 nan", "fractions from 0 to 1"),
    ],
)
def test_bad_lines(root, tmp_path, line, message):
    add(root, "train/a", f"\n{line}\n")
    with pytest.raises(DataError, match=rf"train/a\.txt, line 2: .*{message}"):
        convert("yolo", root, tmp_path / "site")


def test_missing_parts(root, tmp_path):
    with pytest.raises(ConfigError, match="record their splits"):
        convert("yolo", root, tmp_path / "site", split="val")
    (root / "labels/train/a.txt").rename(root / "labels/train/b.txt")
    with pytest.raises(DataError, match="no label file in"):
        convert("yolo", root, tmp_path / "site")
    (root / "images/train/a.jpg").unlink()
    with pytest.raises(DataError, match="no JPEG or PNG images"):
        convert("yolo", root, tmp_path / "site")
    (root / "data.yaml").unlink()
    with pytest.raises(DataError, match=r"classes\.txt: No such file"):
        convert("yolo", root, tmp_path / "site")

"""What all formats share, shown with labelme, the shortest of them."""

import json

import cv2
import numpy as np
import pytest

from rcil.core.errors import ConfigError
from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.converters import FORMATS, convert
from rcil.data.converters.annotations import class_table, safe_path
from rcil.data.site import read_site

SQUARE = {"label": "post", "shape_type": "polygon", "points": [[1, 1], [3, 1], [3, 3], [1, 3]]}


def annotate(folder, stem, suffix=".jpg", shapes=(SQUARE,)):
    folder.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(folder / f"{stem}{suffix}"), np.full((5, 6, 3), 90, np.uint8))
    (folder / f"{stem}.json").write_text(json.dumps({"shapes": list(shapes), "imagePath": f"{stem}{suffix}"}))


def tree(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_whole_site_folder(tmp_path):
    source, target = tmp_path / "in", tmp_path / "new" / "site"
    annotate(source, "a")
    annotate(source, "b", ".png", shapes=[])
    summary = convert("labelme", source, target)
    assert tree(target) == [
        "classes.txt",
        "images/train/a.jpg",
        "images/train/b.png",
        "masks/train/a.png",
        "masks/train/b.png",
    ]
    assert (target / "classes.txt").read_text() == "background\npost\n"
    assert (target / "images/train/a.jpg").read_bytes() == (source / "a.jpg").read_bytes()
    expected = np.zeros((5, 6), np.uint8)
    expected[1:4, 1:4] = 1
    np.testing.assert_array_equal(read_mask(target / "masks/train/a.png"), expected)
    assert summary.images == {"train": 2} and summary.background_only == 1 and summary.skipped == {}
    assert summary.classes == ("background", "post") and summary.target == target
    assert list(target.parent.iterdir()) == [target]


def test_an_empty_target_is_taken_and_a_used_one_refused(tmp_path):
    annotate(tmp_path / "in", "a")
    target = tmp_path / "site"
    target.mkdir()
    convert("labelme", tmp_path / "in", target)
    before = tree(target)
    with pytest.raises(DataError, match="site is in use"):
        convert("labelme", tmp_path / "in", target)
    with pytest.raises(DataError, match=r"classes\.txt is in use"):
        convert("labelme", tmp_path / "in", target / "classes.txt")
    assert tree(target) == before


@pytest.mark.parametrize("damage", [b"", b"no image"])
def test_an_error_half_way_leaves_nothing(tmp_path, damage):
    annotate(tmp_path / "in", "a")
    annotate(tmp_path / "in", "b")
    (tmp_path / "in" / "b.jpg").write_bytes(damage)
    with pytest.raises(DataError, match=r"b\.jpg is not an image that can be decoded"):
        convert("labelme", tmp_path / "in", tmp_path / "site")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_an_interrupt_leaves_nothing(tmp_path, monkeypatch):
    annotate(tmp_path / "in", "a")

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("rcil.data.converters.write_mask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert("labelme", tmp_path / "in", tmp_path / "site")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_the_same_name_in_two_folders(tmp_path):
    source = tmp_path / "in"
    for folder in ("north", "south"):
        annotate(source / folder, "1")
    annotate(source / "south", "2")
    convert("labelme", source, tmp_path / "site")
    assert tree(tmp_path / "site" / "masks") == ["train/north/1.png", "train/south/1.png", "train/south/2.png"]


def test_names_that_cannot_be_told_apart(tmp_path):
    source = tmp_path / "in"
    annotate(source, "a")
    cv2.imwrite(str(source / "a.png"), np.zeros((5, 6, 3), np.uint8))
    (source / "other.json").write_text(json.dumps({"shapes": [SQUARE], "imagePath": "a.png"}))
    with pytest.raises(DataError, match=r"a\.jpg and a\.png would both be called 'a'"):
        convert("labelme", source, tmp_path / "site")


def test_odd_characters_are_replaced(tmp_path):
    annotate(tmp_path / "in", "a*b?é")
    convert("labelme", tmp_path / "in", tmp_path / "site", split="day/one")
    assert tree(tmp_path / "site" / "masks") == ["day_one/a_b_é.png"]


def test_a_target_that_cannot_be_written(tmp_path):
    annotate(tmp_path / "in", "a")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write"):
        convert("labelme", tmp_path / "in", tmp_path / "file" / "site")


def test_a_source_that_cannot_be_read(tmp_path, monkeypatch):
    def forbidden(*args):
        raise PermissionError(13, "Permission denied", "secret")

    monkeypatch.setitem(FORMATS, "labelme", forbidden)
    with pytest.raises(DataError, match="cannot read secret: Permission denied"):
        convert("labelme", tmp_path, tmp_path / "site")


def test_unknown_kind_and_source(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'labelme'"):
        convert("labelmi", tmp_path, tmp_path / "site")
    with pytest.raises(DataError, match="no annotations at"):
        convert("labelme", tmp_path / "none", tmp_path / "site")


@pytest.mark.parametrize(
    "text", ["../a.jpg", "b/../../a.jpg", "/etc/a.jpg", "C:\\a.jpg", "..\\a.jpg", "", ".", "a\0.jpg"]
)
def test_paths_that_leave_the_folder(tmp_path, text):
    with pytest.raises(DataError, match=r"x\.json names the image"):
        safe_path(text, tmp_path / "x.json")


def test_special_class_names(tmp_path):
    classes, values = class_table(["post", "_background_", "Void", " wire "], tmp_path)
    assert classes == ("background", "post", "wire")
    assert values == {"_background_": 0, "Void": 255, "post": 1, "wire": 2}


@pytest.mark.parametrize("names", [[], ["background"], ["a", "a"], ["a", ""], ["a\nb"], [str(i) for i in range(255)]])
def test_bad_class_names(tmp_path, names):
    with pytest.raises(DataError, match="class"):
        class_table(names, tmp_path)


def test_what_a_conversion_writes_is_a_site_folder(tmp_path):
    """The two halves of the chain agree: a converted export passes the site reader."""
    (tmp_path / "photos").mkdir()
    cv2.imwrite(str(tmp_path / "photos" / "a.jpg"), np.zeros((20, 30, 3), np.uint8))
    document = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 30, "height": 20}],
        "categories": [{"id": 7, "name": "forklift"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 7, "segmentation": [[2, 2, 12, 2, 12, 12, 2, 12]]}],
    }
    (tmp_path / "a.json").write_text(json.dumps(document))
    convert("coco", tmp_path / "a.json", tmp_path / "site", images=tmp_path / "photos")
    data = read_site(tmp_path / "site")
    assert data.names == ("background", "forklift")
    assert [s.name for s in data.splits["train"]] == ["a"]

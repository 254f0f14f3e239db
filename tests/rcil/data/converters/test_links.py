"""Links and names in an export that lead out of it."""

import json

import cv2
import numpy as np
import pytest

from rcil.core.reading import DataError
from rcil.data.converters import convert

PICTURE = np.full((8, 8, 3), 90, np.uint8)


def put(path, pixels=PICTURE):
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), pixels)
    return path


@pytest.fixture
def outside(tmp_path):
    return put(tmp_path / "elsewhere" / "private.png")


def link(path, target):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def coco(root, outside):
    content = {"images": [{"id": 1, "file_name": "a.png"}], "annotations": [], "categories": [{"id": 1, "name": "x"}]}
    root.mkdir()
    (root / "one.json").write_text(json.dumps(content))
    link(root / "images" / "a.png", outside)
    return root / "one.json"


def labelme(root, outside):
    root.mkdir()
    shape = {"label": "x", "points": [[0, 0], [4, 0], [4, 4]], "shape_type": "polygon"}
    (root / "a.json").write_text(json.dumps({"shapes": [shape], "imagePath": "a.png"}))
    link(root / "a.png", outside)
    return root


def yolo(root, outside):
    (root / "labels" / "train").mkdir(parents=True)
    (root / "labels" / "train" / "a.txt").write_text("0 0 0 1 0 1 1\n")
    (root / "classes.txt").write_text("x\n")
    link(root / "images" / "train" / "a.png", outside)
    return root


def yolo_labels(root, outside):
    put(root / "images" / "train" / "a.png")
    (root / "classes.txt").write_text("x\n")
    link(root / "labels" / "train" / "a.txt", outside)
    return root


def cvat(root, outside):
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("a\n")
    (root / "labelmap.txt").write_text("background:0,0,0::\nx:90,90,90::\n")
    put(root / "SegmentationClass" / "a.png")
    link(root / "JPEGImages" / "a.png", outside)
    return root


def cvat_masks(root, outside):
    cvat(root, outside)
    (root / "JPEGImages" / "a.png").unlink()
    put(root / "JPEGImages" / "a.png")
    (root / "SegmentationClass" / "a.png").unlink()
    link(root / "SegmentationClass" / "a.png", outside)
    return root


@pytest.mark.parametrize("make", [coco, labelme, yolo, yolo_labels, cvat, cvat_masks], ids=lambda make: make.__name__)
def test_a_link_out_of_the_export_is_refused(tmp_path, outside, make):
    source = make(tmp_path / "export", outside)
    with pytest.raises(DataError, match="a link that leads outside"):
        convert(make.__name__.partition("_")[0], source, tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_links_that_stay_and_linked_folders_are_fine(tmp_path, outside):
    source = yolo(tmp_path / "export", put(tmp_path / "export" / "images" / "train" / "b.png"))
    convert("yolo", source, tmp_path / "site")
    moved = tmp_path / "moved"
    (source / "images").rename(moved)
    (source / "images").symlink_to(moved)
    convert("yolo", source, tmp_path / "again")
    assert (tmp_path / "again" / "images" / "train" / "a.png").is_file()


@pytest.mark.parametrize("name", ["../elsewhere/private.png", "/etc/hostname", "..\\elsewhere\\private.png"])
@pytest.mark.parametrize("make", [coco, labelme], ids=lambda make: make.__name__)
def test_names_that_leave_the_export_are_refused(tmp_path, outside, make, name):
    source = make(tmp_path / "export", outside)
    file = source if source.is_file() else source / "a.json"
    file.write_text(file.read_text().replace('"a.png"', json.dumps(name)))
    with pytest.raises(DataError, match="not a path below"):
        convert(make.__name__, source, tmp_path / "site")

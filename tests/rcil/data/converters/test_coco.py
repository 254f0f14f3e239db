import json
import shutil

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcil.core.errors import ConfigError
from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.converters import coco, convert
from rcil.data.converters.coco import decode_counts

CATEGORIES = [{"id": 90, "name": "wire"}, {"id": 7, "name": "post"}]  # post is class 1, wire class 2
BIG = [0, 0, 4.9, 0, 4.9, 3.2, 0, 3.2]  # floor: pixels x 0-4, y 0-3
SMALL = [1, 1, 2, 1, 2, 2, 1, 2]


def encode_counts(counts):
    """pycocotools' rleToString, for the way back."""
    text = ""
    for index, count in enumerate(counts):
        value = count - counts[index - 2] if index > 2 else count
        while True:
            bits = value & 31
            value >>= 5
            more = value != (-1 if bits & 16 else 0)
            text += chr((bits | 32 if more else bits) + 48)
            if not more:
                break
    return text


def content(*annotations, images=None, categories=CATEGORIES):
    images = images or [{"id": 5, "file_name": "a.jpg", "width": 6, "height": 5}]
    return {"images": images, "annotations": list(annotations), "categories": categories}


def region(segmentation, category=7, **more):
    return {"id": 1, "image_id": 5, "category_id": category, "segmentation": segmentation, **more}


@pytest.fixture
def root(tmp_path):
    for name in ("a.jpg", "sub/a.jpg"):
        path = tmp_path / "coco" / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), np.zeros((5, 6, 3), np.uint8))
    (tmp_path / "coco" / "annotations").mkdir()
    return tmp_path / "coco"


def write(root, data, name="instances_train.json"):
    path = root / "annotations" / name
    path.write_text(json.dumps(data))
    return path


def masked(root, *annotations):
    convert("coco", write(root, content(*annotations)), root / "site")
    return read_mask(root / "site" / "masks" / "train" / "a.png")


@pytest.mark.parametrize("first", [True, False])
def test_small_objects_stay_visible(root, first):
    pair = [region([BIG], 7), region([SMALL], 90)]
    expected = np.zeros((5, 6), np.uint8)
    expected[0:4, 0:5] = 1
    expected[1:3, 1:3] = 2
    np.testing.assert_array_equal(masked(root, *(pair if first else pair[::-1])), expected)


def test_overlapping_polygons_of_one_object_are_joined(root):
    expected = np.zeros((5, 6), np.uint8)
    expected[0:4, 0:5] = 1
    np.testing.assert_array_equal(masked(root, region([BIG, SMALL])), expected)


@pytest.mark.parametrize("compressed", [False, True])
def test_run_lengths_go_down_the_columns(root, compressed):
    counts = [6, 2, 3, 1, 18]
    rle = {"size": [5, 6], "counts": encode_counts(counts) if compressed else counts}
    expected = np.zeros((5, 6), np.uint8)
    expected[1:3, 1] = 1  # pixels 6 and 7
    expected[1, 2] = 1  # pixel 11
    np.testing.assert_array_equal(masked(root, region(rle)), expected)


def test_crowds_are_ignored_below_everything(root):
    crowd = region({"size": [5, 6], "counts": [0, 5, 25]}, 90, iscrowd=1)
    mask = masked(root, region([BIG]), crowd)
    assert mask[:, 0].tolist() == [1, 1, 1, 1, 255]


def test_known_compressed_counts():
    # 6 -> '6'; 2 -> '2'; 3 -> '3'; 1-2=-1 -> 31 -> 'O'; 18-3=15 -> '?'
    assert decode_counts("623O?", "x") == [6, 2, 3, 1, 18]
    # 100 = 3*32+4 -> 4|32 -> 'T', then 3 -> '3'; 20 has its fifth bit set and needs a second group: 20|32 -> 'd', '0'
    assert decode_counts("T3d0", "x") == [100, 20]


@given(st.lists(st.integers(0, 10**6), max_size=8))
@settings(max_examples=30, deadline=None)
def test_compressed_counts_round_trip(counts):
    assert decode_counts(encode_counts(counts), "x") == counts


@pytest.mark.parametrize("text", ["\x1f", "é", "T", "oooooooooooo0"])
def test_broken_counts(text):
    with pytest.raises(DataError, match="run lengths"):
        decode_counts(text, "x")


def test_splits_subfolders_and_what_is_left_out(root):
    images = [{"id": "x", "file_name": "a.jpg"}, {"id": 5, "file_name": "sub/a.jpg"}]
    write(root, content(region([BIG]), region([], 90), {"image_id": "x", "category_id": 7}, images=images))
    write(root, content(), "instances_val2017.json")
    (root / "val2017").mkdir()
    summary = convert("coco", root, root / "site")
    assert summary.images == {"train": 2, "val2017": 1} and summary.background_only == 2
    assert summary.skipped == {"annotations without a region": 2}
    assert summary.classes == ("background", "post", "wire")
    assert sorted(p.name for p in (root / "site/masks/train").iterdir()) == ["a.png", "sub"]
    assert read_mask(root / "site/masks/train/sub/a.png")[0, 0] == 1


def test_one_file_with_images_elsewhere(root, tmp_path):
    (root / "images").rename(tmp_path / "photos")
    path = write(root, content(region([BIG])))
    with pytest.raises(DataError, match=r"names the image 'a\.jpg', which is not in .*coco/images/train, .*coco/train"):
        convert("coco", path, root / "site")
    summary = convert("coco", path, root / "site", images=tmp_path / "photos", split="val")
    assert summary.images == {"val": 1}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"images": []}, "annotations: Field required"),
        (content(region("text")), r"annotations\.0\.segmentation"),
        (content(region([[1, 2, 3, 4]])), "outline of 2 points"),
        (content(region([[1, 2, 3]])), "odd number"),
        (content(region([[1e9, 2, 3, 4, 5, 6]])), "cannot be filled"),
        (content(region({"size": [6, 5], "counts": [30]})), "do not cover 6 x 5"),
        (content(region({"size": [5, 6], "counts": [29]})), "do not cover 6 x 5"),
        (content(region({"size": [5, 6], "counts": [31, -1]})), "do not cover 6 x 5"),
        (content(region({"size": [5, 6], "counts": []})), "do not cover 6 x 5"),
        (content(region([BIG], 8)), "unknown category 8"),
        (content(region([BIG], image_id=6)), "unlisted images"),
        (content(images=[{"id": 5, "file_name": "a.jpg"}] * 2), "image ids are repeated"),
        (content(images=[{"id": 5, "file_name": "../a.jpg"}]), "not a path below"),
        (content(images=[{"id": 5, "file_name": "/a.jpg"}]), "not a path below"),
        (content(images=[{"id": 5, "file_name": "a.jpg", "width": 5, "height": 6}]), "annotated as 5 x 6"),
        (content(categories=[{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]), "categories are repeated"),
        ({"images": [], "annotations": [], "categories": CATEGORIES}, "lists no images"),
    ],
)
def test_bad_files(root, data, message):
    with pytest.raises(DataError, match=message) as caught:
        convert("coco", write(root, data), root / "site")
    assert "instances_train.json" in caught.value.message
    assert caught.value.hint
    assert not (root / "site").exists()


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"images": NaN}'])
def test_no_json(root, data):
    (root / "annotations" / "instances_train.json").write_bytes(data)
    with pytest.raises(DataError, match=r"instances_train\.json"):
        convert("coco", root, root / "site")


def test_folders_without_files_and_differing_tables(root):
    with pytest.raises(DataError, match="no annotations/instances_"):
        convert("coco", root, root / "site")
    write(root, content())
    write(root, content(categories=[{"id": 1, "name": "other"}]), "instances_val.json")
    with pytest.raises(DataError, match=r"instances_val\.json: the categories"):
        convert("coco", root, root / "site")
    with pytest.raises(ConfigError, match="record their splits"):
        convert("coco", root, root / "site", split="val")


def test_other_image_formats_are_refused(root):
    (root / "images" / "a.bmp").write_bytes(b"BM")
    path = write(root, content(images=[{"id": 5, "file_name": "a.bmp"}]))
    with pytest.raises(DataError, match=r"a\.bmp is neither JPEG nor PNG"):
        convert("coco", path, root / "site")


def test_layouts_of_other_tools(root, tmp_path):
    """Roboflow has a file in the folder of every split, Label Studio a single result.json next to images/."""
    for split in ("train", "valid"):
        folder = tmp_path / "roboflow" / split
        folder.mkdir(parents=True)
        shutil.copy(root / "images" / "a.jpg", folder / "a.jpg")
        (folder / "_annotations.coco.json").write_text(json.dumps(content(region([BIG]))))
    assert convert("auto", tmp_path / "roboflow", tmp_path / "one").images == {"train": 1, "val": 1}
    (root / "annotations").rmdir()
    images = [{"id": 5, "file_name": "images/a.jpg"}]
    (root / "result.json").write_text(json.dumps(content(region([BIG]), images=images)))
    assert convert("auto", root, tmp_path / "two", split="val").images == {"val": 1}
    assert (tmp_path / "two/images/val/a.jpg").is_file()


def test_images_in_the_folder_of_the_subset(root, tmp_path):
    """CVAT has the images of no subset in images/default."""
    (root / "images").rename(tmp_path / "default")
    (root / "images").mkdir()
    (tmp_path / "default").rename(root / "images/default")
    write(root, content(region([BIG])), "instances_default.json")
    assert convert("coco", root, root / "site").images == {"train": len(content()["images"])}


def test_a_folder_without_subsets_fills_a_split(tmp_path):
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "instances_default.json").touch()
    assert [*coco._split_files(tmp_path, None)] == ["train"]
    assert [*coco._split_files(tmp_path, "val")] == ["val"]
    (tmp_path / "annotations" / "instances_val.json").touch()
    assert [*coco._split_files(tmp_path, None)] == ["train", "val"]
    with pytest.raises(DataError, match="Choose another split"):
        coco._split_files(tmp_path, "val")

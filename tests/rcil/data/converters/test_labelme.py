import base64
import json

import cv2
import numpy as np
import pytest

from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.converters import convert


def shape(kind, points, label="post", **more):
    return {"label": label, "points": points, "shape_type": kind, "group_id": None, "flags": {}, **more}


def annotate(folder, *shapes, stem="a", suffix=".jpg", **more):
    folder.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(folder / f"{stem}{suffix}"), np.zeros((6, 7, 3), np.uint8))
    data = {"version": "5.4.1", "shapes": list(shapes), "imageData": None, **more}
    (folder / f"{stem}.json").write_text(json.dumps(data))


def drawn(tmp_path, *shapes):
    annotate(tmp_path / "in", *shapes)
    summary = convert("labelme", tmp_path / "in", tmp_path / "site")
    return read_mask(tmp_path / "site/masks/train/a.png"), summary


def pixels(value, rows, columns):
    mask = np.zeros((6, 7), np.uint8)
    mask[rows, columns] = value
    return mask


def test_polygons_are_rounded(tmp_path):
    points = [[0.5, 1.4], [3.6, 1.4], [3.6, 3.49], [0.5, 3.49]]  # x 1-4, y 1-3
    mask, _ = drawn(tmp_path, shape("polygon", points))
    np.testing.assert_array_equal(mask, pixels(1, slice(1, 4), slice(1, 5)))


def test_rectangles_in_any_direction(tmp_path):
    mask, _ = drawn(tmp_path, shape("rectangle", [[4, 3], [2, 1]]))
    np.testing.assert_array_equal(mask, pixels(1, slice(1, 4), slice(2, 5)))


def test_circles(tmp_path):
    mask, _ = drawn(tmp_path, shape("circle", [[3, 3], [3, 1]]))
    rows = ["0000000", "0001000", "0011100", "0111110", "0011100", "0001000"]
    assert ["".join(map(str, row)) for row in mask.tolist()] == rows


def test_drawn_masks(tmp_path):
    small = cv2.imencode(".png", np.array([[255, 0], [0, 255]], np.uint8))[1].tobytes()
    mask, _ = drawn(tmp_path, shape("mask", [[2, 1], [3, 2]], mask=base64.b64encode(small).decode()))
    np.testing.assert_array_equal(mask, pixels(1, [1, 2], [2, 3]))


def test_later_shapes_lie_on_top_and_lines_are_counted(tmp_path):
    mask, summary = drawn(
        tmp_path,
        shape("rectangle", [[1, 1], [2, 2]], "wire"),
        shape("rectangle", [[0, 0], [6, 5]], "post"),
        shape("linestrip", [[0, 0], [5, 5]], "crack"),
        shape("linestrip", [[0, 0], [5, 5]]),
        shape("point", [[0, 0]]),
    )
    assert (mask == 1).all()
    assert summary.classes == ("background", "post", "wire")
    assert summary.skipped == {"linestrip": 2, "point": 1}


def test_old_files_and_special_labels(tmp_path):
    old = {"label": "post", "points": [[0, 0], [6, 0], [6, 5], [0, 5]]}
    mask, _ = drawn(tmp_path, old, shape("rectangle", [[0, 0], [0, 5]], "__ignore__"),
                    shape("rectangle", [[1, 0], [1, 5]], "_background_"))  # fmt: skip
    assert mask[0].tolist() == [255, 0, 1, 1, 1, 1, 1]


def test_a_list_of_labels_gives_the_order(tmp_path):
    annotate(tmp_path / "in", shape("rectangle", [[0, 0], [6, 5]], "post"))
    (tmp_path / "in" / "labels.txt").write_text("__ignore__\n_background_\nwire\npost\n")
    summary = convert("labelme", tmp_path / "in", tmp_path / "site")
    assert summary.classes == ("background", "wire", "post")
    assert read_mask(tmp_path / "site/masks/train/a.png")[0, 0] == 2
    (tmp_path / "in" / "labels.txt").write_text("posts\n")
    with pytest.raises(DataError, match=r"a\.json uses the label 'post'.*\nDid you mean 'posts'"):
        convert("labelme", tmp_path / "in", tmp_path / "other")


def test_split_folders(tmp_path):
    box = shape("rectangle", [[0, 0], [1, 1]])
    annotate(tmp_path / "in" / "train" / "cam", box)
    annotate(tmp_path / "in" / "val", box)
    assert convert("labelme", tmp_path / "in", tmp_path / "site").images == {"train": 1, "val": 1}
    assert (tmp_path / "site/masks/train/cam/a.png").is_file()
    assert convert("labelme", tmp_path / "in", tmp_path / "two", split="test").images == {"test": 2}
    assert (tmp_path / "two/masks/test/train/cam/a.png").is_file()


def test_where_images_are_looked_for(tmp_path):
    box = shape("rectangle", [[0, 0], [1, 1]])
    annotate(tmp_path / "in", box, suffix=".JPG", imageHeight=6, imageWidth=7)
    assert convert("labelme", tmp_path / "in", tmp_path / "beside").images == {"train": 1}
    annotate(tmp_path / "in", box, suffix=".JPG", imagePath="..\\photos\\b.png")
    (tmp_path / "photos").mkdir()
    (tmp_path / "in" / "a.JPG").unlink()
    cv2.imwrite(str(tmp_path / "photos" / "b.png"), np.zeros((6, 7, 3), np.uint8))
    with pytest.raises(DataError, match=r"not a path below the image folder\n.*give the folder"):
        convert("labelme", tmp_path / "in", tmp_path / "site")
    convert("labelme", tmp_path / "in", tmp_path / "site", images=tmp_path / "photos")
    assert (tmp_path / "site/images/train/b.png").is_file()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (shape("polygon", [[0, 0], [1, 1]]), "shape 0: a polygon with 2 points"),
        (shape("circle", [[0, 0]]), "shape 0: a circle with 1 points"),
        (shape("rectangle", []), "shape 0: a rectangle with 0 points"),
        (shape("polygon", [[0, 0], [1e8, 0], [1, 1]]), "shape 0: an outline"),
        (shape("mask", [[0, 0], [1, 1]]), "shape 0 is not a PNG"),
        (shape("mask", [[0, 0], [1, 1]], mask="?"), "shape 0: the mask is not base64"),
        (shape("mask", [[0, 0], [1, 1]], mask="é"), "shape 0: the mask is not base64"),
        (shape("polygon", [[0]]), r"shapes\.0\.points"),
    ],
)
def test_bad_shapes(tmp_path, bad, message):
    annotate(tmp_path / "in", bad)
    with pytest.raises(DataError, match=message) as caught:
        convert("labelme", tmp_path / "in", tmp_path / "site")
    assert "a.json" in caught.value.message


def test_a_mask_beyond_the_image(tmp_path):
    small = base64.b64encode(cv2.imencode(".png", np.ones((2, 2), np.uint8))[1].tobytes()).decode()
    annotate(tmp_path / "in", shape("mask", [[6, 0], [7, 1]], mask=small))
    with pytest.raises(DataError, match="beyond the image"):
        convert("labelme", tmp_path / "in", tmp_path / "site")


def test_sizes_and_missing_files(tmp_path):
    annotate(tmp_path / "in", shape("rectangle", [[0, 0], [1, 1]]), imageHeight=7, imageWidth=6)
    with pytest.raises(DataError, match=r"a\.json was drawn on 6 x 7 pixels, the image is 7 x 6"):
        convert("labelme", tmp_path / "in", tmp_path / "site")
    (tmp_path / "in" / "a.jpg").unlink()
    with pytest.raises(DataError, match=r"a\.json names 'a', but .* has no such JPEG or PNG"):
        convert("labelme", tmp_path / "in", tmp_path / "site")
    (tmp_path / "in" / "a.json").unlink()
    with pytest.raises(DataError, match="no json files"):
        convert("labelme", tmp_path / "in", tmp_path / "site")


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize("told", ["gone.bmp", "..\\photos\\gone.bmp", "/home/me/gone.bmp", None])
def test_embedded_images_replace_missing_files(tmp_path, suffix, told):
    data = cv2.imencode(suffix, np.full((6, 7, 3), 90, np.uint8))[1].tobytes()
    content = {"imagePath": told, "imageData": base64.b64encode(data).decode()}
    content["shapes"] = [shape("rectangle", [[0, 0], [1, 1]])]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.v1.json").write_text(json.dumps(content))
    convert("labelme", tmp_path / "in", tmp_path / "site")
    name = "gone" if told else "a.v1"
    assert (tmp_path / f"site/images/train/{name}{suffix}").read_bytes() == data
    assert read_mask(tmp_path / f"site/masks/train/{name}.png").sum() == 4


@pytest.mark.parametrize(
    ("data", "message"), [("!", "imageData is not base64"), ("QUJD", "imageData is neither JPEG nor PNG")]
)
def test_damaged_embedded_images(tmp_path, data, message):
    content = {"imagePath": "gone.png", "imageData": data, "shapes": [shape("rectangle", [[0, 0], [1, 1]])]}
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"a\.json: {message}"):
        convert("labelme", tmp_path / "in", tmp_path / "site")

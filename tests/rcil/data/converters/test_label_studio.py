import json

import numpy as np
import pytest
from exported import box, put_image, put_json

from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.brush import encode_brush
from rcil.data.converters import convert
from rcil.data.site import read_classes


def result(kind, value, label="post", **changes):
    labelled = {**value, kind: [label]} if label else value
    return {"type": kind, "value": labelled, "original_width": 8, "original_height": 6, "image_rotation": 0, **changes}


def brush(mask, label="post", **changes):
    return result("brushlabels", {"format": "rle", "rle": encode_brush(mask > 0)}, label, **changes)


def polygon(points, label="post", **changes):
    return result("polygonlabels", {"points": points, "closed": True}, label, **changes)


def task(*results, image="/data/local-files/?d=images/a.png", **changes):
    return {"id": 1, "data": {"image": image}, "annotations": [{"id": 1, "result": list(results)}], **changes}


@pytest.fixture
def read(tmp_path):
    """Converts tasks and returns the mask of a name."""
    put_image(tmp_path / "in/images/a.png")

    def convert_tasks(*tasks, name="train/a", **options):
        path = put_json(tmp_path / "in" / "export.json", list(tasks))
        summary = convert("label-studio", path, tmp_path / "site", **options)
        return summary, read_mask(tmp_path / "site" / "masks" / f"{name}.png")

    return convert_tasks


def test_brush_strokes_and_polygons_in_order(read):
    square = [[25, 100 / 6], [62.4, 100 / 6], [62.4, 65], [25, 65]]  # x: 2 to 4.99, y: 1 to 3.9
    summary, mask = read(task(brush(box(0, 5, 0, 4)), polygon(square, "wire")))
    assert summary.classes == ("background", "post", "wire")
    expected = box(0, 5, 0, 4)
    expected[1:4, 2:5] = 2
    np.testing.assert_array_equal(mask, expected)


def test_rectangles_turned_about_their_corner(read):
    value = {"x": 50, "y": 50, "width": 25, "height": 100 / 6, "rotation": 90}  # corner 4, 3; 2 wide, 1 high
    _, mask = read(task(result("rectanglelabels", value)))
    np.testing.assert_array_equal(mask, box(3, 5, 3, 4))


def test_ellipses_and_labels_in_results_of_their_own(read):
    """The tags Ellipse and Labels give two results for a region, with one id."""
    value = {"x": 50, "y": 50, "radiusX": 25, "radiusY": 100 / 6, "rotation": 0}  # centre 4, 3; radii 2 and 1
    region = result("ellipse", value, label=None, id="r1")
    summary, mask = read(task(region, result("labels", value, "wire", id="r1"), polygon([[0, 0], [1, 0], [1, 1]])))
    assert summary.classes == ("background", "post", "wire") and summary.skipped == {}
    assert mask[3, 2:6].tolist() == [2] * 4 and mask[2:4, 4].tolist() == [2] * 2
    assert np.count_nonzero(mask == 2) < 3 * 5 and mask[0, 0] == 1


def test_the_latest_annotation_that_was_not_cancelled_counts(read):
    versions = [
        {"result": [brush(box(0, 0, 0, 0))]},
        {"result": [brush(box(1, 1, 1, 1))]},
        {"result": [brush(box(2, 2, 2, 2))], "was_cancelled": True},
    ]
    _, mask = read({**task(), "annotations": versions, "predictions": [3, {"result": [brush(box(3, 3, 3, 3))]}]})
    np.testing.assert_array_equal(mask, box(1, 1, 1, 1))


def test_predictions_count_only_without_any_annotation(read, tmp_path):
    predicted = {"data": {"image": "a.png"}, "predictions": [{"result": [brush(box(3, 3, 3, 3))]}]}
    _, mask = read(predicted)
    np.testing.assert_array_equal(mask, box(3, 3, 3, 3))
    put_image(tmp_path / "in/images/b.png")
    path = put_json(tmp_path / "in/mixed.json", [predicted, task(brush(box(1, 1, 1, 1)), image="b.png")])
    summary = convert("label-studio", path, tmp_path / "two")
    assert summary.images == {"train": 1} and summary.skipped == {"tasks without an annotation": 1}


@pytest.mark.parametrize(
    "image",
    [
        "/data/upload/7/0a1b2c3d-a.png",
        "https://host/bucket/a.png?signature=x",
        "s3://bucket/images/a.png",
        "/data/local-files/?d=somewhere/else/images/a.png",
        "a.png",
    ],
)
def test_where_images_are_looked_for(read, image):
    _, mask = read(task(brush(box(1, 1, 1, 1)), image=image))
    np.testing.assert_array_equal(mask, box(1, 1, 1, 1))


def test_names_and_colours_come_from_the_configuration(read, tmp_path):
    config = '<View><BrushLabels><Label value="wire" background="#010203"/><Label value="post"/></BrushLabels></View>'
    (tmp_path / "in/config.xml").write_text(config)
    summary, mask = read(task(brush(box(1, 1, 1, 1))))
    assert summary.classes == ("background", "wire", "post") and mask.max() == 2
    assert read_classes(tmp_path / "site")[1].colour == (1, 2, 3)


def test_what_has_no_area_is_counted(read):
    summary, _ = read(task(brush(box(1, 1, 1, 1)), result("keypointlabels", {"x": 1, "y": 1})))
    assert summary.skipped == {"keypointlabels": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"images": []}, r"export\.json, file: Input should be a valid (list|array)"),
        ([{"image": "a.png", "tag": []}], r"0\.data: Field required\n.*JSON-MIN"),
        ([], "no annotations"),
        ([task(brush(box(1, 1, 1, 1), label=None))], "a region has no label"),
        ([task(brush(box(1, 1, 1, 1)), image="none.png")], r"names the image 'none\.png', which is not in"),
        ([task(brush(box(1, 1, 1, 1)), image="/data/local-files/?d=../../etc/passwd")], "not a path below"),
        ([{**task(brush(box(1, 1, 1, 1))), "data": {"image": 5}}], "names no image"),
        ([task(brush(box(1, 1, 1, 1), original_width=9))], r"8 x 6 pixels, annotated as 9 x 6"),
        ([task(brush(box(1, 1, 1, 1), image_rotation=90))], "turned by 90 degrees"),
        ([task(result("brushlabels", {"rle": [0, 0, 0, 9]}))], "task 0 .*region 0: the brush stroke ends early"),
        ([task(result("brushlabels", {}))], "the brushlabels is unreadable"),
        ([task(polygon([[1], [2]]))], "an outline of 1 points"),
        ([task(polygon([["x", 1]]))], "the polygonlabels is unreadable"),
        ([task(result("rectanglelabels", {"x": None, "y": 1}))], "the rectanglelabels is unreadable"),
    ],
)
def test_bad_files(tmp_path, content, message):
    put_image(tmp_path / "in/images/a.png")
    path = put_json(tmp_path / "in" / "export.json", content)
    with pytest.raises(DataError, match=message):
        convert("label-studio", path, tmp_path / "site")
    assert [entry.name for entry in tmp_path.iterdir()] == ["in"]


def test_labels_that_are_not_listed(tmp_path):
    put_image(tmp_path / "images/a.png")
    (tmp_path / "labels.txt").write_text("posts\n")
    (tmp_path / "export.json").write_text(json.dumps([task(brush(box(1, 1, 1, 1)))]))
    with pytest.raises(
        DataError, match=r"uses the label 'post', which .*labels\.txt does not list\nDid you mean 'posts'"
    ):
        convert("label-studio", tmp_path, tmp_path / "site")
    (tmp_path / "second.json").write_text("[]")
    with pytest.raises(DataError, match="holds 2 json files"):
        convert("label-studio", tmp_path, tmp_path / "site")

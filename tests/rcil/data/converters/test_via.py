import csv
import json

import numpy as np
import pytest
from exported import box, put_image, put_json

from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.converters import convert

SQUARE = {"name": "polygon", "all_points_x": [1, 3.9, 3, 1], "all_points_y": [1, 1, 3, 3.2]}
RECT = {"name": "rect", "x": 4, "y": 0, "width": 2, "height": 1}


def region(shape, **attributes):
    return {"shape_attributes": shape, "region_attributes": attributes or {"class": "post"}}


def entry(*regions, name="a.png"):
    return {"filename": name, "size": 99, "regions": list(regions), "file_attributes": {}}


def as_project(entries, options=("wire", "post")):
    described = {"class": {"type": "dropdown", "options": dict.fromkeys(options, "")}}
    return {"_via_settings": {}, "_via_img_metadata": entries, "_via_attributes": {"region": described, "file": {}}}


@pytest.fixture
def root(tmp_path):
    put_image(tmp_path / "in/a.png")
    put_image(tmp_path / "in/b.png")
    return tmp_path / "in"


def mask_of(tmp_path, name="a"):
    return read_mask(tmp_path / f"site/masks/train/{name}.png")


@pytest.mark.parametrize("kind", ["via", "auto"])
def test_annotations(root, tmp_path, kind):
    line = {"name": "polyline", "all_points_x": [1, 2], "all_points_y": [1, 2]}
    entries = {
        "a.png99": entry(region(SQUARE), region(RECT, **{"class": "wire"}), region(line)),
        "b": entry(name="b.png"),
    }
    summary = convert(kind, put_json(root / "via.json", entries), tmp_path / "site")
    assert summary.classes == ("background", "post", "wire") and summary.skipped == {"polyline": 1}
    assert summary.images == {"train": 2} and summary.background_only == 1
    np.testing.assert_array_equal(mask_of(tmp_path), box(1, 3, 1, 3) + box(0, 1, 4, 6, 2))


def test_a_project_orders_its_classes_and_old_regions_are_a_mapping(root, tmp_path):
    old = {**entry(), "regions": {"0": region(SQUARE)}}
    summary = convert("via", put_json(root / "p.json", as_project({"x": old})), tmp_path / "site")
    assert summary.classes == ("background", "wire", "post")
    np.testing.assert_array_equal(mask_of(tmp_path), box(1, 3, 1, 3, 2))


def test_circles_ellipses_and_checkboxes(root, tmp_path):
    circle = {"name": "circle", "cx": 3.5, "cy": 2.5, "r": 1}
    ellipse = {"name": "ellipse", "cx": 3.5, "cy": 2.5, "rx": 2, "ry": 0.2, "theta": np.pi / 2}
    marked = {"class": {"wire": True, "post": False}}
    path = put_json(root / "v.json", {"x": entry(region(circle), region(ellipse, **marked))})
    convert("via", path, tmp_path / "site", split="train")
    expected = box(1, 3, 2, 4)  # 2.5 to 4.5 and 1.5 to 3.5
    expected[0:5, 3] = 2
    np.testing.assert_array_equal(mask_of(tmp_path), expected)


@pytest.mark.parametrize("kind", ["via", "auto"])
def test_csv(root, tmp_path, kind):
    head = ["filename", "file_size", "file_attributes", "region_count", "region_id"]
    rows = [
        [*head, "region_shape_attributes", "region_attributes"],
        ["a.png", 9, "{}", 2, 0, json.dumps(SQUARE), '{"class": "post"}'],
        ["a.png", 9, "{}", 2, 1, json.dumps(RECT), '{"class": "wire"}'],
        ["b.png", 9, "{}", 0, 0, "{}", "{}"],
    ]
    with (root / "via.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert convert(kind, root, tmp_path / "site").images == {"train": 2}
    np.testing.assert_array_equal(mask_of(tmp_path), box(1, 3, 1, 3) + box(0, 1, 4, 6, 2))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"v\.json is not a file of VIA 2"),
        ("[]", "not a file of VIA 2"),
        ("{}", "lists no images"),
        ('{"a": 5}', "not a file of VIA 2"),
        ({"a": {"filename": "a.png", "regions": [{}]}}, "not a file of VIA 2"),
        ({"a": entry(region(SQUARE), name="none.png")}, r"names the image 'none\.png'"),
        ({"a": entry(region(SQUARE), name="../a.png")}, "not a path below"),
        ({"a": entry(region(SQUARE, x="1", y="2"))}, "which of x, y is the class"),
        ({"a": entry(region(SQUARE, **{"class": ""}))}, r"a\.png: a polygon has no single 'class'"),
        ({"a": entry(region({**SQUARE, "all_points_x": [1]}))}, "a polygon is unreadable"),
        ({"a": entry(region({"name": "circle", "cx": 1}))}, "a circle is unreadable"),
        ({"a": entry(region({**SQUARE, "all_points_x": [1e9] * 4}))}, "cannot be filled"),
    ],
)
def test_bad_files(root, tmp_path, content, message):
    path = root / "v.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(DataError, match=message):
        convert("via", path, tmp_path / "site")
    assert [found.name for found in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("text", ["", "a,b\n1\n", "filename,region_shape_attributes,region_attributes\na.png,{,{}\n"])
def test_bad_tables(root, tmp_path, text):
    (root / "v.csv").write_text(text)
    with pytest.raises(DataError, match=r"v\.csv is not a CSV file of VIA 2"):
        convert("via", root / "v.csv", tmp_path / "site")

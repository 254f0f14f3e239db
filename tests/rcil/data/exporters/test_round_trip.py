"""A site folder, exported and converted back, has the same masks, names, classes and colours, pixel by pixel."""

import shutil

import cv2
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from sites import write_sample

from rcil.core.errors import ConfigError
from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.converters import convert
from rcil.data.exporters import FORMATS, export_site
from rcil.data.exporters.regions import polygons, run_lengths
from rcil.data.site import pair_files, read_classes

WAYS = [(kind, False) for kind in FORMATS] + [(kind, True) for kind, form in FORMATS.items() if form.polygons]
NAMES = ["background", "post", "née 日本", "a:b, c", "never used"]
COLOURS = {"background": [0, 0, 0], "post": [250, 50, 83], "née 日本": [1, 2, 3], "a:b, c": [51, 221, 255]}


def masks():
    """By split and name: what a format could get wrong."""
    nested = np.zeros((31, 43), np.uint8)  # odd sizes, rings in rings
    for depth, value in enumerate([1, 0, 2, 0, 255, 3, 1, 0]):
        nested[depth : 31 - depth, depth : 43 - depth] = value
    holes = np.ones((17, 9), np.uint8)
    holes[2:5, 2:5], holes[3, 3], holes[8, 1:8:2] = 0, 2, 0
    touching = np.zeros((12, 13), np.uint8)
    touching[2:6, 2:6], touching[6:9, 6:9], touching[2:6, 6:9] = 1, 1, 2  # corner to corner, and side by side
    noise = np.random.default_rng(0).choice(np.array([0, 1, 2, 3, 255], np.uint8), (23, 37))
    stripes = (np.arange(300) % 2).astype(np.uint8)[None].repeat(2, 0)
    large = np.zeros((200, 301), np.uint8)  # longer runs than 16 bits hold in RGBA
    large[0, 0] = 1
    return {
        ("train", "nested"): nested,
        ("train", "cam 1/holes"): holes,
        ("train", "cam 1/née (2)+x"): touching,
        ("train", "noise"): noise,
        ("val", "noise"): noise[::-1, ::-1],
        ("val", "empty"): np.zeros((5, 7), np.uint8),
        ("val", "ignored"): np.full((3, 4), 255, np.uint8),
        ("day-1", "one"): np.array([[3]], np.uint8),
        ("day-1", "thin.v2"): stripes,
        ("day-1", "large"): large,
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    root = tmp_path_factory.mktemp("round") / "site"
    for number, ((split, name), mask) in enumerate(masks().items()):
        write_sample(root, split, name, mask, (".png", ".jpg")[number % 2])
    text = yaml.safe_dump({"names": NAMES, "colours": COLOURS}, allow_unicode=True)
    (root / "dataset.yaml").write_text(text, encoding="utf-8")
    return root


def content(site):
    """Class ids, and bytes of the image, by split and name."""
    return {
        (split, sample.name): (read_mask(sample.mask), sample.image.read_bytes())
        for split, samples in pair_files(site).splits.items()
        for sample in samples
    }


def assert_same(site, other):
    first, second = content(site), content(other)
    assert first.keys() == second.keys()
    for key, (mask, image) in first.items():
        np.testing.assert_array_equal(second[key][0], mask, str(key))
        assert second[key][1] == image


@pytest.mark.parametrize(("kind", "outlines"), WAYS)
@pytest.mark.parametrize("asked", ["named", "recognised"])
def test_pixel_by_pixel(site, tmp_path, kind, outlines, asked):
    summary = export_site(site, tmp_path / "out", kind, polygons=outlines)
    assert summary.images == {"train": 4, "val": 3, "day-1": 3}
    convert(kind.removesuffix("-masks") if asked == "named" else "auto", tmp_path / "out", tmp_path / "back")
    assert_same(site, tmp_path / "back")
    before, after = read_classes(site), read_classes(tmp_path / "back")
    assert [c.name for c in after] == [c.name for c in before]
    if kind != "labelme":  # has no colours
        assert [c.colour for c in after] == [c.colour for c in before]


@pytest.mark.parametrize("kind", FORMATS)
def test_through_an_archive_without_splits(site, tmp_path, kind):
    flat = tmp_path / "flat"
    for part in ("images", "masks"):
        shutil.copytree(site / part / "val", flat / part)
    (flat / "classes.txt").write_text("\n".join(NAMES), encoding="utf-8")
    export_site(flat, tmp_path / "out", kind)
    shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "out")
    summary = convert("auto", tmp_path / "packed.zip", tmp_path / "back")
    assert summary.images == {"train": 3}
    (tmp_path / "renamed").mkdir()
    for part in ("images", "masks"):
        shutil.copytree(flat / part, tmp_path / "renamed" / part / "train")
    assert_same(tmp_path / "renamed", tmp_path / "back")


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(0, 10**6))
def test_polygons_draw_any_mask(height, width, values, seed):
    mask = np.random.default_rng(seed).integers(0, values, (height, width)).astype(np.uint8)
    drawn = np.zeros_like(mask)
    for value, points in polygons(mask):
        assert len(points) >= 3
        cv2.fillPoly(drawn, [points.astype(np.int32)], value)
    np.testing.assert_array_equal(drawn, mask)


def test_run_lengths_by_hand():
    assert run_lengths(np.array([0, 0, 1, 1, 1, 0], bool)) == [2, 3, 1]
    assert run_lengths(np.array([1, 0], bool)) == [0, 1, 1]
    assert run_lengths(np.ones(3, bool)) == [0, 3]
    assert run_lengths(np.zeros(3, bool)) == [3]


class TestErrors:
    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (["background", "void"], "'void' means ignored pixels"),
            (["other", "Background"], "'Background' means background"),
        ],
    )
    def test_names_with_a_meaning(self, tmp_path, names, message):
        write_sample(tmp_path / "site", "", "a", np.zeros((2, 2)))
        (tmp_path / "site" / "classes.txt").write_text("\n".join(names))
        with pytest.raises(DataError, match=f"{message}\nRename"):
            export_site(tmp_path / "site", tmp_path / "out", "coco")

    @pytest.mark.parametrize("kind", FORMATS)
    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda root: (root / "masks/val/empty.png").unlink(), "has no mask"),
            (lambda root: (root / "masks/val/empty.png").write_bytes(b"x"), r"empty\.png is not a PNG"),
            (
                lambda root: cv2.imwrite(str(root / "masks/val/empty.png"), np.zeros((5, 8))),
                "5 pixels, its image 7 x 5",
            ),
            (lambda root: cv2.imwrite(str(root / "masks/val/empty.png"), np.full((5, 7), 9)), "unknown id 9"),
        ],
    )
    def test_a_damaged_site_leaves_nothing(self, site, tmp_path, kind, damage, message):
        shutil.copytree(site, tmp_path / "site")
        damage(tmp_path / "site")
        with pytest.raises(DataError, match=message):
            export_site(tmp_path / "site", tmp_path / "out", kind)
        assert [path.name for path in tmp_path.iterdir()] == ["site"]

    def test_formats_and_targets(self, site, tmp_path):
        with pytest.raises(ConfigError, match="Did you mean 'coco'"):
            export_site(site, tmp_path / "out", "cocoa")
        with pytest.raises(ConfigError, match="no polygons"):
            export_site(site, tmp_path / "out", "cvat-masks", polygons=True)
        (tmp_path / "used").write_text("")
        with pytest.raises(DataError, match="in use"):
            export_site(site, tmp_path / "used", "coco")

    @pytest.mark.parametrize(
        ("colours", "message"),
        [({"a": [9, 9, 9], "b": [9, 9, 9]}, "a and b have the same"), ({"a": [0, 0, 0]}, "and a")],
    )
    def test_colours_that_masks_cannot_tell_apart(self, tmp_path, colours, message):
        write_sample(tmp_path / "site", "", "a", np.zeros((2, 2)))
        document = {"names": ["background", "a", "b"], "colours": colours}
        (tmp_path / "site" / "dataset.yaml").write_text(yaml.safe_dump(document))
        with pytest.raises(DataError, match=message):
            export_site(tmp_path / "site", tmp_path / "out", "cvat-masks")
        export_site(tmp_path / "site", tmp_path / "out", "cvat")

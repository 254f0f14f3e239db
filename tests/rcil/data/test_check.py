import json

import cv2
import numpy as np
import pytest
from commands import call as call_script
from sites import make_site, write_sample
from typer.testing import CliRunner

from rcil.cli.app import app
from rcil.core.errors import RcilError
from rcil.data.check import check_site
from rcil.data.scan import present_classes, scan
from rcil.data.site import read_site
from rcil.data.types import SegmentationData


def call(*arguments):
    return call_script("rcil data", *map(str, arguments))


def messages(root, severity="error"):
    return [f"{p.place}: {p.message}" for p in check_site(root).problems if p.severity == severity]


def test_a_good_site(tmp_path):
    report = check_site(make_site(tmp_path, images=20))
    assert report.ok and report.verdict == "fit for training"
    assert report.problems == []
    assert report.images == {"train": 20, "val": 20}
    assert [(c.name, c.pixels, c.images, c.training_images) for c in report.counts] == [
        ("background", 40 * (64 * 96 - 3200), 40, 20),
        ("ball", 40 * 1600, 40, 20),
        ("cone", 40 * 1600, 40, 20),
    ]


@pytest.mark.parametrize(("images", "enough"), [(3, False), (19, False), (20, True)])
def test_few_images_are_not_called_fit_for_training(tmp_path, images, enough):
    report = check_site(make_site(tmp_path, splits=("",), images=images))
    assert report.ok
    assert (report.verdict == "fit for training") == enough
    assert ("fewer than 20 training images of ball, cone" in report.verdict) == (not enough)
    advice = [p.message for p in report.problems if p.place == "class ball"]
    assert all("label at least 20" in text for text in advice) and len(advice) == (not enough)


def test_images_for_validation_do_not_train(tmp_path):
    report = check_site(make_site(tmp_path, splits=("train", "val"), images=12))
    assert report.scarce == ["ball", "cone"]
    assert "only 12 training images; label at least 20" in [p.message for p in report.problems]


def test_old_classes_that_only_val_labels_are_no_reason_for_doubt(tmp_path):
    site = make_site(tmp_path, images=20)
    for path in (site / "masks" / "train").iterdir():
        mask = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        cv2.imwrite(str(path), np.where(mask == 2, mask, 0))
    report = check_site(site)
    assert report.verdict == "fit for training" and not report.problems
    for path in (site / "masks" / "train").iterdir():
        cv2.imwrite(str(path), np.zeros((64, 96), np.uint8))
    assert check_site(site).verdict == "no errors, but no training image shows a class"


def test_a_site_without_labels_is_not_fit_for_training(tmp_path):
    make_site(tmp_path, images=0)
    write_sample(tmp_path, "train", "empty", np.zeros((64, 96)))
    assert check_site(tmp_path).verdict == "no errors, but no class is labelled"


DAMAGES = {
    "cut off": lambda root: _cut(root / "images/train/train_0.jpg"),
    "not an image": lambda root: (root / "images/train/train_0.jpg").write_bytes(b"nothing"),
    "the mask has 95x64 pixels, the image 96x64": lambda root: cv2.imwrite(
        str(root / "masks/train/train_0.png"), np.zeros((64, 95), np.uint8)
    ),
    "7 (10 pixels); the classes are 0 background to ": lambda root: _paint(root / "masks/train/train_0.png", 7),
    "look like grey levels": lambda root: cv2.imwrite(
        str(root / "masks/train/train_0.png"), np.tile(np.arange(96, dtype=np.uint8), (64, 1))
    ),
    "true colour": lambda root: cv2.imwrite(str(root / "masks/train/train_0.png"), np.zeros((64, 96, 3), np.uint8)),
    "has no mask": lambda root: (root / "masks/train/train_0.png").unlink(),
    "has no image": lambda root: (root / "images/train/train_0.jpg").unlink(),
    "same name": lambda root: cv2.imwrite(str(root / "images/train/train_0.png"), np.zeros((64, 96, 3), np.uint8)),
}


def _cut(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


def _paint(path, value):
    mask = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    mask[0, :10] = value
    cv2.imwrite(str(path), mask)


@pytest.mark.parametrize("expected", DAMAGES)
def test_every_damage_is_found_and_named(tmp_path, expected):
    make_site(tmp_path)
    DAMAGES[expected](tmp_path)
    (found,) = messages(tmp_path)
    assert expected in found.lower().replace("-", " ") or expected in found
    assert "train_0" in found


def test_all_problems_are_listed_at_once(tmp_path):
    make_site(tmp_path)
    for index in range(3):
        (tmp_path / f"masks/train/train_{index}.png").write_bytes(b"")
    assert len(messages(tmp_path)) == 3


def test_rare_and_missing_classes_and_empty_masks_are_warnings(tmp_path):
    make_site(tmp_path)
    (tmp_path / "classes.txt").write_text("background\nball\ncone\nghost\nspeck\n")
    write_sample(tmp_path, "train", "empty", np.zeros((64, 96)))
    write_sample(tmp_path, "train", "one", np.pad([[4]], ((0, 63), (0, 95))))
    warnings = messages(tmp_path, "warning")
    assert check_site(tmp_path).ok
    assert any("class ghost: no pixels" in w for w in warnings)
    assert any("class speck: only 1 pixels in 1 images" in w for w in warnings)
    assert any("empty.png: contains only background" in w for w in warnings)


def test_scan_applies_the_id_table(tmp_path):
    data = read_site(make_site(tmp_path))
    remapped = SegmentationData(data.root, data.classes, data.splits, raw_to_id={0: 1, 2: 0})
    (content, *_rest) = scan(remapped, data.splits["train"])
    assert content.present == {0, 1, 255}
    assert content.pixels[255] == 1600
    assert present_classes(data, "val")["val_0"] == {0, 1, 2}


class TestCommandLine:
    def test_good(self, tmp_path):
        done = call("check", make_site(tmp_path, images=20))
        assert done.code == 0, done.err
        assert "0 warnings: fit for training" in done.out
        assert cv2.imread(str(tmp_path / "contact_sheet.png")).shape[1] > 900

    def test_bad_exits_with_a_list_and_json_holds_all(self, tmp_path):
        make_site(tmp_path)
        (tmp_path / "masks/val/val_1.png").write_bytes(b"x")
        done = call("check", tmp_path)
        assert done.code == 6
        assert "val_1.png" in done.out
        assert "not fit for training" in done.out
        document = json.loads(call("check", tmp_path, "--json").out)
        assert document["ok"] is False
        assert len([p for p in document["problems"] if p["severity"] == "error"]) == 1

    def test_not_a_site(self, tmp_path):
        done = call("check", tmp_path)
        assert done.code == 6
        assert "classes.txt" in done.err
        assert "Traceback" not in done.err

    def test_show(self, tmp_path):
        site = make_site(tmp_path / "site")
        done = call("show", site, "-o", tmp_path / "out", "--split", "val")
        assert "6 overlays" in done.out
        drawn = cv2.imread(str(tmp_path / "out" / "val" / "val_0.png"))
        assert drawn.shape == (64, 96, 3)
        assert call("show", site, "-o", tmp_path / "out", "--split", "vall").code == 2

    def test_a_generated_site_passes_the_check_and_knows_its_domains(self, tmp_path):
        done = call("make-site", tmp_path / "yard", "--count", "25", "--size", "120x160", "--frames", "0")
        assert done.code == 0, done.err
        assert call("check", tmp_path / "yard").code == 0
        data = read_site(tmp_path / "yard")
        assert {s.domain for s in data.splits["train"]} == {"sunny", "overcast", "rain", "night", "oldcam"}
        assert call("make-site", tmp_path / "yard").code != 0
        assert "HEIGHTxWIDTH" in call("make-site", tmp_path / "other", "--size", "12").err


def test_findings_are_shown_where_no_contact_sheet_can_be_written(tmp_path):
    site = make_site(tmp_path / "a[/b]c")
    (site / "contact_sheet.png").mkdir()
    result = CliRunner().invoke(app, ["data", "check", str(site)])
    assert result.exit_code == 0, result.output
    shown = result.stdout.replace("\n", "")  # the length of the path decides where its line is broken
    assert "fewer than 20 training images" in shown and "a[/b]c" in shown
    assert json.loads(CliRunner().invoke(app, ["data", "check", str(site), "--json"]).stdout)["contact_sheet"] is None
    asked = CliRunner().invoke(app, ["data", "check", str(site), "--sheet", str(site / "contact_sheet.png")])
    assert isinstance(asked.exception, RcilError)


def test_showing_a_site_leaves_it_as_it_is(tmp_path):
    site = make_site(tmp_path / "site", splits=("",), images=6)
    before = sorted(site.rglob("*"))
    assert CliRunner().invoke(app, ["data", "show", str(site), "-o", str(tmp_path / "drawn")]).exit_code == 0
    assert sorted(site.rglob("*")) == before

import json

import numpy as np
import pytest
import torch
from networks import at_step, small_arch
from sites import make_site

from rcil.checkpoint.file import save
from rcil.core.errors import CheckpointError, ConfigError
from rcil.core.files import sha256_of
from rcil.core.images import read_rgb, write_image
from rcil.core.masks import read_mask
from rcil.core.reading import DataError
from rcil.data.check import check_site
from rcil.data.converters import convert
from rcil.data.exporters import FORMATS
from rcil.data.site import read_classes, read_site, write_classes
from rcil.labelling.prelabel import UNSURE, find_images, prelabel
from rcil.model.metadata import ClassInfo, Metadata, class_table

NAMES = ["background", "a", "b"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    network = at_step(small_arch(), 0)
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    save(path, network, Metadata(architecture=network.arch, classes=class_table([NAMES])))
    return path


@pytest.fixture
def photos(tmp_path):
    """Four noisy pictures, one of them in a subfolder."""
    rng = np.random.default_rng(0)
    for place in ("one.png", "two.png", "cam/three.png", "cam/one.JPG"):
        path = tmp_path / "photos" / place
        size = (40, 56, 3)
        write_image(path.with_suffix(path.suffix.lower()), rng.integers(0, 256, size, np.uint8))
        if path.suffix == ".JPG":
            path.with_suffix(".jpg").rename(path)
    return tmp_path / "photos"


def test_the_result_is_a_site_that_passes_the_check(model, photos, tmp_path):
    out = tmp_path / "out"
    seen = []
    document = prelabel(model, photos, out, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4, 4)
    report = check_site(out)
    assert report.ok and sum(report.images.values()) == 4
    site = read_site(out)
    assert site.names == tuple(NAMES)
    names = {s.name for split in site.splits.values() for s in split}
    assert names == {"one", "two", "cam__three", "cam__one"}
    assert sha256_of(out / "images" / "cam__one.jpg") == sha256_of(photos / "cam" / "one.JPG")
    assert document == json.loads((out / "prelabel.json").read_text())
    certainty = [entry["mean_confidence"] for entry in document["images"]]
    assert certainty == sorted(certainty) and len(set(certainty)) == 4
    assert not (out / "overlays").exists()


def test_unsure_pixels_are_ignored(model, photos, tmp_path):
    loose = prelabel(model, photos, tmp_path / "loose", min_confidence=0)
    limit = float(np.median([entry["mean_confidence"] for entry in loose["images"]]))
    tight = prelabel(model, photos, tmp_path / "tight", min_confidence=limit)
    assert all(entry["unsure"] == 0 for entry in loose["images"])
    assert 0 < sum(entry["unsure"] for entry in tight["images"]) < 4
    for entry in tight["images"]:
        before, after = (read_mask(tmp_path / name / "masks" / f"{entry['image']}.png") for name in ("loose", "tight"))
        assert ((after == before) | (after == 255)).all()
        assert entry["unsure"] == (after == 255).mean()
        assert entry["classes"] == {
            name: (after == row).mean() for row, name in enumerate(NAMES) if (after == row).any()
        }
    assert prelabel(model, photos, tmp_path / "none", min_confidence=1)["images"][0]["unsure"] == 1


def test_a_site_keeps_its_splits(model, tmp_path):
    root = make_site(tmp_path / "site", images=1)
    prelabel(model, root, tmp_path / "out", scale=0.5)
    assert {split: [s.name for s in group] for split, group in read_site(tmp_path / "out").splits.items()} == {
        "train": ["train_0"],
        "val": ["val_0"],
    }


def test_overlays(model, photos, tmp_path):
    prelabel(model, photos, tmp_path / "out", min_confidence=1, overlays=True)
    picture = read_rgb(tmp_path / "out" / "overlays" / "two.png")
    image = read_rgb(photos / "two.png").astype(float)
    assert picture.shape[0] > 40, "a legend below"
    assert np.abs(picture[:40] - (image + np.array(UNSURE)) / 2).max() <= 1, "all is unsure"


class TestClasses:
    def test_default_colours_need_no_more_than_names(self, tmp_path):
        classes = class_table([NAMES])
        assert write_classes(tmp_path, classes) == "classes.txt"
        assert (tmp_path / "classes.txt").read_text() == "background\na\nb\n"

    def test_other_colours_travel_along(self, tmp_path):
        classes = (*class_table([NAMES]), ClassInfo(name="né", id=3, colour=(1, 2, 3), step=0))
        assert write_classes(tmp_path, classes) == "dataset.yaml"
        assert [(c.name, c.colour) for c in read_classes(tmp_path)] == [(c.name, c.colour) for c in classes]
        assert not (tmp_path / "classes.txt").exists(), "a second file would be ignored when it is edited"


class TestErrors:
    def test_a_folder_in_use(self, model, photos, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "file").touch()
        with pytest.raises(DataError, match="in use"):
            prelabel(model, photos, tmp_path / "out")

    def test_no_images(self, tmp_path):
        with pytest.raises(DataError, match="no images"):
            find_images(tmp_path)
        with pytest.raises(DataError, match="no folder"):
            find_images(tmp_path / "none")

    def test_two_images_for_one_mask(self, tmp_path):
        for name in ("a.png", "a.jpg"):
            (tmp_path / name).touch()
        with pytest.raises(DataError, match=r"a\.jpg and .*a\.png would share"):
            find_images(tmp_path)

    def test_a_broken_image_leaves_nothing(self, model, photos, tmp_path):
        (photos / "zzz.png").write_bytes(b"broken")
        with pytest.raises(DataError, match=r"zzz\.png"):
            prelabel(model, photos, tmp_path / "out")
        assert {p.name for p in tmp_path.iterdir()} == {"photos"}

    def test_no_model(self, photos, tmp_path):
        with pytest.raises(CheckpointError):
            prelabel(tmp_path / "none.safetensors", photos, tmp_path / "out")


def test_a_deployed_model_labels_the_same(model, photos, tmp_path):
    from rcil.checkpoint.file import load
    from rcil.nn import fold

    network, metadata = load(model)
    save(tmp_path / "folded.safetensors", fold(network)[0], metadata)
    with torch.no_grad():
        a = prelabel(model, photos, tmp_path / "a")
        b = prelabel(tmp_path / "folded.safetensors", photos, tmp_path / "b")
    assert [e["image"] for e in a["images"]] == [e["image"] for e in b["images"]]
    assert a["images"][0]["mean_confidence"] == pytest.approx(b["images"][0]["mean_confidence"], abs=1e-5)


class TestLabellingTools:
    @pytest.mark.parametrize("kind", FORMATS)
    def test_predictions_come_back_as_they_are(self, model, photos, tmp_path, kind):
        document = prelabel(model, photos, tmp_path / "site", min_confidence=0.4)
        prelabel(model, photos, tmp_path / "tool", min_confidence=0.4, kind=kind, overlays=True)
        assert {path.name for path in tmp_path.iterdir()} == {"photos", "site", "tool"}
        assert json.loads((tmp_path / "tool/prelabel.json").read_text()) == document
        assert (tmp_path / "tool/overlays/one.png").is_file()
        convert("auto", tmp_path / "tool", tmp_path / "back")
        for entry in document["images"]:
            before, after = tmp_path / "site/masks", tmp_path / "back/masks/train"
            np.testing.assert_array_equal(*(read_mask(path / f"{entry['image']}.png") for path in (before, after)))

    def test_label_studio_gets_predictions_to_review(self, model, photos, tmp_path):
        prelabel(model, photos, tmp_path / "tool", kind="label-studio")
        tasks = json.loads((tmp_path / "tool/tasks.json").read_text())
        assert all("predictions" in task and "annotations" not in task for task in tasks)

    def test_an_unknown_format_ends_before_the_work(self, model, photos, tmp_path):
        with pytest.raises(ConfigError, match="unknown annotation format 'cvta'"):
            prelabel(model, photos, tmp_path / "tool", kind="cvta")

import cv2
import numpy as np
import pytest
from sites import make_site, write_sample

from rcil.core.errors import CheckpointError, ConfigError
from rcil.core.reading import DataError
from rcil.site.preflight import preflight


def test_a_good_site(ask, site):
    found = preflight(ask())
    assert found.errors == ()
    ready = found.require()
    assert [c.name for c in ready.new] == ["cone"]
    assert ready.labelled_in_evaluation == {"ball"}
    assert ready.amounts == {"cone": (8, 8 * 1600)}
    assert (len(ready.train), len(ready.held_out)) == (6, 2)
    assert ready.evaluation[0] == "val" and len(ready.evaluation[1]) == 8
    document = found.as_document()
    assert document["ok"] and document["new_classes"] == [{"name": "cone", "id": 2, "images": 8, "pixels": 12800}]


@pytest.mark.parametrize("complete", ["train", "val"])
def test_labels_of_old_classes_count_where_they_are(ask, tmp_path, complete):
    """Masks of one split name the new class only, those of the other one everything."""
    root = make_site(tmp_path / "site", images=4)
    for split in ("train", "val"):
        mask = np.zeros((64, 96), np.uint8)
        mask[:20, :20], mask[20:] = 1 if split == complete else 0, 2
        for path in sorted((root / "masks" / split).glob("*.png")):
            cv2.imwrite(str(path), mask)
    ready = preflight(ask(data=root)).require()
    expected = {"train": ({"ball"}, set()), "val": (set(), {"ball"})}[complete]
    assert (ready.labelled, ready.labelled_in_evaluation) == expected


@pytest.mark.parametrize("seed", range(4))
def test_images_held_out_for_one_class_are_not_trained_on_for_another(ask, tmp_path, seed):
    root = tmp_path / "site"
    (make_site(root, images=7) / "classes.txt").write_text("background\nball\ncone\ncube\n")
    for index in range(12):
        mask = np.full((40, 40), 3, np.uint8)
        mask[:20] = index % 3
        write_sample(root, "train", f"cube_{index}", mask)
    cones, cubes = (preflight(ask(data=root, classes=(name,), seed=seed)).require() for name in ("cone", "cube"))
    assert [(len(r.train), len(r.held_out)) for r in (cones, cubes)] == [(9, 2), (10, 2)]
    assert not {*cones.held_out, *cubes.held_out} & {*cones.train, *cubes.train}


def test_a_class_of_two_images_has_one_of_each(ask, tmp_path):
    ready = preflight(ask(data=make_site(tmp_path / "site", images=2))).require()
    assert len(ready.train) == len(ready.held_out) == 1


def test_without_val_the_held_out_images_are_compared(ask, tmp_path):
    ready = preflight(ask(data=make_site(tmp_path / "site", splits=("train",)))).require()
    assert ready.evaluation == ("held-out images", ready.held_out)


def test_only_images_with_the_class_are_trained_on(ask, tmp_path):
    root = make_site(tmp_path / "site")
    write_sample(root, "train", "empty", np.zeros((64, 96), np.uint8))
    ready = preflight(ask(data=root)).require()
    assert "empty" not in {s.name for s in (*ready.train, *ready.held_out)}


def test_all_errors_at_once_and_nothing_written(ask, tmp_path):
    root = make_site(tmp_path / "site", splits=("",))
    (root / "masks" / "flat_0.png").write_bytes(b"no png")
    cv2.imwrite(str(root / "masks" / "flat_1.png"), np.full((64, 96), 7, np.uint8))
    cv2.imwrite(str(root / "masks" / "flat_2.png"), np.zeros((10, 10), np.uint8))
    cv2.imwrite(str(root / "masks" / "flat_3.png"), np.zeros((64, 96, 3), np.uint8))
    before = sorted(tmp_path.rglob("*"))
    found = preflight(ask(data=root, classes=["kone"]))
    assert found.ready is None
    with pytest.raises(DataError) as caught:
        found.require()
    for text in ("5 errors", "not a PNG", "unknown ids: 7", "10x10", "true-colour", "class kone", "mean 'cone'"):
        assert text in caught.value.message
    assert sorted(tmp_path.rglob("*")) == before


def test_too_little_of_the_class(ask, tmp_path):
    root = make_site(tmp_path / "site", splits=("train", "val"), images=1)
    (error,) = preflight(ask(data=root)).errors
    assert error.message.startswith("1600 pixels in 1 training images: too few")


def test_a_site_without_training_images(ask, tmp_path):
    (error,) = preflight(ask(data=make_site(tmp_path / "site", splits=("trian", "val")))).errors
    assert "Did you mean 'trian'" in error.message


def test_warnings_do_not_stop(ask, site):
    (error,) = preflight(ask("training.crop=512")).errors
    assert "more than twice as large" in error.message
    found = preflight(ask("training.crop=160"))
    assert found.ready is not None
    assert "use a smaller --crop" in found.warnings[0].message


def test_old_classes_in_the_background_are_reported(ask, cones, monkeypatch):
    """The share itself is the old model's; here it is what is done with it that matters."""
    shares = {"ball": 0.25}
    monkeypatch.setattr("rcil.site.preflight.left_as_background", lambda *args, **options: {"ball": (0.25, 0.5)})
    quiet, loud = preflight(ask(data=cones)), preflight(ask("method.name=fine-tuning", data=cones))
    assert quiet.require().in_background == loud.require().in_background == shares
    assert not [p for p in quiet.problems if p.place == "background"]
    assert [p.severity for p in loud.problems if p.place == "background"] == ["warning"]
    assert quiet.require().labelled == frozenset()


def test_what_a_checkpoint_does_not_hold_is_told(ask):
    """SDR's prototypes stay in the folder of the run that made them."""
    (told,) = [p for p in preflight(ask("method.name=sdr")).problems if p.place == "method sdr"]
    assert told.severity == "warning" and "it starts without" in told.message
    assert not [p for p in preflight(ask("method.name=mib")).problems if p.place.startswith("method")]


def test_requests_that_make_no_sense_raise(ask, tmp_path):
    with pytest.raises(ConfigError, match="all classes at once"):
        preflight(ask("method.name=joint"))
    with pytest.raises(ConfigError, match="Did you mean 'rcil'"):
        preflight(ask("method.name=rcli"))
    with pytest.raises(ConfigError, match="a piece of one image"):
        preflight(ask("training.batch=1"))
    with pytest.raises(ConfigError, match="4 cannot be divided into 3"):
        preflight(ask("training.accumulate=3"))
    with pytest.raises(CheckpointError):
        preflight(ask(model=tmp_path / "none.safetensors"))
    with pytest.raises(DataError):
        preflight(ask(data=tmp_path))

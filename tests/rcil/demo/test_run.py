import numpy as np
import pytest
from sites import write_sample

from rcil.core.errors import ConfigError, TrainingError
from rcil.core.masks import read_mask
from rcil.demo import run as demo
from rcil.site.run import Display


def site_with(root, **masks):
    for name, mask in masks.items():
        write_sample(root, "train", name, np.array(mask, np.uint8))


def test_only_images_and_labels_of_the_new_class_stay(tmp_path):
    site_with(tmp_path, a=[[0, 1], [5, 255]], b=[[1, 1], [0, 2]])
    (tmp_path / "images" / "train" / "b.jpg").unlink()  # an interrupted call
    for _ in range(2):
        demo.label_only(tmp_path, "train", 5)
        assert read_mask(tmp_path / "masks" / "train" / "a.png").tolist() == [[0, 0], [5, 0]]
        assert [path.name for path in (tmp_path / "images" / "train").iterdir()] == ["a.jpg"]
        assert [path.name for path in (tmp_path / "masks" / "train").iterdir()] == ["a.png"]


def test_masks_that_are_right_are_not_written_again(tmp_path):
    site_with(tmp_path, a=[[5, 5], [0, 0]])
    mask = tmp_path / "masks" / "train" / "a.png"
    before = mask.stat().st_mtime_ns
    demo.label_only(tmp_path, "train", 5)
    assert mask.stat().st_mtime_ns == before


def test_a_busy_machine_gets_the_default_budget_and_keeps_it(tmp_path, monkeypatch):
    given, said = [], []

    def add(deployed, site, output, how, display, device):
        given.append(how["minutes"])
        if how["minutes"] is not None:
            raise TrainingError("2 min are too short", "Use --minutes 4.")
        output.mkdir(exist_ok=True)
        (output / demo.RECORD).write_text("minutes: null\n")
        return {}

    monkeypatch.setattr(demo, "_add", add)
    for _ in range(2):
        demo._teach(tmp_path, tmp_path, tmp_path / "out", {"minutes": 2.0}, Display(explain=said.append), "cpu")
    assert given == [2.0, None, None]
    assert len(said) == 1 and "too short" in said[0]


def test_a_training_that_fails_is_not_started_again(tmp_path, monkeypatch):
    def add(deployed, site, output, how, display, device):
        (output / demo.RECORD).write_text("minutes: 2.0\n")
        raise TrainingError("the loss is not finite", "Use a lower --lr.")

    monkeypatch.setattr(demo, "_add", add)
    with pytest.raises(TrainingError, match="not finite"):
        demo._teach(tmp_path, tmp_path, tmp_path, {"minutes": 2.0}, Display(), "cpu")


def test_a_missing_model_names_the_command_that_trains_it(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "BASE", tmp_path / "none.safetensors")
    with pytest.raises(ConfigError) as error:
        demo.run(tmp_path / "out", quick=True, say=print, watch=lambda: None)
    assert "make demo-model" in error.value.hint
    assert not (tmp_path / "out").exists()


def test_stages_are_timed(monkeypatch):
    stages = {}
    with demo._timed("nothing", stages):
        pass
    assert stages == {"nothing": {"seconds": 0.0, "cpu_seconds": 0.0}}

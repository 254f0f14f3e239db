"""The page on joint training, from the files of a run."""

import json
from pathlib import Path

import pytest
import yaml

from rcil.tasks.load import load_task
from rcil.tasks.task import TrainingSection
from tools.results.joint import page, plot, read_run, with_earlier

PAGES = Path(__file__).parents[3] / "docs" / "results"


@pytest.fixture
def run(tmp_path):
    classes = [
        {"name": "background", "iou": None, "pixels": 0},
        {"name": "pole", "iou": 0.381, "pixels": 9},
        {"name": "road", "iou": 0.95, "pixels": 90},
    ]
    step = {"images": 7, "miou": {"all": 0.6655}, "pixel_accuracy": 0.912, "classes": classes}
    (tmp_path / "results.json").write_text(json.dumps({"steps": [step]}))
    task = {"name": "yard", "recipe": "site", "network": {}, "training": {"batch": 8, "crop": 250}}
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(task))
    (tmp_path / "step0").mkdir()
    rows = ["epoch,iteration,lr,ce,held_out_miou"]
    for epoch in range(2):
        rows += [f"{epoch},{i},0.1,{2 - epoch},," for i in (1, 2)] + [f"{epoch},2,,,0.{epoch + 4}"]
    (tmp_path / "step0" / "log.csv").write_text("\n".join(rows))
    return read_run(tmp_path)


def test_a_run_is_read(run):
    assert run["classes"] == {"pole": 0.381, "road": 0.95}, "classes without pixels are left out"
    assert run["loss"] == [2, 2, 1, 1]
    assert run["held_out"] == [[2, 0.4], [4, 0.5]]


@pytest.mark.parametrize("name", ["camvid-joint", "voc-animals-joint"])
def test_the_task_files_have_the_settings_of_the_page(name):
    task = load_task(PAGES / f"{name}.yaml")
    assert (task.name, task.recipe, task.network.head) == (name, "site", "deeplabv3plus")
    (run,) = [run for run in json.loads((PAGES / "joint.json").read_text())["runs"] if run["name"] == name]
    recorded = TrainingSection.model_validate(run["recipe"]["training"])
    assert task.training.model_copy(update={"workers": recorded.workers}) == recorded


def test_the_page_has_the_numbers(run):
    text = page([run])
    assert "| yard | 66.5 % | 91.2 % | 7 | 4 | 2 |" in text
    assert "| pole | road |\n|---|---|\n| 38.1 | 95.0 |" in text
    assert plot([run]).startswith(b"\x89PNG")


def test_runs_of_the_page_stay_unless_they_are_given_again(run, tmp_path):
    document = tmp_path / "joint.json"
    assert with_earlier([run], document) == [run]
    document.write_text(json.dumps({"runs": [{"name": "street"}, {"name": "yard", "miou": 0.1}]}))
    assert with_earlier([run], document) == [{"name": "street"}, run]

"""The table of add-class without options: its sites, its rows and what the page says about them."""

import json
import subprocess

import numpy as np
import pytest
from sites import write_sample

from rcil.checkpoint.file import save
from rcil.core.masks import read_mask
from rcil.data.site import read_site
from rcil.model.architecture import Architecture
from rcil.model.metadata import LineageEntry, Metadata, class_table
from rcil.nn import build
from tools.results import add_class
from tools.results.add_class import Task, make_site, page, row, run, with_earlier


@pytest.fixture
def source(tmp_path):
    """Five training images with cones and balls, one with balls only, and an image to test on; one pixel is ignored."""
    mask = np.zeros((64, 96), np.uint8)
    mask[8:32], mask[36:56], mask[63, 0] = 1, 2, 255
    for index in range(5):
        write_sample(tmp_path / "all", "train", f"cam{index % 2}/{index}", mask)
    write_sample(tmp_path / "all", "train", "ball", np.where(mask == 1, 1, 0))
    write_sample(tmp_path / "all", "val", "last", mask)
    (tmp_path / "all" / "classes.txt").write_text("background\nball\ncone\n")
    return read_site(tmp_path / "all", record=False)


def report(iou, drops, seconds=61.4, verdict="accepted", minutes=None):
    """What `run` returns."""
    settings = {"minutes": minutes, "training.epochs": [4, 4], "training.epoch_images": 80, "training.batch": 8}
    return {
        "old_classes": [{"name": "background", "drop": 9.0}, *({"name": n, "drop": d} for n, d in drops.items())],
        "new_classes": [{"name": "cone", "iou": iou}],
        "preflight": {"new_classes": [{"name": "cone", "images": 5}]},
        "recipe": {key: {"value": value, "reason": ""} for key, value in settings.items()},
        "verdict": verdict,
        "seconds": seconds,
        "cpu": 100.0,
    }


def test_sites_of_the_command_and_of_the_reference(source, tmp_path):
    for complete in (False, True):
        make_site(source, "cone", 3, tmp_path / f"{complete}", complete=complete)
        site = read_site(tmp_path / f"{complete}", record=False)
        assert [s.name for s in site.splits["train"]] == ["cam0/0", "cam0/4", "cam1/3"], "evenly spread"
        assert [s.name for s in site.splits["val"]] == ["last"]
        values = {split: np.unique(read_mask(site.splits[split][0].mask)).tolist() for split in site.splits}
        assert values == {"train": [0, 1, 2, 255] if complete else [0, 2, 255], "val": [0, 1, 2, 255]}


def test_a_row_judges_named_classes_only():
    found = row(Task("voc", "cone", 9), report(40.0, {"ball": 2.5, "road": -1.0, "sign": None}), report(50.0, {}))
    assert (found["images"], found["iterations"], found["share"]) == (5, 40, 0.8)
    assert (found["mean_drop"], found["largest_drop"], found["largest_drop_of"]) == (0.75, 2.5, "ball")
    assert found["goals"] == {"share": True, "mean": True, "largest": True}
    worse = row(Task("voc", "cone", 9), report(39.9, {"ball": 3.1}), report(50.0, {}))
    assert worse["goals"] == {"share": False, "mean": False, "largest": False}


def test_the_page_says_which_goals_are_missed():
    rows = [
        row(Task("camvid", "car", 9), report(45.0, {"ball": 0.5}), report(50.0, {})),
        row(Task("voc", "sofa", 9), report(20.0, {"ball": 3.4}, verdict="rejected", minutes=5.0), report(50.0, {})),
    ]
    text = page(rows)
    header, rule, *lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in (header, rule, *lines)} == {13}
    assert lines == [
        "| car | camvid | 5 | 40 (40) | 61 | 1.6 | 45.0 | 50.0 | 90% | 0.5 | 0.5 (ball) | accepted |",
        "| sofa (`--minutes 5`) | voc | 5 | 40 (40) | 61 | 1.6 | 20.0 | 50.0 | **40%** | **3.4** | **3.4** (ball) "
        "| rejected |",
    ]
    assert "- at least 80% of all labels: 1 of 2 tasks; missed by sofa" in text
    assert "- all three: 1 of 2 tasks (car)" in text
    for name in ("camvid-base", "voc-animals-base"):
        assert f"({name}.yaml)" in text and f"rcil train docs/results/{name}.yaml" in text


def test_rows_of_other_tasks_stay(tmp_path):
    old, new = ({"data": "camvid", "name": "car", "iou": iou} for iou in (1, 2))
    horse = {"data": "voc", "name": "horse", "iou": 3}
    assert with_earlier([horse], tmp_path / "no.json") == [horse]
    (tmp_path / "page.json").write_text(json.dumps({"rows": [horse, old]}))
    assert with_earlier([new], tmp_path / "page.json") == [new, horse]


class Command:
    """Stands for `rcil add-class`: is killed the first time, and writes a report the second time."""

    def __init__(self):
        self.calls = []

    def __call__(self, command, check):
        output = add_class.Path(command[command.index("-o") + 1])
        self.calls.append(command)
        output.mkdir(exist_ok=True)
        (output / "add_class.yaml").touch()
        if len(self.calls) == 2:
            (output / "report.json").write_text('{"verdict": "accepted"}')
        return subprocess.CompletedProcess(command, 143)


def test_interrupted_runs_continue_and_finished_ones_stay(tmp_path, monkeypatch):
    command, clock = Command(), iter(range(0, 1000, 7))
    monkeypatch.setattr(add_class.subprocess, "run", command)
    monkeypatch.setattr(add_class.time, "perf_counter", lambda: next(clock))
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"weights")

    def again(*options):
        return run(model, tmp_path, "cone", tmp_path / "out", options)

    with pytest.raises(SystemExit, match="exit code 143"):
        again()
    assert again()["seconds"] == 14, "of both attempts"
    assert ["--resume" in words for words in command.calls] == [False, True]
    assert again() == again() and len(command.calls) == 2
    with pytest.raises(SystemExit, match="other options"):
        again("--minutes", "3")
    model.write_bytes(b"others")
    with pytest.raises(SystemExit, match="another model"):
        again()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--camvid", "x"], "belong together"),
        (["--only", "car"], "no task is left"),
        (["--only", "tram"], "invalid choice: 'tram'"),
    ],
)
def test_impossible_requests(words, message, capsys):
    with pytest.raises(SystemExit):
        add_class.main(words)
    assert message in capsys.readouterr().err


@pytest.fixture
def old_model(tmp_path):
    """A tiny checkpoint with random weights and rows for background and ball; like one of a site, without branches."""
    model = build(Architecture(backbone="resnet18", width=4, head_width=8, rc=None), [["background", "ball"]])
    metadata = Metadata(
        architecture=model.arch,
        classes=class_table([["background", "ball"]]),
        lineage=(LineageEntry(step=0, source="train"),),
    )
    save(tmp_path / "old.safetensors", model, metadata)
    return tmp_path / "old.safetensors"


@pytest.mark.slow
def test_the_table_is_filled(tmp_path, monkeypatch, old_model, source):
    """The whole program, with a tiny model and the real command."""
    monkeypatch.setattr(add_class, "TASKS", (Task("voc", "cone", 5),))
    for index in range(3):
        write_sample(source.root, "val", f"more{index}", np.full((64, 96), 1 + index % 2, np.uint8))
    words = ["--voc", source.root, "--voc-model", old_model, "--runs", tmp_path / "runs", "--pages", tmp_path]
    add_class.main(list(map(str, words)))
    (found,) = json.loads((tmp_path / "add-class.json").read_text())["rows"]
    assert found["images"] == 5 and found["iterations"] >= 30 and found["seconds"] > 0
    assert f"| {found['iou']:.1f} | {found['reference_iou']:.1f} |" in (tmp_path / "add-class.md").read_text()

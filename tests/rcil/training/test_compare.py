import json
import math

import pytest
import torch
from safetensors.torch import load_file

from rcil.core.errors import ConfigError
from rcil.methods import METHODS, make_method
from rcil.model.header import read_header
from rcil.tasks.load import load_task
from rcil.training import compare as module
from rcil.training import run
from rcil.training.compare import as_markdown, compare, comparison_dry_run, step_means, summarise
from rcil.training.run import run_task

RESULTS = {
    "steps": [
        {"classes": []},
        {
            "classes": [
                {"name": "background", "iou": 0.8},
                {"name": "ball", "iou": 0.6},
                {"name": "cone", "iou": 0.2},
                {"name": "ghost", "iou": None},
            ]
        },
    ]
}


def test_classes_of_step_0_and_later_ones():
    means = step_means(RESULTS["steps"][-1], {"background", "ball"})
    assert means == pytest.approx({"first": 0.7, "later": 0.2, "all": 1.6 / 3})
    assert math.isnan(step_means(RESULTS["steps"][-1], {"background", "ball", "cone", "ghost"})["later"])


def test_mean_and_deviation():
    cell = summarise([0.1, 0.3, math.nan])
    assert (cell.mean, cell.seeds) == (pytest.approx(0.2), 2)
    assert cell.sd == pytest.approx(0.1414, abs=1e-4)
    assert summarise([0.5]).sd == 0
    assert math.isnan(summarise([]).mean)


def test_markdown():
    cell = {"mean": 0.621, "sd": 0.008, "seeds": 3}
    text = as_markdown(
        {"task": "t", "seeds": 3, "rows": {"mib": {"first": cell, "later": {**cell, "mean": None}, "all": cell}}}
    )
    assert "| mib | 62.1 ± 0.8 | - | 62.1 ± 0.8 |" in text


def test_the_numbers_of_the_paper_stand_beside():
    cell = {"mean": 0.5, "sd": 0.0, "seeds": 1}
    row = dict.fromkeys(("first", "later", "all"), cell)
    text = as_markdown({"task": "t", "seeds": 1, "rows": {"rcil": {**row, "paper": 59.4}, "rcil-plus": row}})
    assert text.splitlines()[2:] == [
        "| method | step 0 | later | all | paper, all |",
        "| --- | --- | --- | --- | --- |",
        "| rcil | 50.0 | 50.0 | 50.0 | 59.4 |",
        "| rcil-plus | 50.0 | 50.0 | 50.0 | - |",
    ]


def test_a_tiny_table_runs_and_finished_cells_are_kept(task_file, tmp_path, monkeypatch):
    task = load_task(task_file, ["training.epochs=[1, 1]", "method.name=mib", "method.options.weight=3"])
    document = compare(task, ["fine-tuning", "mib", "joint"], 2, tmp_path / "table")
    assert list(document["rows"]) == ["fine-tuning", "mib", "joint"]
    assert document["rows"]["mib"]["all"]["seeds"] == 2
    assert document == json.loads((tmp_path / "table" / "compare.json").read_text())
    assert (tmp_path / "table" / "compare.md").read_text() == as_markdown(document)
    monkeypatch.setattr("rcil.training.run.train_step", lambda *_: pytest.fail("a finished cell was trained again"))
    assert compare(task, ["fine-tuning", "mib", "joint"], 2, tmp_path / "table") == document


def test_every_method_takes_its_own_options(task_file, tmp_path, monkeypatch):
    seen = {}

    def record(task, output, **_):
        seen[task.method.name] = (task.method.options, task.seed, output.name)
        return RESULTS

    monkeypatch.setattr(module, "run_task", record)
    overrides = ["method.name=mib", "method.options.weight=3", "method.others.plop.floor=0.1"]
    compare(load_task(task_file, ["seed=4", *overrides]), ["lwf", "mib", "plop"], 1, tmp_path)
    assert seen == {"lwf": ({}, 4, "seed4"), "mib": ({"weight": 3}, 4, "seed4"), "plop": ({"floor": 0.1}, 4, "seed4")}


@pytest.mark.parametrize(
    ("methods", "override", "message"),
    [
        (["rcil", "polp"], "name=t", "Did you mean 'plop'"),
        (["rcil", "plop"], "method.others.plop.flor=0.1", "Did you mean 'floor'"),
        (["rcil"], "method.others.polp.floor=0.1", "Did you mean 'plop'"),
        ([], "name=t", "no method is given"),
    ],
)
def test_a_typo_is_found_before_anything_runs(task_file, tmp_path, methods, override, message):
    with pytest.raises(ConfigError, match=message):
        compare(load_task(task_file, [override]), methods, 1, tmp_path / "table")
    assert not (tmp_path / "table").exists()


def test_a_dry_run_without_a_method(task_file, tmp_path):
    with pytest.raises(ConfigError, match="no method is given"):
        comparison_dry_run(load_task(task_file), [], 1, tmp_path / "table")


def test_methods_that_start_alike_train_step_0_once(task_file, tmp_path, monkeypatch):
    """What is copied is what the method would have trained itself."""
    task = load_task(task_file, ["training.epochs=[1, 1]", "method.name=plop"])
    run_task(task, tmp_path / "alone")
    steps, real = [], run.train_step

    def count(job, *rest):
        steps.append(job.index)
        return real(job, *rest)

    monkeypatch.setattr(run, "train_step", count)
    compare(task, ["mib", "plop", "rcil"], 1, tmp_path / "table")
    assert steps == [0, 1, 1, 0, 1]
    for step in ("step0", "step1"):
        shared = load_file(tmp_path / "table" / "plop" / "seed0" / f"{step}.safetensors")
        for name, alone in load_file(tmp_path / "alone" / f"{step}.safetensors").items():
            assert torch.equal(shared[name], alone), (step, name)
    assert (tmp_path / "table" / "plop" / "seed0" / "step0" / "log.csv").is_file()


def test_methods_that_share_step_0_remember_nothing_of_it():
    made = {name: make_method(name) for name in METHODS}
    for word in {method.first_step for method in made.values()}:
        alike = [name for name, method in made.items() if method.first_step == word]
        if len(alike) > 1:
            assert all(value is None for name in alike for value in make_method(name).state_dict().values()), word


def test_a_method_with_its_own_learning_rate_trains_its_own_step_0(task_file, tmp_path):
    """plop and lwf would share step 0 with mib; plop has another rate there, lwf in later steps alone."""
    rates = "method.lr={plop: [0.005, 0.02], lwf: [0.02, 0.03]}"
    task = load_task(task_file, ["training.epochs=[1, 1]", "training.lr=[0.02, 0.01]", rates])
    seen = {}

    def listen(event):
        if event.lr and event.iteration == 1:
            seen.setdefault(event.step, []).append(event.lr)

    compare(task, ["mib", "plop", "lwf"], 1, tmp_path / "table", listen=listen)
    assert seen == {0: [0.02, 0.005], 1: [0.01, 0.02, 0.03]}


@pytest.mark.parametrize("start", [compare, comparison_dry_run])
def test_a_learning_rate_of_an_unknown_method(task_file, tmp_path, start):
    task = load_task(task_file, ["method.lr={polp: [0.1, 0.1]}"])
    with pytest.raises(ConfigError, match="Did you mean 'plop'"):
        start(task, ["mib"], 1, tmp_path / "table")


def test_rows_are_fitted_to_a_shared_step_0(task_file, tmp_path, monkeypatch):
    """A method that only finishes step 0 in its own way shares the training, and ends where it would alone."""
    options = ["method.name=rcil-plus", "method.options={late: true, fuse: false}"]
    task = load_task(task_file, ["training.epochs=[1, 1]", *options])
    run_task(task, tmp_path / "alone")
    steps, real = [], run.train_step
    monkeypatch.setattr(run, "train_step", lambda job, *rest: (steps.append(job.index), real(job, *rest))[1])
    compare(task, ["mib", "rcil-plus"], 1, tmp_path / "table")
    assert steps == [0, 1, 1]
    shared, first, alone = (
        load_file(path / "step0.safetensors")
        for path in (
            tmp_path / "table" / "rcil-plus" / "seed0",
            tmp_path / "table" / "mib" / "seed0",
            tmp_path / "alone",
        )
    )
    assert shared.keys() == alone.keys()
    assert all(torch.equal(shared[name], alone[name]) for name in alone)
    assert not torch.equal(shared["classifier.weight"], first["classifier.weight"])
    headers = [
        read_header(tmp_path / f"{run}/step0.safetensors").metadata for run in ("alone", "table/rcil-plus/seed0")
    ]
    assert headers[0] == headers[1]

import json

import pytest
from typer.testing import CliRunner

from rcil.classify import compare as module
from rcil.classify.compare import accuracy_curves, as_markdown, compare_classify, row_of
from rcil.classify.task import load_classify_task
from rcil.cli.app import app
from rcil.core.errors import ConfigError


def result(*accuracies):
    steps = [
        {"accuracy": {"all": value, "old": None if not at else value - 0.1, "new": 1.0}}
        for at, value in enumerate(accuracies)
    ]
    return {"steps": steps, "average_incremental_accuracy": sum(accuracies) / len(accuracies)}


def test_gains_are_taken_seed_by_seed():
    row = row_of([result(1.0, 0.5), result(0.8, 0.3)], [result(1.0, 0.7), result(0.8, 0.5)])
    assert row["plain"]["mean"] == pytest.approx(0.65)
    assert row["plain"]["sd"] == pytest.approx(0.1414, abs=1e-4)
    assert row["gain"]["mean"] == pytest.approx(0.1)
    assert row["gain"]["sd"] == pytest.approx(0, abs=1e-9), "both seeds gain the same, however far apart they are"
    assert row["gain"]["by_step"] == pytest.approx([0, 0.2])
    assert row["rc"]["curve"][1]["all"]["mean"] == pytest.approx(0.6)
    assert row["rc"]["curve"][1]["old"]["mean"] == pytest.approx(0.5)
    assert row["rc"]["curve"][0]["old"] is None


def test_the_table_and_the_picture():
    row = row_of([result(1.0, 0.5), result(0.8, 0.3)], [result(1.0, 0.7), result(0.8, 0.5)])
    document = {"task": "t", "seeds": 2, "classes": [5, 6], "rows": {"eeil": row, "podnet": row}}
    text = as_markdown(document)
    assert "| EEIL | 65.0 ± 14.1 | 75.0 ± 14.1 | +10.0 ± 0.0 |" in text
    assert "mean ± sd over 2 seeds" in text
    picture = accuracy_curves(document)
    assert picture.startswith(b"\x89PNG") and picture == accuracy_curves(document)
    other = row_of([result(1.0, 0.5)], [result(1.0, 0.9)])
    assert picture != accuracy_curves({**document, "rows": {"eeil": row, "podnet": other}})


def test_every_cell_runs_with_its_options_and_finished_ones_are_kept(task_file, tmp_path, monkeypatch):
    task = load_classify_task(task_file, ["training.iterations=[1, 1]", "protocol={first: 6, later_steps: 0}"])
    out = tmp_path / "table"
    document = compare_classify(task, 1, out)
    assert document == json.loads((out / "compare.json").read_text())
    assert (out / "compare.md").read_text() == as_markdown(document)
    assert (out / "curves.png").read_bytes() == accuracy_curves(document)
    assert document["classes"] == [6]
    cells = {path.name for path in out.iterdir() if path.is_dir()}
    assert cells == {"eeil", "eeil-rc", "podnet", "podnet-rc"}
    stored = json.loads((out / "podnet-rc" / "seed0" / "results.json").read_text())
    assert (stored["method"], stored["rc"]) == ("podnet", True)
    assert document["rows"]["podnet"]["rc"]["values"] == [stored["average_incremental_accuracy"]]
    assert "proxies: 2" in (out / "podnet" / "seed0" / "task.yaml").read_text()
    monkeypatch.setattr("rcil.classify.run.train_step", lambda *_: pytest.fail("a finished cell was trained again"))
    assert compare_classify(task, 1, out) == document


def test_wrong_options_of_the_other_method_are_found_before_anything_runs(task_file, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "run_classify", lambda *_, **__: pytest.fail("it ran"))
    task = load_classify_task(task_file, ["method.others.podnet.proxis=3"])
    with pytest.raises(ConfigError, match="Did you mean 'proxies'"):
        compare_classify(task, 1, tmp_path / "table")


def test_the_command(task_file, tmp_path):
    quick = ["--set", "training.iterations=[1, 1]", "--set", "protocol={first: 6, later_steps: 0}"]
    ran = CliRunner().invoke(app, ["classify", str(task_file), "-o", str(tmp_path / "run"), *quick])
    assert ran.exit_code == 0, ran.output
    assert "step 0: all" in ran.output and "average incremental accuracy" in ran.output
    as_json = CliRunner().invoke(app, ["classify", str(task_file), "-o", str(tmp_path / "run"), *quick, "--json"])
    assert json.loads(as_json.stdout) == json.loads((tmp_path / "run" / "results.json").read_text())
    seeds = CliRunner().invoke(app, ["classify", str(task_file), "-o", str(tmp_path / "x"), "--seeds", "3"])
    assert isinstance(seeds.exception, ConfigError)
    help_text = CliRunner().invoke(app, ["classify", "--help"]).output
    assert "--compare" in help_text and "Example" in help_text

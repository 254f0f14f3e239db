import json

import pytest
import torch
from sites import make_site
from typer.testing import CliRunner

from rcil.checkpoint.file import save
from rcil.cli.app import app
from rcil.core.errors import ConfigError, GateError, TrainingError
from rcil.core.reading import DataError
from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata, class_table
from rcil.nn import build


@pytest.fixture
def model(tmp_path):
    torch.manual_seed(0)
    network = build(
        Architecture(backbone="resnet18", width=4, blocks=(1, 1, 1, 1), head_width=8), [["background", "ball"]]
    )
    path = tmp_path / "old.safetensors"
    save(path, network, Metadata(architecture=network.arch, classes=class_table([["background", "ball"]])))
    return path


@pytest.fixture
def call(model, tmp_path):
    site = make_site(tmp_path / "site", images=4)
    base = ["add-class", "--from", model, "--data", site, "--class", "cone", "-o", tmp_path / "out"]
    quick = ["--epochs", "1", "--lr", "0.02", "--batch", "2", "--crop", "64", "--workers", "0"]

    def run(*more):
        return CliRunner().invoke(app, [str(word) for word in (*base, *quick, *more)], env={"COLUMNS": "120"})

    return run


def test_dry_run_writes_nothing(call, tmp_path):
    done = call("--dry-run")
    assert done.exit_code == 0
    assert "new class cone: 6,400 pixels in 4 images" in done.stdout
    assert "scale 1 (site recipe, as the checkpoint records no training); crop 64, batch 2" in done.stdout
    assert "1 iterations, about" in done.stdout and "GiB" in done.stdout
    document = json.loads(call("--dry-run", "--json").stdout)
    assert document["ok"] is True and document["new_classes"][0]["images"] == 4
    plan = document["plan"]
    assert plan["iterations"] == 1 and plan["seconds"] > 0 and plan["memory"] > 1000
    assert plan["settings"]["training.crop"] == {"value": 64, "reason": "given"}
    assert not (tmp_path / "out").exists()


def test_dry_run_with_an_error(call):
    done = call("--dry-run", "--class", "kone")
    assert isinstance(done.exception, DataError)
    assert "class kone" in done.exception.message
    assert done.exception.exit_code == 6


def test_rejected_and_resumed(call, tmp_path):
    """One training: the gate fails it with exit code 8, and so does looking at it again."""
    for more in ((), ("--resume",)):
        done = call("--min-new", "100", "--strict", "--epochs", "20", "--set", "training.optimiser=sgd", *more)
        assert isinstance(done.exception, GateError)
        assert done.exception.exit_code == 8
        assert "REJECTED: " in done.stdout
        assert "% IoU, required 100" in done.exception.message
    assert ("held-out mIoU" in done.stdout) is False, "nothing was trained again"
    shown = CliRunner().invoke(app, ["info", str(tmp_path / "out" / "model.safetensors")], env={"COLUMNS": "120"})
    assert "rejected" in shown.stdout and "required 100" in shown.stdout
    report = call(
        "--min-new", "100", "--strict", "--epochs", "20", "--set", "training.optimiser=sgd", "--resume", "--json"
    )
    assert json.loads(report.stdout)["method"] == "strict"


@pytest.mark.parametrize(
    ("option", "value"),
    [("--crop", "100000"), ("--lr", "50"), ("--minutes", "0"), ("--batch", "1000000"), ("--seed", "9" * 20)],
)
def test_absurd_numbers(call, option, value):
    done = call(option, value)
    assert done.exit_code == 2
    assert option in done.stderr and "Input should be" in done.stderr


def test_minutes_and_epochs_exclude_each_other(call, tmp_path):
    done = call("--minutes", "3")
    assert isinstance(done.exception, ConfigError) and "give one of them" in done.exception.message
    assert not (tmp_path / "out").exists()


def test_a_plan_that_does_not_fit_its_minutes(model, tmp_path, monkeypatch):
    """The images are compared in no time here, but an iteration is slow."""
    monkeypatch.setattr("rcil.site.trial._iteration", lambda *args: 10.0)
    site = make_site(tmp_path / "site", images=4)
    words = ["add-class", "--from", model, "--data", site, "--class", "cone", "-o", tmp_path / "out", "--minutes", "1"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(done.exception, TrainingError)
    assert "1 min are too short" in done.exception.message and "--minutes 6 or more" in done.exception.hint
    assert not (tmp_path / "out").exists()


def test_strict_and_a_method_exclude_each_other(call):
    assert isinstance(call("--strict", "--method", "mib").exception, ConfigError)


def test_prelabel(model, tmp_path):
    site = make_site(tmp_path / "site", images=2)
    arguments = ["prelabel", "--from", str(model), "--images", str(site), "--min-confidence", "0"]
    done = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "a")], env={"COLUMNS": "120"})
    assert done.exit_code == 0
    assert "4 images" in done.stdout and "classes.txt" in done.stdout
    done = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "b"), "--json"])
    assert len(json.loads(done.stdout)["images"]) == 4
    checked = CliRunner().invoke(app, ["data", "check", str(tmp_path / "b")])
    assert checked.exit_code == 0


def test_refit(model, tmp_path):
    site = make_site(tmp_path / "site", images=2)
    arguments = ["refit", "--from", str(model), "--data", str(site), "-o", str(tmp_path / "better.safetensors")]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert f"rcil eval {model} {tmp_path / 'better.safetensors'} --data {site}" in done.stdout
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(done.stdout)["images"] == 2


def test_pick(model, tmp_path):
    site = make_site(tmp_path / "site", images=2)
    arguments = ["pick", str(site), "--from", str(model), "--count", "2"]
    done = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "a"), "--scale", "0.5"], env={"COLUMNS": "120"})
    assert done.exit_code == 0
    assert "1 of 4 frames; 3 near-duplicates left out" in done.stdout
    following = done.stdout.splitlines()[-1].split()
    assert following[:2] == ["rcil", "prelabel"] and following[-2:] == ["--scale", "0.5"]
    labelled = CliRunner().invoke(app, following[1:])
    assert labelled.exit_code == 0 and (tmp_path / "a_labelled" / "masks").is_dir()
    done = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "b"), "--json"])
    assert len(json.loads(done.stdout)["picked"]) == 1
    done = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "c"), "--dry-run"])
    assert done.exit_code == 0 and not (tmp_path / "c").exists()

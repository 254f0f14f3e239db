"""`--device` of every command: the same names, refused early, told once."""

import json
import shlex

import pytest
import torch
import typer
import yaml
from typer.testing import CliRunner

from rcil.cli.app import app
from rcil.cli.options import with_device
from rcil.cli.progress import announce_training
from rcil.core.errors import ConfigError, TrainingError
from rcil.hardware import devices
from rcil.tasks.task import Task, TrainingSection
from rcil.training.run_record import record_task
from rcil_export.cli.app import app as export_app

COMMANDS = {
    "train": "train task.yaml -o out",
    "compare": "compare task.yaml -o out",
    "add-class": "add-class --from m.safetensors --data site --class x -o out",
    "eval": "eval m.safetensors --data site",
    "pick": "pick photos --from m.safetensors -o out",
    "prelabel": "prelabel --from m.safetensors --images photos -o out",
    "refit": "refit --from m.safetensors --data site -o out.safetensors",
    "classify": "classify classify.yaml -o out",
    "demo": "demo -o out",
}
TASK = {"data": {"root": "nowhere"}, "protocol": {"steps": [["a"]]}}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with task files of data that is not there, on a machine without a GPU."""
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(TASK))
    (tmp_path / "classify.yaml").write_text("name: t\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return tmp_path


def runs(command, *options):
    return CliRunner().invoke(app, [*shlex.split(COMMANDS[command]), *options])


def test_every_command_that_runs_a_network_is_listed():
    found = {
        name
        for name, command in typer.main.get_command(app).commands.items()
        if any("--device" in parameter.opts for parameter in command.params)
    }
    assert found == set(COMMANDS)
    fold = typer.main.get_command(export_app).commands["fold"]
    assert any("--device" in parameter.opts for parameter in fold.params)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_device_that_is_not_there_is_refused_first(here, command):
    before = sorted(here.rglob("*"))
    result = runs(command, "--device", "cuda:1")
    assert isinstance(result.exception, ConfigError), result.output
    assert result.exception.message == "device cuda:1: torch finds no GPU here"
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_device_that_does_not_exist_is_refused_by_name(here, command):
    result = runs(command, "--device", "gpu")
    assert isinstance(result.exception, ConfigError) and "unknown device 'gpu'" in result.exception.message


def test_tasks_take_the_same_names():
    assert TrainingSection(device="cuda:3").device == "cuda:3"
    with pytest.raises(ValueError, match=r"unknown device 'cdua'. Did you mean 'cuda'\?"):
        TrainingSection(device="cdua")


def test_the_option_counts_more_than_set_and_the_task():
    assert with_device(["a=1", "training.device=cpu"], "cuda:1")[-1] == "training.device=cuda:1"
    assert with_device(None, None) == []


def test_a_run_may_go_on_where_another_device_is(tmp_path):
    """The device says where, not what; everything else must be as it was."""
    task = Task.model_validate({**TASK, "training": {"device": "cuda"}})
    record_task(tmp_path, task, resume=False)
    record_task(tmp_path, Task.model_validate({**TASK, "training": {"device": "cpu"}}), resume=True)
    with pytest.raises(TrainingError, match="another task"):
        record_task(tmp_path, Task.model_validate({**TASK, "training": {"device": "cuda", "batch": 12}}), resume=True)


def two_gpus(monkeypatch):
    cuda = {"is_available": lambda: True, "device_count": lambda: 2, "get_device_name": lambda device: "Card"}
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)


def test_a_training_says_where_it_runs_and_how_to_use_idle_gpus(monkeypatch):
    two_gpus(monkeypatch)
    monkeypatch.setattr("sys.argv", ["rcil", "train", "task.yaml", "-o", "run"])
    said = []
    announce_training(TrainingSection(batch=8), 1, said.append)
    assert said[0] == "computing on cuda:0, Card"
    assert said[1].endswith("torchrun --nproc-per-node 2 -m rcil train task.yaml -o run")
    del said[:]
    announce_training(TrainingSection(batch=8, accumulate=8), 1, said.append)
    assert "torchrun" not in said[1], "a piece of one image cannot be shared"
    del said[:]
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    announce_training(TrainingSection(batch=8), 2, said.append)
    assert said == ["computing on cuda:1, Card"]
    with pytest.raises(ConfigError, match="torchrun gives every process its own") as error:
        announce_training(TrainingSection(device="cuda:0"), 2, said.append)
    assert "CUDA_VISIBLE_DEVICES" in error.value.hint


def test_the_notice_is_no_part_of_json(here, monkeypatch):
    monkeypatch.setattr(devices, "driver_gpus", lambda: (1, ""))
    monkeypatch.setattr("rcil.report.models.evaluate_models", lambda *args, **options: [])
    monkeypatch.setattr("rcil.report.models.as_document", lambda models: {"a": 1})
    monkeypatch.setattr("rcil.model.metadata.scale_notice", lambda models: [])
    monkeypatch.setattr(torch.version, "cuda", None)
    result = runs("eval", "--json")
    assert json.loads(result.stdout) == {"a": 1} and "built for CPUs only" in result.stderr
    assert result.stderr.count("computing on") == 1


def test_where_networks_are_measured(monkeypatch, tmp_path):
    """The GPU that was chosen reaches the function that runs the network."""
    two_gpus(monkeypatch)
    seen = []

    def evaluate(models, data, split, *, device, **options):
        seen.append(device)
        raise ConfigError("enough")

    monkeypatch.setattr("rcil.model.metadata.scale_notice", lambda models: [])
    monkeypatch.setattr("rcil.report.models.evaluate_models", evaluate)
    monkeypatch.setattr(
        "rcil.labelling.prelabel.prelabel", lambda *args, device, **options: evaluate(*args, device=device)
    )
    monkeypatch.setattr("rcil.demo.run.run", lambda *args, device, **options: evaluate(1, 2, 3, device=device))
    for command in ("eval", "prelabel", "demo"):
        runs(command, "--device", "cuda:1")
        runs(command)
    assert seen == ["cuda:1", "auto"] * 3

"""Interrupts at chosen moments of a training: the state of the last finished iteration is saved."""

import os
import signal

import pytest
import yaml

import rcil.training.loop
from rcil.core.interrupts import Interrupted, interruptible
from rcil.tasks.load import load_task
from rcil.training.run import run_task
from rcil.training.state import read_state
from tools.kill.train import differences


@pytest.fixture
def task(task_file):
    """Three iterations per epoch, and a validation that recalibrates batch norm; states are saved after epochs only."""
    document = yaml.safe_load(task_file.read_text())
    document["protocol"] = {"steps": [["ball"]]}
    document["network"]["blocks"] = [1, 1, 1, 1]
    document["training"] |= {"epochs": [2, 2], "epoch_images": 12, "save_every": 10_000, "settle": 1, "crop": 48}
    task_file.write_text(yaml.safe_dump(document))
    return load_task(task_file)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def position(folder):
    found = read_state(folder / "step0" / "state.pt")["position"]
    return found["epoch"], found["iteration"], len(found["rows"])


def test_the_last_finished_iteration_is_saved(task, tmp_path):
    def listen(event):
        if (event.epoch, event.iteration, event.images) == (1, 2, 4):
            interrupt()

    with pytest.raises(Interrupted) as stop, interruptible():
        run_task(task, tmp_path / "run", listen=listen)
    assert stop.value.exit_code == 130
    assert position(tmp_path / "run") == (1, 2, 3 + 1 + 2)
    for name in ("run", "whole"):
        run_task(task, tmp_path / name, resume=True)
    assert differences(tmp_path / "whole", tmp_path / "run") == []


def test_an_interrupted_validation_is_repeated(task, tmp_path, monkeypatch):
    """It has recalibrated batch norm already, which later iterations must not see."""
    validate = rcil.training.loop._validate

    def interrupted(model, job):
        validate(model, job)
        interrupt()
        raise AssertionError("the interrupt waits")

    monkeypatch.setattr(rcil.training.loop, "_validate", interrupted)
    with pytest.raises(Interrupted), interruptible():
        run_task(task, tmp_path / "run")
    monkeypatch.undo()
    assert position(tmp_path / "run") == (0, 3, 3)
    for name in ("run", "whole"):
        run_task(task, tmp_path / name, resume=True)
    assert differences(tmp_path / "whole", tmp_path / "run") == []

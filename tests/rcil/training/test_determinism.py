"""The switches of deterministic training; `tests/rcil/gpu/test_deterministic.py` looks at the kernels."""

import os

import pytest
import torch
from safetensors.torch import load_file

from rcil.hardware.processes import WORKSPACE, deterministic
from rcil.tasks.load import load_task
from rcil.training.run import run_task


def test_the_switches_are_set_and_put_back(monkeypatch):
    monkeypatch.delenv(WORKSPACE, raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with deterministic(False):
        assert not torch.are_deterministic_algorithms_enabled() and WORKSPACE not in os.environ
    with deterministic(True):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark
        assert os.environ[WORKSPACE] == ":4096:8"
    with pytest.raises(KeyError), deterministic(True):
        raise KeyError
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.deterministic and torch.backends.cudnn.benchmark


def test_a_workspace_that_the_user_chose_stays(monkeypatch):
    monkeypatch.setenv(WORKSPACE, ":16:8")
    with deterministic(True):
        assert os.environ[WORKSPACE] == ":16:8"


def test_a_run_uses_them_and_ends_with_the_same_bits_on_a_cpu(task_file, tmp_path, monkeypatch):
    monkeypatch.setenv(WORKSPACE, ":4096:8")
    seen = []
    overrides = ["training.epochs=[1, 1]", "training.device=cpu"]
    for wanted in ("false", "true"):
        run_task(
            load_task(task_file, [*overrides, f"training.deterministic={wanted}"]),
            tmp_path / wanted,
            listen=lambda event: seen.append(torch.are_deterministic_algorithms_enabled()),
        )
    assert set(seen[: len(seen) // 2]) == {False} and set(seen[len(seen) // 2 :]) == {True}
    for step in (0, 1):
        one, two = (load_file(tmp_path / wanted / f"step{step}.safetensors") for wanted in ("false", "true"))
        assert all(torch.equal(two[key], value) for key, value in one.items())

"""The clock may be set while a run is interrupted; nothing that it does depends on it."""

import time

import pytest

from rcil.tasks.load import load_task
from rcil.training.run import run_task

DAY = 86_400


class StopError(Exception):
    """Takes the place of a power cut."""


def test_a_clock_that_jumps_changes_nothing(task_file, tmp_path, monkeypatch):
    task, now = load_task(task_file), time.time
    run_task(task, tmp_path / "whole")
    seen = []

    def stop(event):
        seen.append(event)
        if len(seen) == 3:
            raise StopError

    monkeypatch.setattr(time, "time", lambda: now() + DAY)
    with pytest.raises(StopError):
        run_task(task, tmp_path / "jumped", listen=stop)
    monkeypatch.setattr(time, "time", lambda: now() - DAY)
    run_task(task, tmp_path / "jumped", resume=True)
    for name in ("results.json", "step0.safetensors", "step1.safetensors", "step1/log.csv", "step1/state.pt"):
        assert (tmp_path / "jumped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name

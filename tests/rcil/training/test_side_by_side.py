import inspect
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from rcil.core.errors import TrainingError
from rcil.tasks.load import load_task
from rcil.training import side_by_side as module
from rcil.training.compare import compare
from rcil.training.run import run_task
from rcil.training.side_by_side import Run, _pieces, run_side_by_side


def test_a_shared_step_0_comes_first_and_only_once(tmp_path):
    groups = {"mib": "plain", "joint": "joint", "rcil": "plain", "sdr": "prototypes"}
    runs = [Run(name, None, tmp_path / name, group) for name, group in groups.items()]
    pieces = [(piece.run.title, piece.needs and piece.needs.name, piece.only_first) for piece in _pieces(runs)]
    assert pieces == [
        ("mib", None, True),
        ("mib", "mib", False),
        ("rcil", "mib", False),
        ("joint", None, False),
        ("sdr", None, False),
    ]


def test_a_run_waits_for_the_step_0_that_it_shares(tmp_path):
    groups = {"mib": "plain", "rcil": "plain", "joint": "joint"}
    first, mib, rcil, joint = _pieces([Run(name, None, tmp_path / name, group) for name, group in groups.items()])
    assert first.ready and joint.ready and not (first.done or mib.ready or rcil.ready)
    (tmp_path / "mib").mkdir()
    (tmp_path / "mib" / "step0.safetensors").touch()
    assert first.done and mib.ready and rcil.ready


def compared(task_file, folder, **how):
    task = load_task(task_file, ["training.epochs=[1, 1]", "method.name=rcil-plus", "method.options={late: true}"])
    return compare(task, ["fine-tuning", "rcil-plus"], 1, folder, **how)


def test_pieces_give_what_whole_runs_give(task_file, tmp_path, monkeypatch):
    def work(piece, jobs):
        done = inspect.signature(module._work).bind(*module._arguments(piece, jobs), None).arguments
        run_task(done["task"], done["folder"], resume=True, step0_of=done["step0_of"], only_first=done["only_first"])
        return module._Started(piece, _Process(subprocess.Popen(["true"])), _NoEvents())

    one = compared(task_file, tmp_path / "one")
    monkeypatch.setattr(module, "_start", work)
    monkeypatch.setattr(module, "wait", lambda sentinels, timeout: time.sleep(0.05))
    lines = []
    assert compared(task_file, tmp_path / "two", jobs=2, announce=lines.append) == one
    assert lines[0] == "fine-tuning, seed 0: step 0" and "rcil-plus, seed 0: all steps are done" in lines


@pytest.mark.slow
def test_processes_side_by_side_give_what_one_after_the_other_gives(task_file, tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))
    try:
        one = compared(task_file, tmp_path / "one")
    finally:
        torch.set_num_threads(threads)
    assert compared(task_file, tmp_path / "two", jobs=2) == one
    for path in (tmp_path / "one").glob("*/seed0/step*.safetensors"):
        other = load_file(tmp_path / "two" / path.relative_to(tmp_path / "one"))
        assert all(torch.equal(tensor, other[name]) for name, tensor in load_file(path).items()), path


def test_a_failed_run_is_named_and_the_others_are_stopped(tmp_path, monkeypatch):
    started = []

    def start(piece, jobs):
        code = "raise SystemExit(5)" if piece.run.title == "bad" else "import time; time.sleep(60)"
        process = subprocess.Popen([sys.executable, "-c", code])
        started.append(process)
        return module._Started(piece, _Process(process), _NoEvents())

    monkeypatch.setattr(module, "_start", start)
    monkeypatch.setattr(module, "wait", lambda sentinels, timeout: time.sleep(0.05))
    runs = [Run(name, None, tmp_path / name, name) for name in ("good", "bad")]
    with pytest.raises(TrainingError, match="bad ended with exit code 5"):
        run_side_by_side(runs, 2, lambda text: None)
    assert started[0].returncode == -signal.SIGTERM


class _Process:
    """What is used of a process of multiprocessing."""

    sentinel = 0

    def __init__(self, process):
        self.process = process
        self.terminate, self.join = process.terminate, process.wait

    @property
    def exitcode(self):
        return self.process.poll()


class _NoEvents:
    def poll(self):
        return False

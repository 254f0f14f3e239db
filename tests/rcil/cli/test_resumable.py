"""SIGINT and SIGTERM on real trainings: the state is saved, and the printed command continues to the same bits."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from rcil.cli.resumable import resume_command
from rcil.tasks.load import load_task
from rcil.training.run import run_task
from tools.kill.train import differences

ROOT = Path(__file__).parents[3]
ITERATIONS = 20
RCIL = [sys.executable, "-m", "rcil"]


def environment():
    path = os.pathsep.join(map(str, (ROOT, ROOT / "export", ROOT / "serve")))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def start(words, **options):
    return subprocess.Popen(
        words, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **options
    )


def wait_for(condition, process, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def long_task(task_file):
    """More iterations than pass before a signal arrives, read by a worker process."""
    document = yaml.safe_load(task_file.read_text())
    document["protocol"] = {"steps": [["ball"]]}
    document["network"]["blocks"] = [1, 1, 1, 1]
    document["training"] |= {
        "epochs": [1, 1],
        "epoch_images": 4 * ITERATIONS,
        "save_every": 2,
        "workers": 1,
        "crop": 48,
    }
    task_file.write_text(yaml.safe_dump(document))
    return task_file


@pytest.mark.parametrize(("number", "group"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_a_signal_saves_the_state_and_a_resumed_run_has_the_same_bits(long_task, tmp_path, number, group):
    run, whole = tmp_path / "my run", tmp_path / "whole"
    words = [*RCIL, "train", str(long_task), "-o", str(run), "--json"]
    process = start(words, start_new_session=True)
    wait_for((run / "step0" / "state.pt").exists, process)
    if group:  # as a terminal does: the loader's worker gets it too
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 128 + number, said
    assert "Traceback" not in said
    assert shlex.split(said.splitlines()[-1]) == [*words, "--resume"]
    assert not (run / "step0.safetensors").exists(), "the signal came too late for a test"
    for output in (run, whole):
        run_task(load_task(long_task), output, resume=True)
    assert differences(whole, run) == []


def test_an_ignored_sigint_stays_ignored(long_task, tmp_path):
    """As under `nohup`, or in the background of a script."""
    ignoring = (
        f"trap '' INT; exec {shlex.join([*RCIL, 'train', str(long_task), '-o', str(tmp_path / 'run'), '--json'])}"
    )
    process = start(["sh", "-c", ignoring])
    wait_for(lambda: (tmp_path / "run" / "step0").exists(), process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert (process.returncode, said) == (0, "")


def test_the_command_is_the_users_own():
    words = ["train", "my task.yaml", "-o", "run"]
    python = ["/usr/bin/python", "-m", "rcil", *words]
    assert resume_command(python, ["/x/rcil/__main__.py", *words], {}, "--resume") == (
        "/usr/bin/python -m rcil train 'my task.yaml' -o run --resume"
    )
    script = ["/venv/bin/python", "/no/such/rcil", *words]
    assert resume_command(script, script[1:], {}, None) == "/no/such/rcil train 'my task.yaml' -o run"
    assert resume_command(script, [*script[1:], "--resume"], {}, "--resume").count("--resume") == 1
    elastic = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "1"}
    assert resume_command(python, ["/x/__main__.py", *words], elastic, "--resume") == (
        "torchrun --nproc-per-node 2 -m rcil train 'my task.yaml' -o run --resume"
    )

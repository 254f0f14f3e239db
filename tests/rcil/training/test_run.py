"""Whole runs: results, and the promise that an interrupted run ends like an uninterrupted one, bit for bit."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import call
from safetensors.torch import load_file
from sites import write_task

from rcil.core.errors import ConfigError, TrainingError
from rcil.data.scan import data_digest
from rcil.data.types import Sample
from rcil.methods import METHODS
from rcil.model.header import read_header
from rcil.tasks.load import load_task
from rcil.tasks.plan import make_plan
from rcil.training import loop
from rcil.training.run import run_task, spread


def tensors(folder, step):
    return load_file(folder / f"step{step}.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.fixture(scope="module")
def task_file(tmp_path_factory):
    """The tiny task; nothing writes to it."""
    return write_task(tmp_path_factory.mktemp("task"))


@pytest.fixture(scope="module")
def finished(task_file, tmp_path_factory):
    """An uninterrupted run; nothing writes to it."""
    output = tmp_path_factory.mktemp("finished") / "whole"
    run_task(load_task(task_file), output)
    return output


@pytest.fixture
def whole(finished, tmp_path):
    """A copy of an uninterrupted run."""
    return shutil.copytree(finished, tmp_path / "whole")


def best_of(folder):
    """The largest held-out mIoU of a step's log."""
    rows = csv.DictReader((folder / "log.csv").read_text().splitlines())
    return max(float(row["held_out_miou"]) for row in rows if row["held_out_miou"])


def test_a_run_leaves_checkpoints_logs_and_results(whole, task_file):
    results = json.loads((whole / "results.json").read_text())
    assert [step["teaches"] for step in results["steps"]] == [["background", "ball"], ["cone"]]
    assert results["steps"][0]["miou"]["old"] is None
    assert results["steps"][1]["miou"]["old"] is not None
    header = read_header(whole / "step1.safetensors")
    assert [c.name for c in header.metadata.classes] == ["background", "ball", "cone"]
    assert [entry.step for entry in header.metadata.lineage] == [0, 1]
    last = header.metadata.lineage[-1]
    assert last.metrics["held_out_miou"] == pytest.approx(best_of(whole / "step1"))
    assert last.metrics["training_images"] > 0 and last.metrics["held_out_images"] > 0
    by_class = [value for name, value in last.metrics.items() if name.startswith("iou ")]
    assert sum(by_class) / len(by_class) == pytest.approx(100 * last.metrics["held_out_miou"])
    assert last.data_sha256 == data_digest(make_plan(load_task(task_file)).data.splits["train"])
    assert header.metadata.architecture.rc.frozen
    rows = list(csv.DictReader((whole / "step1" / "log.csv").read_text().splitlines()))
    assert {"unce", "unkd", "pcd_spatial", "pcd_channel", "held_out_miou"} <= rows[0].keys()
    assert sum(bool(row["held_out_miou"]) for row in rows) == 2


def test_the_optimiser_has_no_state_for_the_frozen_branch(whole):
    state = torch.load(whole / "step1" / "state.pt", weights_only=True)
    frozen = {key for key in state["model"] if ".old." in key}
    assert frozen
    assert len(state["optimiser"]["state"]) < len(
        [k for k in state["model"] if "running" not in k and "tracked" not in k]
    )
    before, after = tensors(whole, 0), state["model"]
    assert not any(key in before for key in frozen if key.endswith("old.weight")), "merged convs are new tensors"
    assert torch.isfinite(torch.stack([after[key].abs().sum() for key in frozen])).all()


@pytest.mark.parametrize("stop_at", [1, 3, 5])
def test_an_exception_anywhere_and_resume_end_bit_identical(task_file, tmp_path, whole, stop_at):
    """Stops inside step 0, between its epochs, and inside step 1."""
    seen = 0

    def interrupt(event):
        nonlocal seen
        seen += event.miou is None
        if seen == stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_task(load_task(task_file), tmp_path / "cut", listen=interrupt)
    results = run_task(load_task(task_file), tmp_path / "cut", resume=True)
    for step in (0, 1):
        assert same(tensors(tmp_path / "cut", step), tensors(whole, step))
    assert results == json.loads((whole / "results.json").read_text())


@pytest.mark.parametrize("stage", ["before", "during", "after"])
def test_a_run_interrupted_around_the_fitting_of_rows_ends_bit_identical(task_file, tmp_path, stage):
    """During: the rows fitted before the step are not fitted again."""
    task = load_task(task_file, ["method.name=rcil-plus"])
    run_task(task, tmp_path / "whole")

    def interrupt(event):
        moment = (event.step, event.epoch, event.processed is not None)
        if moment == {"before": (1, 0, True), "during": (1, 1, False), "after": (1, 1, True)}[stage]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_task(task, tmp_path / "cut", listen=interrupt)
    run_task(task, tmp_path / "cut", resume=True)
    for step in (0, 1):
        assert same(tensors(tmp_path / "cut", step), tensors(tmp_path / "whole", step))


@pytest.mark.parametrize(
    "override",
    [
        "method.options={fuse: regmean, replay: true}",
        "method.options={refit: ridge, fuse: true, share: 0.3}",
        "method.options={reliable: 0.1}",
        "method.name=dft",
    ],
)
def test_options_run_and_resume_bit_identical(task_file, tmp_path, override):
    """Interrupted in step 1, after its rows have been fitted and before they are fitted again."""
    task = load_task(task_file, ["method.name=rcil-plus", override])
    run_task(task, tmp_path / "whole")

    def interrupt(event):
        if (event.step, event.epoch, event.processed) == (1, 1, None):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_task(task, tmp_path / "cut", listen=interrupt)
    run_task(task, tmp_path / "cut", resume=True)
    for step in (0, 1):
        assert same(tensors(tmp_path / "cut", step), tensors(tmp_path / "whole", step))
        one, other = (read_header(tmp_path / run / f"step{step}.safetensors").metadata for run in ("cut", "whole"))
        assert one.features == other.features
        assert (one.features is not None and one.features.ridge is not None) == ("ridge" in override)


def test_whole_images_are_counted_while_a_method_looks_at_them(task_file, tmp_path):
    """After step 0, and before and after a later step, in which the same images are seen."""
    seen = []
    run_task(load_task(task_file, ["method.name=rcil-plus"]), tmp_path / "run", listen=seen.append)
    looks = {}
    for event in seen:
        if event.processed is not None:
            looks.setdefault((event.step, event.epoch, event.iteration > 0), []).append(event.processed)
    assert list(looks) == [(0, 1, True), (1, 0, False), (1, 1, True)]
    for counts in looks.values():
        assert counts == [(taken, len(counts)) for taken in range(1, len(counts) + 1)]
    assert len(looks[1, 0, False]) == len(looks[1, 1, True]) > 1


def test_layers_are_measured_on_the_same_whole_images(task_file, tmp_path):
    """Fusion in closed form looks at them once more, before the rows are fitted."""
    seen = []
    task = load_task(task_file, ["method.name=rcil-plus", "method.options={fuse: regmean}"])
    run_task(task, tmp_path / "run", listen=seen.append)
    taken = [event.processed for event in seen if event.processed is not None and event.step == 1 and event.epoch == 1]
    assert taken and taken[: len(taken) // 2] == taken[len(taken) // 2 :]


KILLED = """
import os, signal, sys
from pathlib import Path
from rcil.tasks.load import load_task
from rcil.training.run import run_task

def kill(event):
    if (output / "step1" / "state.pt").exists():
        os.kill(os.getpid(), signal.SIGKILL)

task, output = map(Path, sys.argv[1:])
run_task(load_task(task), output, listen=kill)
"""


def test_kill_9_and_resume_end_bit_identical(task_file, tmp_path, whole):
    output = tmp_path / "killed"
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", KILLED, task_file, output], env=env, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (output / "step1.safetensors").exists()
    run_task(load_task(task_file), output, resume=True)
    for step in (0, 1):
        assert same(tensors(output, step), tensors(whole, step))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_runs(task_file, tmp_path, name):
    overrides = [f"method.name={name}", "training.epochs=[1, 1]"]
    results = run_task(load_task(task_file, overrides), tmp_path / "run")
    assert len(results["steps"]) == (1 if name == "joint" else 2)
    assert read_header(tmp_path / "run" / "step0.safetensors").metadata.method == name


@pytest.mark.parametrize("name", ["plop", "rcil", "rcil-official", "rcil-plus", "sdr"])
def test_methods_distil_maps_of_v3plus(task_file, tmp_path, name):
    """Their maps at stride 4 and at the output stride differ in size."""
    overrides = [f"method.name={name}", "network.head=deeplabv3plus", "training.lr=[0.01, 0.001]"]
    run_task(load_task(task_file, overrides), tmp_path / "run")
    arch = read_header(tmp_path / "run" / "step1.safetensors").metadata.architecture
    assert arch.head == "deeplabv3plus"


def test_bf16_runs_and_stays_close(task_file, tmp_path, whole):
    run_task(load_task(task_file, ["training.precision=bf16"]), tmp_path / "bf16")
    rows = [
        next(csv.DictReader((folder / "step0" / "log.csv").read_text().splitlines()))
        for folder in (whole, tmp_path / "bf16")
    ]
    assert float(rows[1]["ce"]) == pytest.approx(float(rows[0]["ce"]), rel=0.05)


def test_a_non_finite_loss_names_step_term_and_checkpoint(task_file, tmp_path, monkeypatch):
    real = loop._forward

    def poisoned(student, old, *rest):
        terms = real(student, old, *rest)
        if old is not None:
            terms["unkd"] = terms["unkd"] * float("nan")
        return terms

    monkeypatch.setattr(loop, "_forward", poisoned)
    with pytest.raises(TrainingError, match=r"step 1, epoch 0, iteration 0: the loss term unkd is not finite"):
        run_task(load_task(task_file), tmp_path / "run")
    assert (tmp_path / "run" / "step0.safetensors").exists(), "what was finished is kept"


class TestFolders:
    def test_a_folder_in_use_is_refused(self, task_file, whole):
        with pytest.raises(ConfigError, match="--resume"):
            run_task(load_task(task_file), whole)

    def test_another_task_is_not_resumed(self, task_file, whole):
        with pytest.raises(TrainingError, match="another task"):
            run_task(load_task(task_file, ["training.batch=2"]), whole, resume=True)

    def test_a_damaged_state_is_named(self, task_file, whole):
        (whole / "step1.safetensors").unlink()
        (whole / "step1" / "state.pt").write_bytes(b"cut off")
        with pytest.raises(TrainingError, match=r"state\.pt"):
            run_task(load_task(task_file), whole, resume=True)

    @pytest.mark.parametrize("method", ["rcil", "plop"])
    def test_the_folders_of_finished_steps_may_be_gone(self, task_file, tmp_path, method):
        """What PLOP remembers is of one step alone."""
        task = load_task(task_file, [f"method.name={method}", "training.epochs=[1, 1]"])
        results = run_task(task, tmp_path / "run")
        for step in (0, 1):
            shutil.rmtree(tmp_path / "run" / f"step{step}")
        assert run_task(task, tmp_path / "run", resume=True) == results

    def test_but_not_what_a_method_remembers(self, task_file, tmp_path):
        task = load_task(task_file, ["method.name=sdr", "training.epochs=[1, 1]"])
        run_task(task, tmp_path / "run")
        shutil.rmtree(tmp_path / "run" / "step0")
        with pytest.raises(TrainingError, match=r"method\.pt") as caught:
            run_task(task, tmp_path / "run", resume=True)
        assert f"Delete {tmp_path / 'run' / 'step0.safetensors'} and the files of later steps" in caught.value.hint
        for step in (0, 1):
            (tmp_path / "run" / f"step{step}.safetensors").unlink()
        shutil.rmtree(tmp_path / "run" / "step1")
        run_task(task, tmp_path / "run", resume=True)

    def test_resuming_a_finished_run_changes_nothing(self, task_file, whole):
        before = tensors(whole, 1)
        run_task(load_task(task_file), whole, resume=True)
        assert same(before, tensors(whole, 1))


def test_command_line_errors_have_no_traceback(task_file, tmp_path):
    done = call("rcil train", str(task_file), "-o", str(tmp_path / "x"), "--set", "trainig.batch=2")
    assert done.code == 2
    assert "Did you mean 'training'" in done.err
    assert "Traceback" not in done.err


def test_settling_changes_statistics_and_no_weight(task_file, tmp_path):
    """The norms of step 0 alone: a later step has another teacher then."""
    files = {}
    for settle in (0, 2):
        overrides = [f"training.settle={settle}", "protocol.steps=[[ball]]", "training.epochs=[1,1]"]
        run_task(load_task(task_file, overrides), tmp_path / str(settle))
        files[settle] = load_file(tmp_path / str(settle) / "step0.safetensors")
    for name, value in files[0].items():
        statistic = name.endswith(("running_mean", "running_var", "num_batches_tracked"))
        assert torch.equal(value, files[2][name]) != statistic, name


def samples(count):
    return tuple(Sample(str(i), Path(f"{i}.jpg"), Path(f"{i}.png")) for i in range(count))


def test_a_look_at_some_of_the_held_out_images_covers_them_all():
    assert [s.name for s in spread(samples(10), 4)] == ["0", "2", "5", "7"]
    assert spread(samples(3), 5) == spread(samples(3), 3) == spread(samples(3), None) == samples(3)


def test_the_window_of_the_pooled_path_reaches_the_checkpoint(task_file, tmp_path):
    run_task(load_task(task_file, ["network.pool_window=2"]), tmp_path / "run")
    for step in (0, 1):
        assert read_header(tmp_path / "run" / f"step{step}.safetensors").metadata.architecture.pool_window == 2

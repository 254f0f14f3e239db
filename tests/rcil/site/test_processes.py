"""`add-class` under torchrun: two gloo processes do together what one does, and one of them speaks."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch
from safetensors.torch import load_file

from rcil.data.site import read_site
from rcil.hardware.processes import Processes
from rcil.inference import Model
from rcil.site.forgetting import Pair, compare
from rcil.site.request import step_request
from rcil.site.run import add_class
from rcil.site.verdict import Limits, judge

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "rcil"]


def run(old_model, site, output, *options):
    command = [*TORCHRUN, "add-class", "--from", str(old_model), "--data", str(site), "--class", "cone"]
    command += ["-o", str(output), "--epochs", "1", "--batch", "4", "--crop", "64", "--workers", "0", "--lr", "0.02"]
    command += ["--method", "rcil", "--device", "cpu", "--set", "training.optimiser=sgd", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow  # torchrun and two interpreters
def test_two_processes_come_to_the_result_of_one(old_model, site, tmp_path):
    training = {"epochs": 1, "lr": 0.02, "batch": 4, "crop": 64, "workers": 0, "optimiser": "sgd", "device": "cpu"}
    limits = {"max_drop": 100, "min_new": 0}
    same = step_request(old_model, site, ["cone"], method="rcil", training=training, overrides=(), **limits)
    alone = add_class(same, tmp_path / "one")
    done = run(old_model, site, tmp_path / "two", "--max-drop", "100", "--min-new", "0", "--json")
    assert done.returncode == 0, done.stderr
    together = json.loads(done.stdout)
    assert together == json.loads((tmp_path / "two" / "report.json").read_text()), "one process reports"
    assert together["images"] == alone["images"] and together["rejected"] is None
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for key, value in one.items():
        assert torch.allclose(two[key].float(), value.float(), rtol=1e-3, atol=1e-3), key
    for mine, other in zip(together["old_classes"], alone["old_classes"], strict=True):
        assert mine["drop"] == pytest.approx(other["drop"], abs=1.0)
    assert {p.name for p in (tmp_path / "two").iterdir()} == {p.name for p in (tmp_path / "one").iterdir()}


@pytest.mark.slow
def test_a_rejected_model_and_a_bad_request_are_told_once(old_model, site, tmp_path):
    done = run(old_model, site, tmp_path / "out", "--max-drop", "0")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["rejected"] and done.returncode != 0
    assert done.stderr.count("is marked as rejected") == 1
    assert done.stdout.count("model, report and pictures") == 1
    again = run(old_model, site, tmp_path / "out", "--max-drop", "0")
    assert again.returncode != 0 and again.stderr.count("holds a run already") == 1
    assert "rcil/" not in again.stderr.replace("torch/distributed", ""), "no traceback of ours"
    odd = run(old_model, site, tmp_path / "odd", "--set", "training.batch=5")
    assert odd.stderr.count("cannot be divided into 2 equal pieces") == 1
    assert not (tmp_path / "odd").exists()


@dataclass(frozen=True)
class Thread(Processes):
    """One of two processes, as a thread."""

    meeting: threading.Barrier
    table: list

    def sum_array(self, value):
        self.table[self.rank] = value
        self.meeting.wait(timeout=60)
        total = sum(self.table)
        self.meeting.wait(timeout=60)
        return total


def test_both_processes_come_to_the_verdict_of_one(site, painter, described):
    data = read_site(site)
    before, after = described(("background", "ball")), described(("background", "ball"), ("cone",))
    pair = Pair(Model(painter([0, 1, 0], 2), before), Model(painter([0, 0, 2], 3), after), data)
    samples = data.splits["val"][:5]
    meeting, table, seen = threading.Barrier(2), [None, None], [[], []]

    def work(rank):
        return compare(
            pair,
            samples,
            {"ball"},
            progress=lambda done, total: seen[rank].append(done),
            processes=Thread(rank, 2, torch.device("cpu"), meeting, table),
        )

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(work, (0, 1))
    assert first == second == compare(pair, samples, {"ball"})
    assert seen == [[1, 3, 5], [2, 4]], "each sample is looked at by one of them"
    assert judge(first[0], Limits(5, 20)).reason == "ball dropped 100.0 points, limit 5"

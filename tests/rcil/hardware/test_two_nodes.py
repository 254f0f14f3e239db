"""Two agents of `torchrun` that meet at a port, as on two machines, train what one process trains."""

import os
import socket
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from rcil.tasks.load import load_task
from rcil.training.run import run_task

OVERRIDES = ["training.epochs=[1, 1]", "network.norm=abs", "training.lr=[0.01, 0.001]"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow  # two agents and two interpreters
def test_two_agents_equal_one_process(task_file, tmp_path):
    run_task(load_task(task_file, OVERRIDES), tmp_path / "one")
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "7"]
    agent += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "-m", "rcil", "train"]
    agent += [str(task_file), "-o", str(tmp_path / "two"), *(word for o in OVERRIDES for word in ("--set", o))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(agent, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ends = [process.communicate(timeout=600) for process in running]
    assert [process.returncode for process in running] == [0, 0], ends
    assert sum(out.count("step 1, epoch 1/1") for out, _ in ends) == 1, "one process reports"
    for step in (0, 1):
        one, two = (load_file(tmp_path / name / f"step{step}.safetensors") for name in ("one", "two"))
        for key, value in one.items():
            if value.is_floating_point():
                assert torch.allclose(two[key], value, rtol=1e-3, atol=(2e-5, 1e-3)[step]), (step, key)

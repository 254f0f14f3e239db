"""Two gloo processes compute the gradient of one, in double precision, over a whole later step's objective."""

import os

import pytest
import torch
import torch.multiprocessing as mp
from networks import at_step, small_arch

from rcil.hardware.processes import ALONE, cudnn_tuned, join, leave
from rcil.methods import StepInfo, make_method
from rcil.model.metadata import Metadata, class_table
from rcil.nn import fold
from rcil.nn.units.sync import synchronise_norms
from rcil.tasks.task import TrainingSection
from rcil.training.loop import StepJob, _distributed, _learn, _new_state


def gradients(name, processes):
    """Loss terms and gradients of this process's share of four images."""
    torch.manual_seed(0)
    teacher = at_step(small_arch("resnet18", norm="abs"), 0).double()
    method = make_method(name)
    student = method.begin(teacher, ["cone"]).train()
    old = fold(teacher)[0].eval()
    settings = TrainingSection(batch=4)
    metadata = Metadata(architecture=student.arch, classes=class_table([list(student.names)]))
    info = StepInfo(len(teacher.names), 1)
    job = StepJob(1, info, metadata, None, None, (), settings, 1.0, None, processes)
    images = torch.randn(4, 3, 96, 96, dtype=torch.float64)
    labels = torch.randint(0, 2, (4, 96, 96)) * info.old
    method.sum_over_processes = processes.sum
    part = slice(2 * processes.rank, 2 * processes.rank + 2) if processes.count > 1 else slice(None)
    if name == "plop":
        method.prepare([(old(images[part], maps=method.maps), labels[part])], info, student)
    if processes.count > 1:
        student = synchronise_norms(student)
    network = _distributed(student, processes)
    torch.manual_seed(1)
    terms = _learn(network, old, _new_state(student, method, job, 10), [(images[part], labels[part])], job)
    return {**terms, **{n: p.grad for n, p in student.named_parameters() if p.grad is not None}}


def worker(rank, name, folder):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0")
    init = torch.distributed.init_process_group
    torch.distributed.init_process_group = lambda backend: init(
        backend, init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    with join("cpu") as processes:
        torch.save(gradients(name, processes), f"{folder}/{rank}.pt")
    leave()


@pytest.mark.parametrize("name", ["rcil", "plop"])
def test_gradients_are_those_of_the_whole_batch(name, tmp_path):
    mp.spawn(worker, (name, str(tmp_path)), nprocs=2)
    expected = gradients(name, ALONE)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert first.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, float):
            assert first[key] == second[key] == pytest.approx(value, rel=1e-9)
        else:
            assert torch.equal(first[key], second[key])
            scale = value.abs().max().item()
            assert torch.allclose(first[key], value, rtol=1e-6, atol=1e-6 * scale), key


@pytest.mark.parametrize(
    ("device", "deterministic", "expected"), [("cuda", False, True), ("cuda", True, False), ("cpu", False, False)]
)
def test_cudnn_is_tuned_for_the_device_in_use(monkeypatch, device, deterministic, expected):
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: deterministic)
    before = torch.backends.cudnn.benchmark
    with cudnn_tuned(torch.device(device)):
        assert torch.backends.cudnn.benchmark is expected
    assert torch.backends.cudnn.benchmark is before

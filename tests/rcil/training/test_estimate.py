import pytest
import torch

from rcil.core.errors import ConfigError
from rcil.nn import Segmenter
from rcil.tasks.load import load_task
from rcil.tasks.plan import make_plan
from rcil.training import estimate as module
from rcil.training.estimate import estimate


def test_every_step_is_estimated(task_file, monkeypatch):
    monkeypatch.setattr(module, "_trial", lambda *_: 0.5)
    task = load_task(task_file)
    plan = make_plan(task)
    first, second = estimate(task)
    assert (first.step, first.images) == (0, len(plan.steps[0].train))
    assert first.iterations == 2 * (first.images // 4)
    assert first.seconds == pytest.approx(first.iterations * 4 * 0.5)
    assert second.seconds / second.iterations > first.seconds / first.iterations, "the teacher costs too"
    assert second.memory > 0
    halved = estimate(task, processes=2)[0]
    assert halved.seconds == pytest.approx(first.seconds / 2)
    assert halved.memory < first.memory


def test_large_crops_are_tried_small(task_file, monkeypatch):
    seen = []
    monkeypatch.setattr(module, "_trial", lambda model, size, device: seen.append(size) or 1.0)
    task = load_task(task_file, ["training.crop=512", "method.name=joint"])
    (only,) = estimate(task)
    assert seen == [256]
    assert only.seconds == pytest.approx(only.iterations * 4 * 4.0)


def test_a_trial_takes_time(task_file):
    assert estimate(load_task(task_file, ["training.crop=32"]))[0].seconds > 0


def test_the_trial_is_where_the_training_will_be(task_file, monkeypatch):
    seen = []

    def record(module, inputs):
        seen.append({inputs[0].device.type, *(p.device.type for p in module.parameters())})

    monkeypatch.setattr(module, "device_for", lambda wanted: torch.device({"cpu": "cpu", "auto": "meta"}[wanted]))
    for wanted in ("cpu", "auto"):
        with torch.nn.modules.module.register_module_forward_pre_hook(
            lambda part, inputs: record(part, inputs) if isinstance(part, Segmenter) and part.training else None
        ):
            assert estimate(load_task(task_file, ["training.crop=32", f"training.device={wanted}"]))[0].seconds > 0
    assert {"cpu"} in seen and seen.count({"meta"}) > seen.count({"cpu"})


def test_batches_that_cannot_be_computed(task_file):
    with pytest.raises(ConfigError, match="a piece of one image"):
        estimate(load_task(task_file, ["training.batch=1"]))
    with pytest.raises(ConfigError, match="4 cannot be divided into 3"):
        estimate(load_task(task_file, ["training.accumulate=3"]))

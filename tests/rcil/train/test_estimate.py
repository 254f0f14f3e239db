import pytest

from rcil.train import estimate as module
from rcil.train.estimate import estimate
from rcil.train.plan import make_plan
from rcil.train.task import load_task


def test_every_step_is_estimated(task_file, monkeypatch):
    monkeypatch.setattr(module, "_trial", lambda model, size: 0.5)
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
    monkeypatch.setattr(module, "_trial", lambda model, size: seen.append(size) or 1.0)
    task = load_task(task_file, ["training.crop=512", "method.name=joint"])
    (only,) = estimate(task)
    assert seen == [256]
    assert only.seconds == pytest.approx(only.iterations * 4 * 4.0)


def test_a_trial_takes_time(task_file):
    assert estimate(load_task(task_file, ["training.crop=32"]))[0].seconds > 0

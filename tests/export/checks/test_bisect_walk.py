"""Layers in an order that keeps few values."""

from rcil_export.checks.bisect import walk

CHAIN = {f"a{i}": [f"a{i - 1}"] if i else [] for i in range(6)}
NEEDS = CHAIN | {f"b{i}": [f"a{i}", *([f"a{i - 1}", f"b{i - 1}"] if i else [])] for i in range(6)}


def run(needs):
    seen, known = [], []

    def compute(task, values):
        known.append(set(values))
        assert set(needs[task]) <= set(values)
        return task

    for task, value in walk(needs, compute, lambda task: task.startswith("b")):
        assert task == value
        seen.append(task)
    return seen, known


def test_everything_runs_once_and_consumers_run_as_soon_as_they_can():
    seen, _ = run(NEEDS)
    assert seen == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4", "a5", "b5"]


def test_values_that_nobody_needs_any_more_are_forgotten():
    _, known = run(NEEDS)
    assert max(map(len, known)) == 3


def test_a_consumer_that_reads_a_later_layer_waits_for_it():
    needs = {**CHAIN, "b0": ["a0", "a5"], "b1": ["a1", "b0"]}
    seen, _ = run(needs)
    assert seen == ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1"]

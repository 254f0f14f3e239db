import json
from pathlib import Path

import numpy as np
import pytest

from rcil.core.errors import ConfigError
from rcil.data import protocol
from rcil.data.datasets.cityscapes import CITIES
from rcil.data.protocol import class_steps, domain_steps, load_order, parse_split, select, split_order, steps_of_domains
from rcil.data.types import Sample

TASKS = json.loads((Path(__file__).parents[2] / "golden" / "voc_tasks.json").read_text())["tasks"]


def groups(dataset, task):
    return [classes for _, classes in sorted(TASKS[dataset][task].items(), key=lambda item: int(item[0]))]


@pytest.mark.parametrize(("split", "task"), [("15-5", "15-5"), ("15-1", "15-5s"), ("10-1", "10-1"), ("19-1", "19-1")])
def test_voc_tasks_are_the_official_ones(split, task):
    assert split_order(range(21), *parse_split(split)) == groups("voc", task)


@pytest.mark.parametrize("letter", "abcde")
def test_the_shipped_orders_are_the_official_ones(letter):
    task = "15-5s" if letter == "a" else f"15-5s_{letter}"
    assert split_order(load_order(f"voc-{letter}"), 15, 1) == groups("voc", task)


@pytest.mark.parametrize(
    ("split", "task"), [("100-50", "100-50"), ("100-10", "100-10"), ("100-5", "100-5"), ("50-50", "50")]
)
def test_ade_tasks_are_the_official_ones(split, task):
    assert split_order(range(151), *parse_split(split)) == groups("ade", task)


@pytest.mark.parametrize(("dataset", "task"), [(d, t) for d in ("voc", "ade") for t in TASKS[d]])
def test_every_official_task_is_an_even_split_of_its_order(dataset, task):
    expected = groups(dataset, task)
    per_step = len(expected[1]) if len(expected) > 1 else 1
    order = [c for group in expected for c in group]
    assert split_order(order, len(expected[0]) - 1, per_step) == expected
    assert [list(step.classes) for step in class_steps(expected)] == expected


@pytest.mark.parametrize("task", ["11-5", "11-1", "1-1"])
def test_cityscapes_domains_are_the_official_ones(task):
    expected = [[CITIES[city] for city in group] for group in groups("cityscapes_domain", task)]
    assert domain_steps(CITIES, *parse_split(task)) == expected


def test_a_domain_step_brings_scenes_and_keeps_all_classes():
    first, second = steps_of_domains([["ulm", "jena"], ["bonn"]], classes=3)
    assert (first.classes, first.seen, first.domains) == ((0, 1, 2), (0, 1, 2), ("ulm", "jena"))
    assert (second.index, second.classes, second.seen, second.domains) == (1, (), (0, 1, 2), ("bonn",))
    for step in (first, second):
        assert protocol.training_table(step)[[0, 1, 2, 3, 200, 255]].tolist() == [0, 1, 2, 255, 255, 255]


def test_a_step_knows_its_classes_and_all_before():
    steps = class_steps([[0, 3, 1], [2], [5, 4]])
    assert steps[1].classes == (2,)
    assert steps[2].seen == (0, 3, 1, 2, 5, 4)
    assert steps[0].foreground == (3, 1)


PRESENT = {
    "old": frozenset({0, 1}),
    "new": frozenset({0, 2}),
    "both": frozenset({0, 1, 2, 255}),
    "later": frozenset({0, 2, 3}),
    "empty": frozenset({0, 255}),
}


@pytest.mark.parametrize(
    ("setting", "index", "expected"),
    [
        ("overlapped", 0, ["old", "both"]),
        ("overlapped", 1, ["new", "both", "later"]),
        ("overlapped", 2, ["later"]),
        ("disjoint", 0, ["old"]),
        ("disjoint", 1, ["new", "both"]),
        ("disjoint", 2, ["later"]),
    ],
)
def test_which_images_a_step_sees(setting, index, expected):
    steps = class_steps([[0, 1], [2], [3]])
    assert select(steps[index], PRESENT, setting) == expected


def test_disjoint_steps_share_no_image_when_classes_do_not_come_back():
    rng = np.random.default_rng(0)
    present = {str(i): frozenset(rng.choice(7, size=3)) for i in range(300)}
    steps = class_steps([[0, 1, 2], [3, 4], [5], [6]])
    chosen = [set(select(step, present, "disjoint")) for step in steps]
    assert all(not a & b for i, a in enumerate(chosen) for b in chosen[:i])
    assert set().union(*chosen) == {name for name, ids in present.items() if ids - {0}}


def test_labels_of_earlier_and_later_classes_are_background():
    step = class_steps([[0, 4, 2], [1], [3]])[1]
    assert protocol.training_table(step)[[0, 1, 2, 3, 4, 200, 255]].tolist() == [0, 3, 0, 0, 0, 0, 255]


def test_samples_by_domain():
    a, b, c = (Sample(n, Path(n), Path(n), domain=d) for n, d in (("a", "ulm"), ("b", "jena"), ("c", "ulm")))
    assert protocol.by_domain([a, b, c], ["ulm"]) == [a, c]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: parse_split("15"), "X-Y"),
        (lambda: parse_split("15-0"), "X-Y"),
        (lambda: split_order(range(21), 15, 2), "multiple of Y"),
        (lambda: split_order(range(21), 25, 1), "cannot be split"),
        (lambda: class_steps([[1, 2]]), "background"),
        (lambda: class_steps([[0, 1], [1]]), "in two steps"),
        (lambda: class_steps([[0, 1], []]), "a step has no classes"),
        (lambda: class_steps([[0], [1]]), "a step has no classes"),
        (lambda: class_steps([[0, 255]]), "ignore"),
        (lambda: load_order("voc-aa"), "Did you mean"),
        (lambda: domain_steps(["a"], 2, 1), "Known domains: a"),
        (lambda: steps_of_domains([["a"], ["b", "a"]], 2), "domains a are in two steps"),
        (lambda: steps_of_domains([["a"], []], 2), "no domain"),
        (lambda: steps_of_domains([], 2), "no domain"),
    ],
)
def test_impossible_protocols(bad, message):
    with pytest.raises(ConfigError, match=message):
        bad()


def test_memory_ignores_what_was_called_background():
    first, second = protocol.class_steps([[0, 3], [1]])
    assert protocol.memory_table(first)[[0, 1, 2, 3, 255]].tolist() == [255, 255, 255, 1, 255]
    assert protocol.memory_table(second)[[0, 1, 2, 3, 255]].tolist() == [255, 2, 255, 255, 255]

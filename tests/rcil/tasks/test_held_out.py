from itertools import product
from pathlib import Path

import numpy as np
import pytest

from rcil.data.protocol import class_steps, load_order, parse_split, select, split_order
from rcil.data.types import Sample
from rcil.tasks.held_out import choose_held_out, draw, held_out_count, hold_out

PRESENCE = Path(__file__).parents[2] / "golden" / "voc_presence.npz"
NAMES = [f"image_{index}" for index in range(50)]


def test_a_single_step_holds_out_the_lowest_draws():
    """0.2 of 13 is 2.6."""
    lowest = sorted(NAMES[:13], key=lambda name: draw("held out", name, 0))[:3]
    assert choose_held_out([NAMES[:13]], 0, 0.2) == set(lowest)
    assert choose_held_out([NAMES[12::-1]], 0, 0.2) == set(lowest), "the order of the names does not matter"
    assert choose_held_out([NAMES[:13]], 1, 0.2) != set(lowest)
    assert choose_held_out([], 0, 0.2) == choose_held_out([[]], 0, 0.2) == frozenset()


@pytest.mark.parametrize(
    ("images", "share", "count"),
    [(10, 0.2, 2), (12, 0.2, 2), (13, 0.2, 3), (2, 0.2, 1), (3, 0.01, 1), (3, 0.99, 2), (1, 0.2, 0), (9, 0, 0)],
)
def test_the_share_is_rounded_and_neither_side_is_empty(images, share, count):
    assert held_out_count(images, share) == count
    assert len(choose_held_out([NAMES[:images]], 0, share)) == count


def test_the_draw_does_not_change():
    """The SHA-256 of "held out/0/a" starts with these bytes; a resumed run needs the same images."""
    assert draw("held out", "a", 0) == int("02c45b293c3f6053", 16) / 2**64


def deviations(steps, seed, share=0.2):
    held = choose_held_out(steps, seed, share)
    return [len(held.intersection(names)) - held_out_count(len(names), share) for names in steps]


@pytest.fixture(scope="module")
def voc():
    with np.load(PRESENCE) as stored:
        return {
            str(i): frozenset(c for c in range(21) if bits >> c & 1) for i, bits in enumerate(stored["train"].tolist())
        }


@pytest.mark.parametrize("order", ["voc-a", "voc-b", "voc-c", "voc-d", "voc-e"])
@pytest.mark.parametrize("setting", ["overlapped", "disjoint"])
@pytest.mark.parametrize("split", ["15-5", "15-1", "10-1"])
def test_every_step_of_voc_holds_out_exactly_a_fifth(voc, split, setting, order):
    groups = split_order(load_order(order), *parse_split(split))
    steps = [select(step, voc, setting) for step in class_steps(groups)]
    assert deviations(steps, 0) == [0] * len(groups)


def test_steps_that_share_most_images_are_exact_where_a_choice_exists():
    """All choices of up to ten images are tried; three pairs that overlap in a ring have none, for example."""
    rng = np.random.default_rng(0)
    inexact = 0
    for seed in range(60):
        count, steps = int(rng.integers(4, 11)), int(rng.integers(2, 6))
        member = rng.random((count, steps)) < rng.uniform(0.3, 1, steps)
        images = [[NAMES[i] for i in np.flatnonzero(column)] for column in member.T]
        targets = [held_out_count(len(names), 0.2) for names in images]
        choices = np.array(list(product((0, 1), repeat=count)))
        smallest = ((choices @ member - targets) ** 2).sum(axis=1).min()
        found = sum(deviation**2 for deviation in deviations(images, seed))
        assert found == smallest
        inexact += found > 0
    assert inexact < 10
    ring = [["a", "b"], ["b", "c"], ["c", "a"]]
    assert sum(map(abs, deviations(ring, 0))) == 1


def test_new_images_move_few_others():
    names = [f"name_{index}" for index in range(2000)]
    before, after = (choose_held_out([names[:count]], 0, 0.2) for count in (1900, 2000))
    assert (len(before), len(after)) == (380, 400)
    assert len(before - after) + len(after.intersection(names[:1900]) - before) < 20


def test_samples_are_split():
    samples = [Sample(name, Path(), Path()) for name in "abc"]
    train, held = hold_out(samples, frozenset("bx"))
    assert [s.name for s in train] == ["a", "c"] and [s.name for s in held] == ["b"]

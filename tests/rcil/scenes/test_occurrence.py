import numpy as np
import pytest

from rcil.scenes import CLASSES
from rcil.scenes.objects.kinds import KINDS, kinds_of
from rcil.scenes.occurrence import OCCURRENCE, draw_counts

PAIRS = [(name, older, share) for name, entry in OCCURRENCE.items() for older, share in entry.brings.items()]


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    return [draw_counts(rng) for _ in range(3000)]


@pytest.fixture(scope="module")
def visible(masks):
    """[scenes, classes]: at least four pixels of the class."""
    return np.stack([np.bincount(mask.ravel(), minlength=len(CLASSES)) >= 4 for mask in masks])


def test_the_table_names_every_class_and_only_older_companions():
    assert tuple(OCCURRENCE) == CLASSES[1:]
    assert all(CLASSES.index(older) < CLASSES.index(name) for name, older, _ in PAIRS)


def test_every_class_can_be_drawn():
    assert all(kinds_of(name) for name in CLASSES if name != "road")
    assert {kind.of for kind in KINDS.values()} == set(CLASSES) - {"road"}


@pytest.mark.parametrize(("name", "older", "share"), PAIRS)
def test_companions_are_drawn_as_often_as_the_table_says(drawn, name, older, share):
    with_name = [older in counts for counts in drawn if name in counts]
    by_itself_or_brought = 1 - (1 - share) * (1 - OCCURRENCE[older].chance)
    assert np.mean(with_name) > by_itself_or_brought - 0.04


@pytest.mark.parametrize("name", OCCURRENCE)
def test_classes_are_drawn_as_often_as_the_table_says(drawn, name):
    counts = [c.get(name, 0) for c in drawn]
    assert np.mean(np.array(counts) > 0) > OCCURRENCE[name].chance - 0.03
    assert max(counts) == OCCURRENCE[name].most


@pytest.mark.parametrize(("name", "older", "share"), PAIRS)
def test_companions_are_seen_in_the_masks(visible, name, older, share):
    shown = visible[visible[:, CLASSES.index(name)]]
    assert len(shown) > 40
    assert shown[:, CLASSES.index(older)].mean() > share - 0.14


@pytest.mark.parametrize("name", OCCURRENCE)
def test_every_class_is_seen_often_but_not_always(visible, name):
    share = visible[:, CLASSES.index(name)].mean()
    assert OCCURRENCE[name].chance - 0.08 < share < 0.95


def test_a_new_class_hardly_ever_comes_without_old_ones(visible):
    for new in range(5, len(CLASSES)):
        shown = visible[visible[:, new]]
        assert shown[:, 1:new].any(axis=1).mean() > 0.95


def test_most_of_the_background_is_left(masks):
    share = np.mean([np.mean(mask == 0) for mask in masks])
    assert 0.35 < share < 0.85

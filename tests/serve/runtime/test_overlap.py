import numpy as np
import pytest

from rcil.model.class_match import match_classes
from rcil.model.metadata import class_table
from rcil_serve.runtime.overlap import overlap_of, pair_counts

OLD = class_table([["background", "a", "b"]])
NEW = class_table([["background", "b", "a"], ["c", "d"]])


@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_pairs_are_counted_where_wanted(dtype):
    rng = np.random.default_rng(0)
    old, new = rng.integers(0, 3, (13, 17)).astype(dtype), rng.integers(0, 5, (13, 17)).astype(dtype)
    where = rng.integers(0, 2, (13, 17)).astype(np.uint8) * 255
    for mask, inside in ((None, np.ones((13, 17), bool)), (where, where > 0)):
        wanted = [[((old == i) & (new == j) & inside).sum() for j in range(5)] for i in range(3)]
        np.testing.assert_array_equal(pair_counts(old, new, (3, 5), mask), wanted)


def test_overlap_by_hand():
    """Class a: two pixels before, one of them lost to the new c; b: one pixel in both; d came out of the background."""
    old = np.array([[0, 0, 0, 1], [0, 0, 2, 1]], np.uint8)
    new = np.array([[0, 0, 4, 2], [0, 2, 1, 3]], np.uint8)
    matching = match_classes(OLD, NEW)
    found = overlap_of(pair_counts(old, new, matching.counts), matching)
    assert matching.names == ("background", "a", "b")
    assert found.both.tolist() == [3, 1, 1]
    assert found.either.tolist() == [4, 3, 1], "a: kept, lost to c, gained from the background; d does not count"
    assert found.iou() == [3 / 4, 1 / 3, 1.0]


def test_a_class_that_nobody_sees_has_no_iou():
    matching = match_classes(OLD, OLD)
    empty = np.zeros((2, 2), np.uint8)
    assert overlap_of(pair_counts(empty, empty, matching.counts), matching).iou() == [1.0, None, None]


def test_classes_that_the_newer_model_lacks_do_not_count_against_the_background():
    matching = match_classes(NEW, OLD)
    before, after = np.array([[0, 0, 3, 4]], np.uint8), np.array([[0, 1, 0, 0]], np.uint8)
    found = overlap_of(pair_counts(before, after, matching.counts), matching)
    assert found.iou() == [1 / 2, None, 0.0]

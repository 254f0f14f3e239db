import numpy as np
import pytest

from rcil.labelling.selection import DUPLICATE, choose, descriptor, percentile_ranks


def on_a_line(*places):
    return np.array(places, np.float16)[:, None]


def indices(chosen):
    return [one.index for one in chosen[0]]


def test_descriptor_distances_are_the_rms_difference_and_the_hellinger_distance():
    black, white = np.zeros((20, 30, 3), np.uint8), np.full((20, 30, 3), 255, np.uint8)
    first, second = np.array([1, 0], np.float32), np.array([0, 1], np.float32)
    half = np.array([0.5, 0.5], np.float32)

    def distance(a, b):
        return np.linalg.norm(descriptor(*a).astype(float) - descriptor(*b).astype(float))

    assert distance((black, first), (white, first)) == pytest.approx(1, abs=1e-3)
    assert distance((black, first), (black, second)) == pytest.approx(1, abs=1e-3)
    assert distance((black, first), (white, second)) == pytest.approx(2**0.5, abs=1e-3)
    assert distance((black, first), (black, half)) == pytest.approx((1 - 0.5**0.5) ** 0.5, abs=1e-3)


def test_ranks():
    np.testing.assert_allclose(percentile_ranks(np.array([3, 1, 2, 3], np.float32)), [1, 0.25, 0.5, 1])


def test_by_value_alone():
    places, values = on_a_line(0, 1, 2, 3), np.array([0.1, 0.4, 0.2, 0.3], np.float32)
    assert indices(choose(places, values, 3, spread=False)) == [1, 3, 2]
    assert indices(choose(places, values, 9, spread=False)) == [1, 3, 2, 0]


def test_farthest_points_start_with_the_most_unusual():
    """The mean is 3.2: 10 is farthest from it, 0 from 10, then 4 is 4 away from its nearest."""
    chosen, _ = choose(on_a_line(0, 1, 1, 4, 10), np.ones(5, np.float32), 4, spread=True)
    assert [(one.index, one.distance) for one in chosen] == [(4, None), (0, 10), (3, 4), (1, 1)]


def test_value_and_distance_are_multiplied():
    """After 0 come 6 with 0.2 x 6 = 1.2 and 3 with 0.5 x 3 = 1.5."""
    values = np.array([1, 0.5, 0.2], np.float32)
    assert indices(choose(on_a_line(0, 3, 6), values, 2, spread=True)) == [0, 1]
    assert indices(choose(on_a_line(0, 3, 9), values, 2, spread=True)) == [0, 2]


@pytest.mark.parametrize("spread", [True, False])
def test_near_duplicates_are_left_out_and_counted(spread):
    near = DUPLICATE / 2
    places = on_a_line(0, near, 1, 1 + near, 1 + near)
    chosen, duplicates = choose(places, np.array([5, 4, 3, 2, 1], np.float32), 5, spread=spread)
    assert sorted(one.index for one in chosen) == [0, 2] and duplicates == 3


@pytest.mark.parametrize("spread", [True, False])
def test_of_identical_frames_the_most_valuable_one_is_chosen(spread):
    chosen, duplicates = choose(on_a_line(1, 1, 1), np.array([1, 3, 2], np.float32), 3, spread=spread)
    assert [one.index for one in chosen] == [1] and duplicates == 2

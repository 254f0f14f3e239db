import numpy as np
import pytest

from rcil.evaluation import bootstrap
from rcil.evaluation.bootstrap import RESAMPLES, by_group, counts_of, interval_of, iou_of, resampled_iou


def test_counts_and_iou_of_a_matrix():
    matrix = np.array([[6, 2, 0], [1, 3, 0], [0, 0, 0]])
    counts = counts_of(matrix)
    assert counts.tolist() == [[6, 3, 0], [8, 4, 0], [7, 5, 0]]
    assert iou_of(counts)[:2] == pytest.approx([6 / 9, 3 / 6])
    assert np.isnan(iou_of(counts)[2])


def test_images_of_a_group_are_summed():
    counts = np.arange(12).reshape(3, 2, 2)
    assert by_group(counts, np.array([0, 1, 0])).tolist() == [[[8, 10], [12, 14]], [[4, 5], [6, 7]]]


def one_class(hits, union):
    """Counts [G, 3, 1] of groups with so many correct pixels of a union."""
    return np.stack([hits, union, hits], axis=1)[..., None]


def test_resamples_are_those_of_a_plain_loop():
    grouped = one_class(np.array([1, 5, 9]), np.array([10, 10, 20]))
    values = resampled_iou(grouped)[:, 0]
    assert values.shape == (RESAMPLES,)
    generator = np.random.default_rng(0)
    for index in range(50):
        draws = generator.multinomial(3, [1 / 3] * 3)
        assert values[index] == pytest.approx(draws @ [1, 5, 9] / (draws @ [10, 10, 20]))
    assert np.array_equal(resampled_iou(grouped)[:, 0], values), "the same seed draws the same groups"


@pytest.mark.parametrize("groups", [6, 12, 25])
def test_the_interval_contains_the_true_value_about_as_often_as_promised(groups, monkeypatch):
    """IoU of groups is drawn around 0.5; nine of ten intervals should contain it, fewer groups included."""
    monkeypatch.setattr(bootstrap, "RESAMPLES", 400)
    generator = np.random.default_rng(1)
    inside, runs = 0, 300
    for run in range(runs):
        union = generator.integers(500, 1500, groups)
        hits = (union * generator.beta(5, 5, groups)).astype(np.int64)
        low, high = interval_of(resampled_iou(one_class(hits, union), seed=run)[:, 0], groups)
        inside += low <= 0.5 <= high
    assert 0.84 <= inside / runs <= 0.96


def test_few_groups_have_wider_intervals_than_their_percentiles():
    values = np.linspace(0, 1, 2001)
    assert interval_of(values, 10**6) == pytest.approx((0.05, 0.95), abs=1e-3)
    low, high = interval_of(values, 5)
    assert 0.005 < low < 0.015 and high == pytest.approx(1 - low)
    assert interval_of(values, 2) == pytest.approx((0, 1), abs=1e-3)


def test_no_interval_without_variation():
    assert interval_of(np.ones(10), 1) is None
    assert interval_of(np.full(10, np.nan), 9) is None
    assert interval_of(np.array([np.nan, 0.5, 0.5]), 9) == (0.5, 0.5)


def test_two_models_share_the_draws():
    """The difference of two models that err on the same images is certain, though each IoU is not."""
    hits = np.array([100, 500, 900, 300, 700, 200])
    union = np.full(6, 1000)
    grouped = np.stack([one_class(hits, union), one_class(hits - 50, union)], axis=1)
    values = resampled_iou(grouped)[..., 0]
    assert np.ptp(values[:, 0]) > 0.3
    assert values[:, 0] - values[:, 1] == pytest.approx(np.full(RESAMPLES, 0.05))

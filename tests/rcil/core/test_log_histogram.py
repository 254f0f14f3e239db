import numpy as np
import pytest

from rcil.core.log_histogram import LogHistogram


def test_quantiles_are_as_exact_as_the_bins():
    values = np.random.default_rng(0).lognormal(-10, 3, 100_000).astype(np.float32)
    histogram = LogHistogram()
    for part in np.array_split(values, 7):
        histogram.add(part)
    assert histogram.total == 100_000
    assert histogram.largest == values.max()
    for share in (0.5, 0.99, 0.999):
        exact = np.quantile(values, share, method="inverted_cdf")
        assert exact * (1 - 1e-5) <= histogram.quantile(share) <= exact * 1.024


def test_zero_infinity_and_nan_have_their_places():
    histogram = LogHistogram()
    histogram.add(np.array([0, 0, 0, np.nan]))
    assert histogram.quantile(0.5) == pytest.approx(0, abs=1e-12)
    assert histogram.quantile(1) == histogram.largest == np.inf


def test_only_zeros_have_zero_quantiles():
    histogram = LogHistogram()
    histogram.add(np.zeros(5))
    assert histogram.quantile(0.99) == 0


def test_empty_has_no_quantile():
    assert np.isnan(LogHistogram().quantile(0.5))


def test_merging_is_adding():
    first, second, both = LogHistogram(), LogHistogram(), LogHistogram()
    first.add(np.array([1e-3, 1e-2]))
    second.add(np.array([5.0]))
    both.add(np.array([1e-3, 1e-2, 5.0]))
    first.merge(second)
    assert (first.counts == both.counts).all() and first.largest == both.largest == 5


def test_bars_hold_every_number_once():
    histogram = LogHistogram()
    histogram.add(np.array([0, 0.9e-3, 1.1e-3, 1e9]))
    edges, counts = histogram.bars()
    assert len(edges) == len(counts) and sum(counts) == 4
    held = {round(float(edge), 12): count for edge, count in zip(edges, counts, strict=True) if count}
    assert held == {1e-12: 1, 1e-3: 1, round(10**-2.75, 12): 1, float("inf"): 1}

import numpy as np
import pytest

from rcil_serve.stream.frames import Latencies, Stages


def test_percentiles_are_right_to_a_percent():
    times = np.random.default_rng(0).lognormal(-4, 1, 5000)
    found = Latencies()
    for value in times:
        found.add(value)
    for percent in (50, 95, 99):
        assert found.percentile(percent) == pytest.approx(np.percentile(times, percent), rel=0.015)
    assert found.as_document()["mean_ms"] == pytest.approx(1000 * times.mean(), rel=1e-3)


def test_extremes_have_a_place_and_nothing_is_nothing():
    found = Latencies()
    assert found.percentile(50) == 0
    found.add(0.0)
    found.add(1e9)
    assert found.count == 2 and found.percentile(1) < 2e-6 and found.percentile(99) > 5e3
    assert set(Stages().as_document()) == {"decode", "infer", "paint", "encode", "write", "lag"}

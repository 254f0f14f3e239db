import numpy as np
import pytest
from onnx_models import segmenter

from rcil.core.errors import ConfigError
from rcil_export.runtime.providers import CPU
from rcil_export.runtime.sessions import SessionError, check_providers, open_session
from rcil_export.timing import interleaved as latency
from rcil_export.timing.interleaved import (
    RESAMPLES,
    LatencyOptions,
    bootstrap_ratio,
    interleaved,
    percentiles,
    random_image,
    resampled_blocks,
    run_of,
)


def test_every_round_runs_all_in_changing_order():
    order = []
    now = [0.0]
    costs = {"a": 1.0, "b": 2.0, "c": 4.0}

    def function(name):
        def run():
            order.append(name)
            now[0] += costs[name]

        return run

    times = interleaved({name: function(name) for name in costs}, 20, 2, seed=1, clock=lambda: now[0])
    assert times == {name: [cost] * 20 for name, cost in costs.items()}
    assert order[:6] == ["a", "b", "c"] * 2
    rounds = [tuple(order[at : at + 3]) for at in range(6, len(order), 3)]
    assert len(rounds) == 20
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len(set(rounds)) > 3


def test_percentiles_by_hand():
    assert percentiles([float(n) for n in range(101)]) == (50, 95, 99)


def test_a_constant_ratio_has_no_width():
    assert bootstrap_ratio([3.0] * 10, [2.0] * 10) == (1.5, 1.5, 1.5)


def test_the_interval_covers_the_true_ratio_as_often_as_it_says():
    random = np.random.default_rng(0)
    covered = 0
    for seed in range(100):
        a, b = 1.1 * random.lognormal(0, 0.1, 40), random.lognormal(0, 0.1, 40)
        ratio, low, high = bootstrap_ratio(a.tolist(), b.tolist(), seed)
        assert low <= ratio <= high
        covered += low <= 1.1 <= high
    assert 88 <= covered <= 99


def test_noise_that_both_share_cancels():
    random = np.random.default_rng(0)
    slow = random.lognormal(0, 1, 50)
    ratio, low, high = bootstrap_ratio((1.05 * slow).tolist(), slow.tolist())
    assert (ratio, low, high) == pytest.approx((1.05, 1.05, 1.05))
    alone = bootstrap_ratio((1.05 * random.permutation(slow)).tolist(), slow.tolist())
    assert alone[2] - alone[1] > 0.2


def test_rounds_are_resampled_in_blocks_of_neighbours():
    picked = resampled_blocks(27)
    assert picked.shape == (RESAMPLES, 27)
    assert set(picked.ravel().tolist()) == set(range(27))
    steps = np.diff(picked.reshape(RESAMPLES, 9, 3), axis=2) % 27
    assert (steps == 1).all()
    random = np.random.default_rng(0)
    slow = np.exp(0.05 * random.normal(size=64).cumsum())
    intervals = [bootstrap_ratio(times.tolist(), [1.0] * 64) for times in (slow, random.permutation(slow))]
    widths = [high - low for _, low, high in intervals]
    assert widths[0] > 1.3 * widths[1], "neighbours that are alike say less"


def test_times_must_be_pairs():
    with pytest.raises(ValueError, match="3 and 2 times"):
        bootstrap_ratio([1.0] * 3, [1.0] * 2)


@pytest.mark.parametrize("change", [{"rounds": 1}, {"warmup": -1}, {"threads": 0}])
def test_impossible_options(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        LatencyOptions(**change)


def test_a_provider_that_is_not_there_is_an_error_that_names_those_that_are():
    with pytest.raises(ConfigError) as caught:
        check_providers(["CUDAExecutionProvide"])
    assert "CUDAExecutionProvide" in caught.value.message
    assert CPU in caught.value.hint


def test_a_silent_fallback_is_an_error(tmp_path, monkeypatch):
    path = segmenter(tmp_path / "m.onnx")
    monkeypatch.setattr(latency.ort, "get_available_providers", lambda: ["AzureExecutionProvider", CPU])
    monkeypatch.setattr("rcil_export.runtime.sessions.start_problem", lambda provider: None)
    real = latency.ort.InferenceSession
    monkeypatch.setattr(
        latency.ort, "InferenceSession", lambda model, options, **_: real(model, options, providers=[CPU])
    )
    with pytest.raises(ConfigError, match="AzureExecutionProvider did not start"):
        open_session(path, 1, ["AzureExecutionProvider"])


def test_a_file_that_is_no_graph_is_an_error(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"nothing")
    with pytest.raises(SessionError, match="cannot load"):
        open_session(path, 1)


@pytest.mark.parametrize(("image", "shape"), [("uint8", (1, 32, 48, 3)), ("float32", (1, 3, 32, 48))])
def test_a_run_gives_the_outputs_of_noise(tmp_path, image, shape):
    session = open_session(segmenter(tmp_path / "m.onnx", image=image), 1)
    assert session.get_session_options().intra_op_num_threads == 1
    mask, confidence = run_of(session, shape, seed=3)()
    noise = random_image(shape, "uint8" if image == "uint8" else "float", 3)
    expected = session.run(None, {"image": noise})
    np.testing.assert_array_equal(mask, expected[0])
    np.testing.assert_array_equal(confidence, expected[1])
    assert np.ptp(noise.astype(float)) > 3

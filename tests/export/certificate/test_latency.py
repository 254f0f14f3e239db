import json
import math

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rcil_export.certificate import latency as module
from rcil_export.certificate import memory as memory_module
from rcil_export.certificate.latency import STUDENT, Ratio, latency_item, latency_verdict, ratio_of, time_in_sessions
from rcil_export.certificate.memory import MemoryMeasureError, memory_item
from rcil_export.checks.report import as_text
from rcil_export.checks.result import Result
from rcil_export.timing.interleaved import LatencyOptions

TIMES = {"delivered": [10.0], "plain": [10.0]}


def ratio(low, high, surely):
    return Ratio("wall", (low + high) / 2, low, high, surely, (1.0,) * 8)


@pytest.mark.parametrize(
    ("interval", "passed"),
    [
        ((0.99, 1.01, 0.95), True),
        ((0.90, 0.95, 0.80), True),
        ((0.98, 1.03, 0.95), None),
        ((0.90, 1.20, 0.80), None),
        ((1.03, 1.05, 1.01), None),
        ((1.04, 1.05, 1.03), False),
        ((1.30, 1.40, 1.20), False),
    ],
)
def test_only_what_the_interval_shows_is_said(interval, passed):
    item = latency_verdict(ratio(*interval), LatencyOptions(), TIMES)
    assert item.passed is passed and item.undecided is (passed is None) and item.kind == "measured"
    assert ("undecided" in item.measured) == (passed is None)
    text = as_text([Result("certificate", "Certificate", (item,))])
    assert ("undecided, so not shown: Latency over the plain network's" in text) == (passed is None)
    assert ("  undecided  " in text) == (passed is None)
    assert item.as_document().get("undecided", False) is (passed is None)


def test_the_interval_by_hand():
    """Four pairs of sessions whose medians are 0, 0.01, 0.02 and 0.03."""
    rounds = [[-5.0, 0.01 * pair, 7.0] for pair in range(4)]
    found = ratio_of(rounds, "wall")
    error = np.std([0, 0.01, 0.02, 0.03], ddof=1) / 2
    assert found.ratio == pytest.approx(math.exp(0.015))
    assert found.low == pytest.approx(math.exp(0.015 - 3.182 * error))
    assert found.high == pytest.approx(math.exp(0.015 + 3.182 * error))
    assert found.surely == pytest.approx(math.exp(0.015 - 12.924 * error))


def test_the_quantiles_are_those_of_student():
    stats = pytest.importorskip("scipy.stats")
    for pairs, quantiles in STUDENT.items():
        assert quantiles == pytest.approx(stats.t.ppf((0.975, 0.9995), pairs - 1), abs=1e-3)


@pytest.mark.parametrize("luck", [0.0, 0.05], ids=["no luck", "lucky sessions"])
def test_the_interval_covers_the_truth_however_runs_depend_on_each_other(luck):
    """Sessions with luck of their own, and noise that stays for several runs: 95 % of intervals contain the truth."""
    random = np.random.default_rng(0)
    trials, covered = 2000, 0
    for _ in range(trials):
        noise = random.normal(0, 0.02, (8, 6)).cumsum(axis=1)
        rounds = 0.01 + luck * random.normal(size=(8, 1)) + noise
        found = ratio_of(rounds.tolist(), "wall")
        covered += found.low <= math.exp(0.01) <= found.high
    assert 0.93 <= covered / trials <= 0.97


def test_every_pair_of_sessions_is_fresh_and_a_slow_network_gets_fewer():
    opened, runs = [], []

    def fresh(turn):
        opened.append(turn)
        return {name: lambda name=name: runs.append(name) for name in ("delivered", "plain")}

    times = time_in_sessions(fresh, LatencyOptions(rounds=20, warmup=1))
    assert opened == list(range(8)) and len(times) == 8
    assert all(len(pair[clock][name]) == 3 for pair in times for clock in pair for name in pair[clock])
    assert len(runs) == 8 * 2 * (1 + 3)
    opened.clear()
    assert len(time_in_sessions(fresh, LatencyOptions(rounds=80, warmup=1), seconds=0.0)) == 4
    assert opened == list(range(4))


def test_the_first_runs_of_a_slow_network_count(monkeypatch):
    def pair():
        calls = []
        return {name: lambda name=name: calls.append(name) for name in ("delivered", "plain")}, calls

    fast, calls = pair()
    assert len(time_in_sessions(lambda turn: fast, LatencyOptions(rounds=32, warmup=2), seconds=0.0)) == 4
    assert len(calls) == 4 * 2 * (2 + 4)
    monkeypatch.setattr(module, "SLOW_SECONDS", -1.0)
    slow, calls = pair()
    times = time_in_sessions(lambda turn: slow, LatencyOptions(rounds=32, warmup=2), seconds=0.0)
    assert len(calls) == 4 * 2 * 4
    assert all(len(found[clock][name]) == 4 for found in times for clock in found for name in found[clock])


def convs(path, width):
    """image uint8 [1, 64, 64, 3] -> two convs of this width."""
    random = np.random.default_rng(0)
    weights = {
        "a": random.normal(size=(width, 3, 3, 3)).astype(np.float32),
        "b": random.normal(size=(width, width, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Cast", ["image"], ["x"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "a"], ["u"], pads=[1] * 4),
        helper.make_node("Conv", ["u", "b"], ["v"], pads=[1] * 4),
        helper.make_node("ArgMax", ["v"], ["mask"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, [1, 64, 64, 3])],
        [helper.make_tensor_value_info("mask", TensorProto.INT64, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def graphs(tmp_path):
    return convs(tmp_path / "wide.onnx", 128), convs(tmp_path / "narrow.onnx", 8)


def test_a_slower_graph_is_found_out(graphs):
    item = latency_item(*graphs, (1, 64, 64, 3), LatencyOptions(rounds=8, warmup=1))
    assert item.passed is False
    assert item.detail["clock"] == "processor" and item.detail["surely"] > 2
    assert len(item.detail["sessions"]) == 8 and len(item.detail["times_ms"]["plain"]) == 24
    json.dumps(item.as_document())


def test_a_faster_graph_passes(graphs):
    item = latency_item(*graphs[::-1], (1, 64, 64, 3), LatencyOptions(rounds=8, warmup=1))
    assert item.passed is True and item.detail["high"] < 1


def test_which_session_is_opened_first_is_random(graphs, monkeypatch):
    opened = []

    real = module.open_session
    monkeypatch.setattr(module, "open_session", lambda p, t, q: opened.append(p.stem) or real(p, t, q))
    latency_item(*graphs, (1, 64, 64, 3), LatencyOptions(rounds=2, warmup=0))
    assert len(opened) == 16 and 0 < opened[::2].count("wide") < 8


def test_memory_is_the_smallest_of_runs_in_turns(monkeypatch, graphs):
    peaks = {"wide": [130, 125, 109], "narrow": [100, 140, 120]}
    turns = []

    def peak(path, shape, threads):
        assert (shape, threads) == ((1, 64, 64, 3), 1)
        turns.append(path.stem)
        return 2**20 * peaks[path.stem][turns.count(path.stem) - 1]

    monkeypatch.setattr(memory_module, "peak_memory", peak)
    item = memory_item(*graphs, (1, 64, 64, 3), 1)
    assert turns == ["wide", "narrow"] * 3
    assert item.passed is True and item.kind == "measured"
    assert item.detail["ratio"] == pytest.approx(1.09)
    turns.clear()
    peaks["wide"] = [130, 105, 150]
    assert memory_item(*graphs, (1, 64, 64, 3), 1).passed is True
    assert len(turns) == 4, "two rounds sufficed"
    turns.clear()
    peaks["wide"] = [130, 115, 150]
    assert memory_item(*graphs, (1, 64, 64, 3), 1).passed is False


def test_memory_of_a_larger_graph_is_found_out(monkeypatch, graphs, tmp_path):
    monkeypatch.setattr(memory_module, "MEMORY_RUNS", 1)
    item = memory_item(convs(tmp_path / "wider.onnx", 256), graphs[1], (1, 64, 64, 3), 1)
    assert item.passed is False
    assert item.detail["ratio"] > 1.5


def test_memory_that_cannot_be_measured_is_not_a_failure(monkeypatch, graphs):
    def nowhere(*_):
        raise MemoryMeasureError("no /proc here")

    monkeypatch.setattr(memory_module, "peak_memory", nowhere)
    item = memory_item(*graphs, (1, 64, 64, 3), 1)
    assert item.passed is None and item.kind is None
    assert "no /proc here" in item.measured

import json

import numpy as np
import pytest
from networks import at_step, small_arch
from onnx import TensorProto, helper, numpy_helper

from rcil.checkpoint.metadata import Metadata, class_table
from rcil.errors import ConfigError, MissingDependencyError
from rcil.nn import build, cost, plain_twin
from rcil_export.check import certificate
from rcil_export.check.certificate import (
    Comparison,
    certify,
    engine_item,
    latency_item,
    latency_verdict,
    memory_item,
)
from rcil_export.check.latency import LatencyOptions
from rcil_export.check.memory import MemoryMeasureError
from rcil_export.engine.errors import EngineError
from rcil_export.interface import Interface
from rcil_export.onnx_graph.export import to_onnx
from rcil_export.shapes import InputShape, parse_shape

FIXED = InputShape.of(48, 64)
OPEN = parse_shape(None, "32x32:48x64:96x96", "1:2:4")


@pytest.fixture(scope="module")
def model():
    return at_step(small_arch("resnet18"), 2)


def metadata_of(model):
    steps = [list(names) for names in model.classifier.steps]
    return Metadata(architecture=model.arch, classes=class_table(steps), step=len(steps) - 1)


def by_key(result):
    return {item.key: item for item in result.items}


@pytest.mark.parametrize("shape", [FIXED, OPEN], ids=["fixed", "open"])
def test_a_model_after_two_steps_costs_what_a_plain_one_does(model, shape):
    result = certify(model, metadata_of(model), Interface(shape=shape), engine=False, latency=None, memory=False)
    assert result.ok
    items = by_key(result)
    expected = cost(plain_twin(model), (48, 64))
    assert list(items) == ["graph", "parameters", "macs"]
    assert all(item.passed for item in items.values())
    assert items["parameters"].detail == {"folded": expected.parameters, "plain": expected.parameters}
    assert items["macs"].detail["folded"] == expected.macs
    json.dumps(result.as_document())


def test_a_network_that_costs_more_fails(model, monkeypatch):
    narrower = build(model.arch.replace(rc=None, folded=True, head_width=8), [list(model.names)])
    monkeypatch.setattr(certificate, "plain_twin", lambda _: narrower)
    result = certify(model, metadata_of(model), Interface(shape=FIXED), engine=False, latency=None, memory=False)
    assert not result.ok
    items = by_key(result)
    assert [items[key].passed for key in ("graph", "parameters", "macs")] == [False, False, False]
    assert "head.paths.0" in items["graph"].measured


def test_engines_are_byte_identical_and_other_weights_are_not(model):
    pytest.importorskip("tensorrt_rtx")
    metadata, interface = metadata_of(model), Interface(shape=FIXED)
    seen = []

    def watched(document):
        seen.append(document)
        return document

    result = certify(model, metadata, interface, engine=True, latency=None, memory=False, conversions={"fp32": watched})
    item = by_key(result)["engine_fp32"]
    assert item.passed is True
    assert item.detail["folded"]["sha256"] == item.detail["plain"]["sha256"]
    assert item.detail["folded"]["bytes"] > 10_000
    assert len(seen) == 2
    stranger = to_onnx(plain_twin(model).eval(), metadata, interface)
    assert engine_item(seen[0], stranger, "fp32", ("sm86",)).passed is False


def test_without_tensorrt_the_engine_is_not_checked_and_says_why(model, monkeypatch):
    def missing(*_):
        raise MissingDependencyError("TensorRT-RTX is not installed", "Install it with: pip install 'rcil[rtx]'")

    monkeypatch.setattr(certificate, "build_engine", missing)
    result = certify(model, metadata_of(model), Interface(shape=FIXED), engine=True, latency=None, memory=False)
    item = by_key(result)["engine_fp32"]
    assert item.passed is None
    assert item.measured == "not built: TensorRT-RTX is not installed"
    assert result.ok


@pytest.mark.parametrize(
    ("error", "passed"),
    [
        (ConfigError("TensorRT-RTX cannot build for 'sm10'", "It builds for sm86."), None),
        (EngineError("TensorRT-RTX could not build the engine", "Use the ONNX file."), False),
    ],
)
def test_an_engine_that_cannot_be_built_is_an_item_with_the_reason(model, monkeypatch, error, passed):
    def refuse(*_):
        raise error

    monkeypatch.setattr(certificate, "build_engine", refuse)
    result = certify(model, metadata_of(model), Interface(shape=FIXED), engine=True, latency=None, memory=False)
    item = by_key(result)["engine_fp32"]
    assert item.passed is passed
    assert (item.measured, item.detail["remedy"]) == (f"not built: {error.message}", error.hint)


def comparison(low, high, clock="wall"):
    return Comparison(clock, (low + high) / 2, low, high, 10.0, 10.0, {"folded": [10.0] * 20, "plain": [10.0] * 20})


@pytest.mark.parametrize(
    ("intervals", "passed"),
    [
        ([(0.99, 1.01)], True),
        ([(0.90, 0.95)], True),
        ([(0.97, 1.05), (0.99, 1.01)], True),
        ([(1.03, 1.05), (0.99, 1.01)], True),
        ([(0.97, 1.05), (0.98, 1.03)], None),
        ([(0.97, 1.05), (1.03, 1.05)], None),
        ([(1.03, 1.05), (1.03, 1.04)], None),
        ([(1.13, 1.25), (1.03, 1.34)], None),
        ([(1.13, 1.25), (1.12, 1.34)], False),
    ],
)
def test_only_what_the_intervals_show_is_said(intervals, passed):
    item = latency_verdict([comparison(*interval) for interval in intervals], LatencyOptions())
    assert item.passed is passed
    assert ("too noisy" in item.measured) == (passed is None)


def test_a_handful_of_rounds_cannot_show_that_anything_is_slower():
    few = Comparison("wall", 1.3, 1.2, 1.4, 13.0, 10.0, {"folded": [13.0] * 9, "plain": [10.0] * 9})
    assert few.passed is None


def convs(path_width):
    """image uint8 [1, 64, 64, 3] -> two convs of this width."""
    random = np.random.default_rng(0)
    weights = {
        "a": random.normal(size=(path_width, 3, 3, 3)).astype(np.float32),
        "b": random.normal(size=(path_width, path_width, 3, 3)).astype(np.float32),
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
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_a_slower_graph_is_found_out():
    item = latency_item(convs(128), convs(8), (1, 64, 64, 3), LatencyOptions(rounds=12, warmup=1))
    assert item.passed is False
    measured = item.detail["measurements"]
    assert [one["clock"] for one in measured] == ["wall", "processor"] * 2
    assert measured[1]["low"] > 3


def test_a_faster_graph_passes():
    item = latency_item(convs(8), convs(128), (1, 64, 64, 3), LatencyOptions(rounds=9, warmup=1))
    assert item.passed is True
    assert item.detail["measurements"][-1]["high"] < 1
    json.dumps(item.as_document())


def test_memory_is_the_smallest_of_runs_in_turns(monkeypatch):
    peaks = {"folded.onnx": [130, 125, 109], "plain.onnx": [100, 140, 120]}
    turns = []

    def peak(path, shape, threads):
        assert path.exists()
        assert (shape, threads) == ((1, 64, 64, 3), 1)
        turns.append(path.name)
        return 2**20 * peaks[path.name][turns.count(path.name) - 1]

    monkeypatch.setattr(certificate, "peak_memory", peak)
    document = convs(8)
    item = memory_item(document, document, (1, 64, 64, 3), 1)
    assert turns == ["folded.onnx", "plain.onnx"] * 3
    assert item.passed is True
    assert item.detail["ratio"] == pytest.approx(1.09)
    turns.clear()
    peaks["folded.onnx"] = [130, 105, 150]
    assert memory_item(document, document, (1, 64, 64, 3), 1).passed is True
    assert len(turns) == 4  # two rounds sufficed
    turns.clear()
    peaks["folded.onnx"] = [130, 115, 150]
    assert memory_item(document, document, (1, 64, 64, 3), 1).passed is False


def test_memory_of_a_larger_graph_is_found_out(monkeypatch):
    monkeypatch.setattr(certificate, "MEMORY_RUNS", 1)
    item = memory_item(convs(256), convs(8), (1, 64, 64, 3), 1)
    assert item.passed is False
    assert item.detail["ratio"] > 1.5


def test_memory_that_cannot_be_measured_is_not_a_failure(monkeypatch):
    def nowhere(*_):
        raise MemoryMeasureError("no /proc here")

    monkeypatch.setattr(certificate, "peak_memory", nowhere)
    item = memory_item(convs(8), convs(8), (1, 64, 64, 3), 1)
    assert item.passed is None
    assert "no /proc here" in item.measured

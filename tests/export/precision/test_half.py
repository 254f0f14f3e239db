import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from precision_graphs import FIRST, SECOND, feeds_of, scaled, small_graph

from rcil.core.errors import ConfigError
from rcil_export.graph.onnx_file import description_of
from rcil_export.graph.shapes import parse_shape
from rcil_export.precision.compare import agreement, rows_of, with_rounding
from rcil_export.precision.half import LARGEST_FP16, half_within, to_half
from rcil_export.precision.ranges import Ranges, float_values, measure_ranges
from rcil_export.runtime.sessions import open_session

ALL = ("mask", "confidence", "logits")


@pytest.fixture(scope="module")
def document():
    return small_graph(outputs=ALL)


@pytest.fixture(scope="module")
def feeds(document):
    return feeds_of(document)


@pytest.fixture(scope="module")
def ranges(document, feeds):
    return measure_ranges(document, feeds)


def run(document, feed):
    return dict(zip(ALL, open_session(with_rounding(document), exact=True).run(list(ALL), feed), strict=True))


def added_casts(document, half):
    counts = [sum(node.op_type == "Cast" for node in graph.graph.node) for graph in (document, half)]
    return counts[1] - counts[0]


def test_fp16_everywhere_but_the_pixels_and_nearly_the_same_numbers(document, feeds, ranges):
    half, kept = to_half(document, "fp16", ranges)
    assert description_of(half)[1].precision == "fp16"
    assert list(kept) == ["pixels", "planes", "centred"]
    assert added_casts(document, half) == 3  # behind the pixels, and before `confidence` and `logits`
    types = {o.name: o.type.tensor_type.elem_type for o in half.graph.output}
    assert types == {"mask": TensorProto.UINT8, "confidence": TensorProto.FLOAT, "logits": TensorProto.FLOAT}
    weights = {t.data_type for t in half.graph.initializer if t.name.endswith(".weight")}
    assert weights == {TensorProto.FLOAT16}
    before, after = run(document, feeds[0]), run(half, feeds[0])
    error = np.abs(after["logits"] - before["logits"]).max() / np.ptp(before["logits"])
    assert 1e-5 < error < 2e-2
    assert (before["mask"] == after["mask"]).mean() > 0.99


def test_the_same_graph_gives_the_same_bytes(document, ranges):
    first, second = (to_half(document, "fp16", ranges)[0] for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


def test_a_huge_value_stays_in_fp32_where_naive_conversion_overflows(document, feeds):
    huge = scaled(document, 3e4)
    measured = measure_ranges(huge, feeds)
    assert measured.values[FIRST] > LARGEST_FP16
    blind = Ranges(dict.fromkeys(measured.values, 0.0), {})
    naive = to_half(huge, "fp16", blind)[0]
    assert not np.isfinite(run(naive, feeds[0])["logits"]).all()

    half, reasons = to_half(huge, "fp16", measured)
    assert "more than 16376" in reasons[FIRST]
    assert {FIRST, f"{FIRST[:-2]}.1", SECOND} == set(reasons) - {"pixels", "planes", "centred"}
    before, after = run(document, feeds[0]), run(half, feeds[0])
    assert np.isfinite(after["logits"]).all()
    assert np.abs(after["logits"] - before["logits"]).max() < 2e-2 * np.ptp(before["logits"])


def test_sums_that_cancel_are_seen(document, ranges):
    node = "pool"
    high = Ranges(ranges.values, ranges.accumulated | {node: 5e4})
    kept = to_half(document, "fp16", high)[1]
    assert "adds up magnitudes of 5e+04" in kept[node]


@pytest.mark.parametrize(("factor", "reason"), [(1e-7, "rounding changes a kernel"), (1e7, "a constant is")])
def test_weights_outside_fp16_stay_in_fp32(document, ranges, factor, reason):
    other = onnx.ModelProto.FromString(document.SerializeToString())
    for tensor in other.graph.initializer:
        if tensor.name == f"{FIRST}.weight":
            values = numpy_helper.to_array(tensor) * np.float32(factor)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    kept = to_half(other, "fp16", ranges)[1]
    assert reason in kept[FIRST]


def test_a_cheap_node_between_two_fp32_convs_does_not_cost_casts(document, ranges):
    half, kept = to_half(document, "fp16", ranges, {FIRST: "asked", SECOND: "asked"})
    assert kept[f"{FIRST[:-2]}.1"] == "saves casts"
    assert added_casts(document, half) == 3 + 2


def test_bf16_needs_an_opset_that_knows_it(document, ranges):
    with pytest.raises(ConfigError, match="no bf16 form of Conv in opset 18"):
        to_half(document, "bf16", ranges)


@pytest.mark.parametrize("opset", [22, 23])
def test_bf16(feeds, ranges, opset):
    wide = scaled(small_graph(opset=opset, outputs=ALL), 1e9)  # beyond fp16, nothing for bf16
    half, kept = to_half(wide, "bf16", ranges)
    assert set(kept.values()) == {"pixel normalisation"}
    assert set(float_values(half).values()) == {TensorProto.FLOAT, TensorProto.BFLOAT16}
    before, after = run(wide, feeds[0]), run(half, feeds[0])
    error = np.abs(after["logits"] - before["logits"]).max() / np.ptp(before["logits"])
    assert 1e-3 < error < 0.2


def test_the_simulation_rounds_every_value(document, feeds, ranges):
    half = to_half(document, "fp16", ranges)[0]
    logits = run(half, feeds[0])["logits"]
    np.testing.assert_array_equal(logits, logits.astype(np.float16).astype(np.float32))


def test_onnx_runtime_runs_fp16_itself(document, feeds, ranges):
    half = to_half(document, "fp16", ranges)[0]
    mask = open_session(half).run(["mask"], feeds[0])[0]
    assert (mask == run(document, feeds[0])["mask"]).mean() > 0.99


def test_varying_sizes_and_float_input(feeds):
    document = small_graph(input="float", outputs=ALL)
    half, kept = to_half(document, "fp16", measure_ranges(document, feeds_of(document)))
    assert kept == {}
    assert half.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
    varying = small_graph(shape=parse_shape(None, "32x32:48x48:64x64"))
    half = to_half(varying, "fp16", measure_ranges(varying, feeds))[0]
    small = np.zeros((1, 32, 40, 3), np.uint8)
    assert open_session(half).run(None, {"image": small})[0].shape == (1, 32, 40)


def test_converting_twice_is_an_error(document, ranges):
    half = to_half(document, "fp16", ranges)[0]
    with pytest.raises(ConfigError, match="in fp16 already"):
        to_half(half, "bf16", ranges)


def test_measured_half_keeps_the_upsampling_only_if_that_is_needed(document, feeds, ranges):
    tried = []
    easy = half_within(document, "fp16", feeds, ranges, goal=0.9, progress=lambda what, share: tried.append(what))
    assert easy.reached and tried == ["all"]
    hard = half_within(document, "fp16", feeds, ranges, goal=1.0, progress=lambda what, share: tried.append(what))
    assert tried[1:] == ["all", "upsampling and classifier in fp32"] and not hard.reached
    assert hard.agreement >= easy.agreement
    assert hard.agreement == agreement(rows_of(document, feeds), rows_of(hard.document, feeds))

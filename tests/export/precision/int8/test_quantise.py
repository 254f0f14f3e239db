from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from precision_graphs import FIRST, SECOND, feeds_of, scaled, small_graph

from rcil.core.errors import ConfigError, RcilError
from rcil_export.graph.nodes import constants_of
from rcil_export.graph.onnx_file import description_of
from rcil_export.precision.compare import agreement, rows_of
from rcil_export.precision.int8.cpu import for_cpu
from rcil_export.precision.int8.quantise import calibrate, conv_names, quantise
from rcil_export.precision.int8.search import Judgement, layer_errors, search
from rcil_export.precision.int8.weights import round_weights, weight_scales
from rcil_export.precision.record import CalibrationOptions
from rcil_export.runtime.sessions import open_session

PAIR = {"QuantizeLinear", "DequantizeLinear"}


@pytest.fixture(scope="module")
def document():
    return small_graph(size=96)


@pytest.fixture(scope="module")
def feeds(document):
    return feeds_of(document)


@pytest.fixture(scope="module")
def quantised(document, feeds):
    return quantise(document, calibrate(document, feeds))


@pytest.fixture(scope="module")
def sevens(document, feeds):
    """With 7-bit weights, which no CPU can overflow on."""
    return quantise(document, calibrate(document, feeds), 7)


@pytest.fixture(scope="module")
def reference(document, feeds):
    return rows_of(document, feeds)


def test_every_conv_is_symmetric_int8_per_channel_with_a_float_bias(document, quantised):
    graph = quantised.without([])
    assert description_of(graph)[1].precision == "int8"
    constants, written = constants_of(graph), {name: n for n in graph.graph.node for name in n.output}
    for node in graph.graph.node:
        if node.op_type in PAIR:
            assert not numpy_helper.to_array(constants[node.input[2]]).any()
            assert numpy_helper.to_array(constants[node.input[2]]).dtype == np.int8
        if node.op_type == "Conv":
            x, weight = written[node.input[0]], written[node.input[1]]
            assert {x.op_type, weight.op_type} == {"DequantizeLinear"}
            kernel = numpy_helper.to_array(constants[weight.input[0]])
            assert (
                kernel.dtype == np.int8 and numpy_helper.to_array(constants[weight.input[1]]).shape == kernel.shape[:1]
            )
            assert len(node.input) == 2 or numpy_helper.to_array(constants[node.input[2]]).dtype == np.float32
        if node.op_type in ("LeakyRelu", "Transpose", "Resize", "ArgMax"):
            assert written.get(node.input[0], node).op_type not in PAIR  # fused with the conv, or an end in fp32
    assert conv_names(graph) == conv_names(document)


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_masks_survive(method):
    """On average over three networks: what rounding does to the masks of a single random one is chance."""
    shares = []
    for seed in range(3):
        document = small_graph(size=64, seed=seed)
        feeds = feeds_of(document)
        graph = quantise(document, calibrate(document, feeds, CalibrationOptions(method=method))).without([])
        shares.append(agreement(rows_of(document, feeds), rows_of(graph, feeds)))
    assert np.mean(shares) > 0.9


def test_excluded_convs_compute_in_fp32(document, quantised):
    graph = quantised.without([FIRST])
    original = {node.name: node for node in document.graph.node}
    by_name = {node.name: node for node in graph.graph.node}
    for name in (FIRST, f"{FIRST[:-2]}.1"):
        assert by_name[name] == original[name]
    assert by_name[SECOND].input[0] != original[SECOND].input[0]
    everything = quantised.without(conv_names(document))
    assert not any(t.data_type == onnx.TensorProto.INT8 and len(t.dims) == 4 for t in everything.graph.initializer)
    with pytest.raises(ConfigError, match=r"no conv 'backbone\.stem\.9'"):
        quantised.without(["backbone.stem.9"])


def test_the_cpu_form_means_the_same_and_runs_in_int8_kernels(document, feeds, quantised, sevens, reference, tmp_path):
    graph = quantised.without([])
    float_value, int8_value, cpu_value = (_value(SECOND, form, feeds[0]) for form in (document, graph, for_cpu(graph)))
    error = np.linalg.norm(int8_value - float_value)
    assert 0 < np.linalg.norm(cpu_value - int8_value) < 0.3 * error  # the pairs before two leaky ReLUs
    assert np.linalg.norm(cpu_value - float_value) < 1.1 * error
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    cpu = for_cpu(sevens.without([]))
    ort.InferenceSession(cpu.SerializeToString(), options, providers=["CPUExecutionProvider"])
    ops = Counter(node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node)
    assert ops["QLinearConv"] == len(conv_names(document)) - 1 and ops["Conv"] == 1  # the classifier's logits are fp32
    assert ops["QuantizeLinear"] == 1
    exact, fused = (_value(SECOND, cpu, feeds[0], exact=exact) for exact in (True, False))
    assert np.linalg.norm(fused - exact) < 0.1 * np.linalg.norm(exact - float_value)  # nothing overflows with 7 bits
    assert agreement(reference, rows_of(cpu, feeds, exact=False)) > 0.85


def _value(name, document, feed, *, exact=True):
    """One value; the rest of the graph behind it is cut off."""
    probe = onnx.ModelProto.FromString(document.SerializeToString())
    del probe.graph.output[:]
    probe.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return open_session(probe, exact=exact).run([name], feed)[0]


def _kernels(document):
    return [t for t in document.graph.initializer if t.data_type == onnx.TensorProto.INT8 and len(t.dims) == 4]


@pytest.mark.parametrize("kind", ["Relu", "Clip"])
def test_relu_and_relu6_are_absorbed_on_the_cpu(kind):
    """As in EfficientNet-lite, whose Clip ends at 6: unsigned steps from 0 do its work, with half the step."""
    document = small_graph("resnet18", size=32)
    ends = {"low": 0.0, "high": 1.5}  # lower than 6, so that these small values reach it
    document.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(end, np.float32), name) for name, end in ends.items()
    )
    for node in document.graph.node:
        if node.op_type == "LeakyRelu":
            node.op_type = kind
            del node.attribute[:]
            node.input.extend(ends if kind == "Clip" else ())
    feeds = feeds_of(document)
    graph = quantise(document, calibrate(document, feeds)).without([])
    cpu = for_cpu(graph)
    constants = constants_of(cpu)
    relus = {node.output[0] for node in cpu.graph.node if node.op_type == kind}
    pairs = [node for node in cpu.graph.node if node.op_type == "QuantizeLinear" and node.input[0] in relus]
    before = {n.input[0]: n.input[1] for n in graph.graph.node if n.op_type == "QuantizeLinear"}
    assert len(pairs) == len(relus & set(before)) > 10
    for node in pairs:
        assert numpy_helper.to_array(constants[node.input[2]]) == np.uint8(0)
        old = numpy_helper.to_array(constants_of(graph)[before[node.input[0]]])
        assert numpy_helper.to_array(constants[node.input[1]]) == pytest.approx(old * 127 / 255)
    right, found = (_value(pairs[0].input[0], form, feeds[0]) for form in (document, cpu))
    assert right.min() == 0 and (right.max() == 1.5) == (kind == "Clip")
    assert np.abs(right - found).max() < 0.05 * right.max()
    assert open_session(cpu).run(None, feeds[0])[0].shape == (1, 32, 32)


@pytest.mark.parametrize("bits", [7, 8])
def test_weights_are_rounded_once(document, quantised, sevens, bits):
    """To a neighbouring step of the fp32 weight, with scales that use the whole range: no rounding of a rounding."""
    graph = {7: sevens, 8: quantised}[bits].without([])
    constants, source = constants_of(graph), constants_of(document)
    kernels = [n for n in graph.graph.node if n.op_type == "DequantizeLinear" and n.input[0] in constants]
    assert len(kernels) == len(conv_names(document))
    for node in kernels:
        steps, scale = (numpy_helper.to_array(constants[name]) for name in node.input[:2])
        weight = numpy_helper.to_array(source[node.input[0].removesuffix("_quantized")])
        largest = np.abs(weight).max(axis=(1, 2, 3))
        used = largest > 0
        assert scale[used] == pytest.approx(largest[used] / (63 if bits == 7 else 127), rel=1e-6)
        assert np.abs(steps.astype(int)).max() == (63 if bits == 7 else 127)
        errors = (steps - weight / scale[:, None, None, None].astype(float)).reshape(len(weight), -1)
        assert np.abs(errors).max() < 1 and np.abs(errors.sum(axis=1)).max() < 0.5001
        assert (np.abs(errors) <= 0.5001).mean() > 0.9  # most are at the nearest step


def test_errors_of_a_channel_are_balanced_by_the_weights_nearest_to_a_border():
    exact = np.array([127, 0.4, 1.45, 2.3, 3.45, -0.3], np.float32)  # nearest: errors -0.4 -0.45 -0.3 -0.45 +0.3
    steps = round_weights(exact.reshape(1, 6, 1, 1), np.ones(1, np.float32), 8)
    assert steps.ravel().tolist() == [
        127,
        0,
        2,
        2,
        3,
        0,
    ]  # their sum is -1.3: one of the two that were off by 0.45 moves
    flipped = round_weights(-exact.reshape(1, 6, 1, 1), np.ones(1, np.float32), 8)
    assert (flipped == -steps).all()


def test_a_channel_of_zeros_stays_zero():
    weight = np.zeros((2, 3, 1, 1), np.float32)
    weight[1, :, 0, 0] = 1e-44, -2e-42, 0  # subnormal
    scales = weight_scales(weight, 8)
    assert scales[0] == 1 and np.isfinite(scales).all() and (scales > 0).all()
    assert not round_weights(weight, scales, 8)[0].any()


def judged(reference, feeds, least):
    """A judge that requires a share of equal pixels."""

    def judge(graph):
        share = agreement(reference, rows_of(graph, feeds))
        return Judgement("agreement", "all", 100 * share, 100 * (least - share))

    return judge


def test_search_takes_nothing_out_of_a_network_that_is_good_enough(quantised, feeds, reference):
    def errors():
        raise AssertionError("nobody needs them")

    found = search(quantised, judged(reference, feeds, 0.8), errors)
    assert found.reached and found.best.excluded == () and found.evaluations == 1


def test_search_finds_the_layer_that_was_made_hard():
    document = small_graph(size=96, seed=2)
    feeds = feeds_of(document)
    reference = rows_of(document, feeds)
    hostile = scaled(document, 1000.0, slice(0, 1))  # one loud channel silences the others of the value
    quantised = quantise(hostile, calibrate(hostile, feeds))
    errors = layer_errors(quantised, feeds[:1])
    assert max(errors, key=errors.get) == SECOND
    steps = []
    judge = judged(reference, feeds, 0.9)
    found = search(quantised, judge, lambda: errors, progress=lambda used, step: steps.append(step))
    assert found.path[0].excess > 15 and found.reached
    assert found.best.excluded == (SECOND,) and found.best.excess <= 0
    assert judge(found.document) == found.best.worst
    assert tuple(steps) == found.path
    stopped = search(quantised, judged(reference, feeds, 1.0), lambda: errors, candidates=2, evaluations=5)
    assert not stopped.reached and stopped.evaluations == 5
    assert stopped.best.excess == min(step.excess for step in stopped.path)


def test_calibration_needs_images_and_a_sensible_percentile(document):
    with pytest.raises(RcilError, match="no image to calibrate with"):
        calibrate(document, [])
    with pytest.raises(ConfigError, match="percentile 20"):
        CalibrationOptions(percentile=20)

"""Mutants of an exported file that compute the right masks and are built wrongly."""

import copy
import functools

import check_models as models
import numpy as np
import pytest
import torch
from mutants.editing import constant, expand_depthwise
from onnx import TensorProto, helper, numpy_helper

from rcil_export.checks import structure
from rcil_export.checks.structure import structure_result
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape, parse_shape
from rcil_export.precision.feeds import find_feeds
from rcil_export.precision.half import to_half
from rcil_export.precision.int8.cpu import for_cpu
from rcil_export.precision.int8.quantise import calibrate, quantise
from rcil_export.precision.ranges import measure_ranges

INTERFACE = Interface(shape=InputShape.of(48, 64), runtime="cpu")
BLOCK = "backbone.stages.0.0.conv2"


@functools.cache
def deployed():
    return models.folded()


@functools.cache
def written(interface):
    return models.document(deployed(), interface)


def fp32(interface=INTERFACE):
    """A copy that may be changed."""
    return copy.deepcopy(written(interface))


def items_of(document, interface=INTERFACE, **more):
    result = structure_result("model.onnx", document, models.metadata(deployed()), interface, **more)
    return {item.key: item for item in result.items}


def failed(document, interface=INTERFACE, **more):
    return {key: item.measured for key, item in items_of(document, interface, **more).items() if item.passed is False}


def node_named(document, name):
    return next(node for node in document.graph.node if node.name == name)


def insert_after(document, name, op, *extra, **attributes):
    """Put a node behind another one; all who read that one read the new node."""
    at = next(i for i, node in enumerate(document.graph.node) if node.name == name)
    source = document.graph.node[at].output[0]
    for node in document.graph.node:
        for place, value in enumerate(node.input):
            if value == source:
                node.input[place] = "extra"
    document.graph.node.insert(at + 1, helper.make_node(op, [source, *extra], ["extra"], name="extra", **attributes))


@pytest.fixture(scope="module", autouse=True)
def plain_documents():
    """Builds the plain network of every description once."""
    original, made = structure.plain_document, {}

    @functools.wraps(original)
    def plain_document(metadata, interface):
        key = metadata.model_dump_json() + interface.model_dump_json()
        if key not in made:
            made[key] = original(metadata, interface)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "plain_document", plain_document)
        yield


@pytest.fixture(scope="module")
def exact():
    return fp32()


@pytest.fixture(scope="module")
def quantised(exact):
    return quantise(exact, calibrate(exact, find_feeds(None, models.metadata(deployed()), INTERFACE, limit=2)))


@pytest.mark.parametrize("shape", ["48x64", None])
@pytest.mark.parametrize("runtime", ["any", "cpu", "tensorrt"])
def test_an_export_passes(shape, runtime):
    sizes = parse_shape(shape, None if shape else "48x48:48x64:64x64", "1" if shape else "1:2:3")
    interface = Interface(shape=sizes, runtime=runtime, outputs=("mask", "confidence", "logits"))
    assert failed(fp32(interface), interface) == {}


@pytest.mark.parametrize("form", ["fp16", "bf16", "int8", "int8 for cpu"])
def test_an_export_of_another_precision_passes(exact, quantised, form):
    precision = form.removesuffix(" for cpu")
    runtime, opset = "cpu" if form.endswith("cpu") else "tensorrt", 22 if form == "bf16" else 18
    interface = INTERFACE.model_copy(update={"precision": precision, "runtime": runtime, "opset": opset})
    if precision == "int8":
        document = quantised.without([BLOCK])
        document = for_cpu(document) if runtime == "cpu" else document
        interface = interface.model_copy(update={"runtime": "cpu"})  # as the fp32 graph; fewer pairs are allowed there
    else:
        document = _half(precision, interface)
    items = items_of(document, interface)
    assert [item.measured for item in items.values() if not item.passed] == []
    assert items["precision"].detail["tensors"] == precision


def _half(kind, interface):
    document = fp32(interface.model_copy(update={"precision": "fp32"}))
    return to_half(document, "bf16", None)[0] if kind == "bf16" else _with_ranges(document)


def _with_ranges(document):
    feeds = find_feeds(None, models.metadata(deployed()), INTERFACE, limit=1)
    return to_half(document, "fp16", measure_ranges(document, feeds))[0]


def test_a_graph_with_both_branches_is_compared_with_such_a_graph():
    network = models.model()
    interface = INTERFACE.model_copy(update={"folded": False})
    document = to_onnx(network, models.metadata(network), interface)
    assert structure_result("m", document, models.metadata(network), interface).ok


@pytest.mark.parametrize("op", ["Identity", "Dropout"])
def test_a_node_that_does_nothing_is_named(op):
    document = fp32()
    insert_after(document, BLOCK, op)
    found = failed(document)
    assert f"extra is a {op}" in found["lint"]
    assert "extra" in found["plain_graph"]


def test_a_branch_multiplied_by_zero_is_named():
    document = fp32()
    source = node_named(document, BLOCK).output[0]
    scaled = helper.make_node("Mul", [source, constant(document, "nothing", np.float32(0))], ["dead"], name="dead")
    insert_after(document, BLOCK, "Add", "dead")
    at = next(i for i, node in enumerate(document.graph.node) if node.name == "extra")
    document.graph.node.insert(at, scaled)
    found = failed(document)
    assert "dead multiplies by zero" in found["lint"] and "plain_graph" in found


def test_a_doubled_conv_is_named():
    document = fp32()
    conv = node_named(document, BLOCK)
    twin = copy.deepcopy(conv)
    twin.name = twin.output[0] = "twin"
    weight = next(tensor for tensor in document.graph.initializer if tensor.name == conv.input[1])
    twin.input[1] = constant(document, "copied", numpy_helper.to_array(weight))
    document.graph.node.insert(list(document.graph.node).index(conv), twin)
    for reader in document.graph.node:
        if reader.op_type == "Add" and conv.output[0] in reader.input:
            reader.input[list(reader.input).index(conv.output[0])] = "twin"
    found = failed(document)
    assert f"{BLOCK} (Conv) computes what twin computes" in found["lint"]


def test_a_dead_branch_is_named_with_all_its_nodes():
    document = fp32()
    source = node_named(document, BLOCK).output[0]
    document.graph.node.append(helper.make_node("Relu", [source], ["dead"], name="dead"))
    document.graph.node.append(helper.make_node("Relu", ["dead"], ["deader"], name="deader"))
    found = failed(document)
    assert "nobody reads dead (Relu)" in found["lint"] and "nobody reads deader (Relu)" in found["lint"]


@pytest.mark.parametrize("dense", [False, True])
def test_a_norm_left_as_a_conv_is_named(dense):
    document = fp32()
    channels = next(t.dims[0] for t in document.graph.initializer if t.name == node_named(document, BLOCK).input[1])
    scale = np.eye(channels, dtype=np.float32)[:, :, None, None] if dense else np.ones((channels, 1, 1, 1), np.float32)
    weight = constant(document, "scale", scale)
    insert_after(document, BLOCK, "Conv", weight, group=1 if dense else channels, kernel_shape=[1, 1])
    found = failed(document)
    assert "extra scales each channel by itself" in found["lint"]
    assert "extra" in found["plain_graph"]


def test_a_shift_left_behind_is_named():
    document = fp32()
    insert_after(document, BLOCK, "Add", constant(document, "shift", np.float32(0)))
    assert "extra adds the constant shift" in failed(document)["lint"]


def test_a_norm_left_in_is_named():
    network = models.norm_left_in("backbone.stages.1.0.conv1")
    unfolded = INTERFACE.model_copy(update={"folded": False})
    document = to_onnx(network, models.metadata(network), unfolded)
    found = failed(document)
    assert "is a BatchNormalization" in found["lint"] and "BatchNormalization" in found["plain_graph"]


def test_a_depthwise_conv_expanded_to_a_dense_one_is_named():
    network = models.folded("efficientnet_lite0")
    metadata = models.metadata(network)
    document = to_onnx(network, metadata, INTERFACE)
    conv = expand_depthwise(document)
    items = {i.key: i for i in structure_result("m", document, metadata, INTERFACE).items}
    assert items["plain_graph"].passed is False and conv.name in items["plain_graph"].measured


def test_a_changed_attribute_is_named():
    document = fp32()
    conv = _dilated(document)
    attribute = next(a for a in conv.attribute if a.name == "dilations")
    attribute.ints[:] = [1, 1]
    next(a for a in conv.attribute if a.name == "pads").ints[:] = [1, 1, 1, 1]
    assert conv.name in failed(document)["plain_graph"] and "dilations" in failed(document)["plain_graph"]


def _dilated(document):
    return next(
        node
        for node in document.graph.node
        for attribute in node.attribute
        if attribute.name == "dilations" and max(attribute.ints) > 1
    )


def test_what_no_node_shows_is_named():
    document = fp32()
    document.functions.add().name = "Conv"
    assert "a function of its own, Conv" in failed(document)["lint"]
    document = fp32()
    node_named(document, BLOCK).domain = "com.example"
    assert f"{BLOCK} is a com.example.Conv" in failed(document)["lint"]


def test_invalid_onnx_is_named_and_breaks_nothing():
    document = fp32()
    del node_named(document, BLOCK).input[:]
    found = failed(document)
    assert "onnx" in found and "plain_graph" in found


def test_extra_casts_are_named():
    interface = INTERFACE.model_copy(update={"precision": "bf16", "opset": 22})
    honest = _half("bf16", interface)
    value = node_named(honest, BLOCK).output[0]

    def mutant(*kinds):
        document = copy.deepcopy(honest)
        at = next(i for i, node in enumerate(document.graph.node) if node.name == BLOCK)
        names = [value, *(f"cast{i}" for i in range(len(kinds)))]
        for node in document.graph.node:
            for place, name in enumerate(node.input):
                if name == value:
                    node.input[place] = names[-1]
        for i, kind in enumerate(kinds):
            cast = helper.make_node("Cast", [names[i]], [names[i + 1]], name=names[i + 1], to=kind)
            document.graph.node.insert(at + 1 + i, cast)
        return document

    assert "cast0" in failed(mutant(TensorProto.BFLOAT16), interface)["plain_graph"]
    there_and_back = failed(mutant(TensorProto.FLOAT, TensorProto.BFLOAT16), interface)["plain_graph"]
    assert "cast1" in there_and_back and "just cast" in there_and_back


def test_an_extra_pair_is_named(quantised):
    interface = INTERFACE.model_copy(update={"precision": "int8"})
    document = quantised.without([])
    pair = next(
        n for n in document.graph.node if n.op_type == "DequantizeLinear" and n.input[0] not in _names(document)
    )
    value, steps = pair.output[0], list(pair.input[1:])
    readers = [node for node in document.graph.node if value in node.input]
    document.graph.node.append(helper.make_node("QuantizeLinear", [value, *steps], ["again.q"], name="again.q"))
    document.graph.node.append(helper.make_node("DequantizeLinear", ["again.q", *steps], ["again"], name="again"))
    for reader in readers:
        reader.input[list(reader.input).index(value)] = "again"
    found = failed(document, interface)["plain_graph"]
    assert "again.q" in found and "just rounded" in found


def test_a_pair_before_an_activation_or_at_the_end_is_named(quantised):
    interface = INTERFACE.model_copy(update={"precision": "int8", "runtime": "tensorrt"})
    document = quantised.without([])
    pair = next(n for n in document.graph.node if n.op_type == "QuantizeLinear")
    for reader in ("LeakyRelu", "Transpose"):
        mutant = copy.deepcopy(document)
        node = [node for node in mutant.graph.node if node.op_type == reader][-1]
        value = node.input[0]
        steps = list(pair.input[1:])
        mutant.graph.node.append(helper.make_node("QuantizeLinear", [value, *steps], ["q"], name="q"))
        mutant.graph.node.append(helper.make_node("DequantizeLinear", ["q", *steps], ["dq"], name="dq"))
        node.input[0] = "dq"
        assert "dq (DequantizeLinear)" in failed(mutant, interface)["plain_graph"]


def _names(document):
    return {tensor.name for tensor in document.graph.initializer}


def test_a_conv_silently_in_fp32_costs_a_pair_and_is_named(quantised):
    interface = INTERFACE.model_copy(update={"precision": "int8"})
    document = quantised.without([])
    conv = node_named(document, BLOCK)
    stored = quantised.source.graph.initializer
    document.graph.initializer.append(next(tensor for tensor in stored if tensor.name == f"{BLOCK}.weight"))
    conv.input[1] = f"{BLOCK}.weight"
    found = failed(document, interface)["plain_graph"]
    assert f"the values of {BLOCK}" in found


def test_another_network_than_the_checkpoint_says_is_named(exact):
    metadata = models.metadata(deployed())
    other = metadata.model_copy(update={"architecture": metadata.architecture.replace(stem_activation=False)})
    assert "plain_graph" in failed(exact, checkpoint=other)


def test_the_plain_network_leaves_the_random_numbers_alone():
    metadata = models.metadata(deployed())
    before = torch.random.get_rng_state()
    structure.plain_document.__wrapped__(metadata, INTERFACE)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("label", ["fp16", "int8"])
def test_a_relabelled_graph_is_named(exact, label):
    found = failed(exact, INTERFACE.model_copy(update={"precision": label}))
    assert f"labelled {label}, and the tensors are fp32" in found["precision"]


def test_documents_are_not_changed(quantised):
    document = quantised.without([])
    before = document.SerializeToString(deterministic=True)
    items_of(document, INTERFACE.model_copy(update={"precision": "int8"}))
    assert document.SerializeToString(deterministic=True) == before

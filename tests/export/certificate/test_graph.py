import numpy as np
import onnx
import onnxruntime as ort
import pytest
from mutants.editing import changed, copied, nodes_of, set_attribute
from networks import at_step, small_arch
from onnx import TensorProto, helper, numpy_helper

from rcil.core.errors import RcilError
from rcil.model.metadata import Metadata, class_table
from rcil.nn import cost, fold, plain_twin
from rcil_export.certificate.difference import first_difference
from rcil_export.certificate.graph import canonical, parameters_and_macs
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape, parse_shape

SIZE = (48, 64)
FIXED = InputShape.of(*SIZE)
OPEN = parse_shape(None, "32x32:48x64:96x96", "1:2:4")


def export(model, source, shape=FIXED, *, folded=True):
    steps = [list(names) for names in source.classifier.steps]
    metadata = Metadata(architecture=model.arch, classes=class_table(steps), step=len(steps) - 1)
    outputs = ("mask", "confidence", "logits")
    return to_onnx(model, metadata, Interface(shape=shape, outputs=outputs, folded=folded))


@pytest.fixture(scope="module")
def model():
    return at_step(small_arch("resnet18"), 2)


@pytest.fixture(scope="module")
def document(model):
    return export(fold(model)[0], model)


def disguised(document, seed=0):
    """The same graph under other names, in another order, with remarks."""
    other = copied(document)
    made = {name for node in other.graph.node for name in node.output} - {o.name for o in other.graph.output}
    names = {name: f"other.{name}" for name in made | {t.name for t in other.graph.initializer}}
    for tensor in other.graph.initializer:
        tensor.name = names[tensor.name]
    for node in other.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        node.name, node.doc_string = f"renamed {node.name}", "a remark"
    waiting, ready = list(other.graph.node), {"", "image", *(tensor.name for tensor in other.graph.initializer)}
    random, nodes = np.random.default_rng(seed), []
    while waiting:
        free = [index for index, node in enumerate(waiting) if ready.issuperset(node.input)]
        nodes.append(waiting.pop(random.choice(free)))
        ready.update(nodes[-1].output)
    constants = list(other.graph.initializer)[::-1]
    del other.graph.node[:], other.graph.initializer[:]
    other.graph.node.extend(nodes)
    other.graph.initializer.extend(constants)
    return other


def test_names_order_and_remarks_do_not_change_the_canonical_bytes(document):
    other = disguised(document)
    assert [n.op_type for n in other.graph.node] != [n.op_type for n in document.graph.node]
    plain = canonical(document)
    assert canonical(other).SerializeToString(deterministic=True) == plain.SerializeToString(deterministic=True)
    onnx.checker.check_model(plain, full_check=True)
    assert plain.graph.node[3].name == "n3"
    assert not plain.metadata_props
    assert first_difference(document, other) is None


def test_the_canonical_graph_computes_the_same(document):
    image = np.random.default_rng(0).integers(0, 256, (1, *SIZE, 3), dtype=np.uint8)
    sessions = [ort.InferenceSession(d.SerializeToString()) for d in (document, canonical(document))]
    outputs = [session.run(["mask", "confidence", "logits"], {"image": image}) for session in sessions]
    for before, after in zip(*outputs, strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("backbone", "head", "shape"),
    [
        ("resnet18", "deeplabv3", FIXED),
        ("resnet18", "deeplabv3", OPEN),
        ("efficientnet_lite0", "deeplabv3", FIXED),
        ("resnet50", "deeplabv3plus", FIXED),
        ("efficientnet_lite1", "deeplabv3plus", OPEN),
    ],
    ids=["resnet18", "resnet18 open", "efficientnet_lite0", "v3+", "v3+ open"],
)
def test_a_folded_network_has_the_graph_and_cost_of_its_twin(backbone, head, shape):
    model = at_step(small_arch(backbone, head=head), 2)
    twin = plain_twin(model).eval()
    own, plain = export(fold(model)[0], model, shape), export(twin, model, shape)
    assert first_difference(own, plain) is None
    weights = [canonical(d).graph.initializer[1].raw_data for d in (own, plain)]
    assert weights[0] != weights[1]
    expected = cost(twin, SIZE)
    image = (2 if shape is OPEN else 1, *SIZE, 3)
    assert parameters_and_macs(own, image) == (expected.parameters, expected.macs)


def test_both_branches_differ_and_cost_what_torch_says(model, document):
    branches = export(model, model, folded=False)
    found = first_difference(document, branches)
    assert found is not None
    assert found.startswith("backbone.stem.0 (Conv) and backbone.stem.conv (Conv): the source of input 2 is constant")
    expected = cost(model, SIZE)
    assert parameters_and_macs(branches) == (expected.parameters, expected.macs)


def node_of(document, op, at=0):
    return nodes_of(document, op)[at]


def set_constant(document, name, array):
    next(t for t in document.graph.initializer if t.name == name).CopyFrom(numpy_helper.from_array(array, name))


def swap_concat(document):
    node = node_of(document, "Concat")
    node.input[0], node.input[1] = node.input[1], node.input[0]


def add_dead_node(document):
    document.graph.node.append(helper.make_node("Relu", ["centred"], ["dead"], name="dead"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda d: set_attribute(node_of(d, "LeakyRelu"), "alpha", 0.25),
            ["(LeakyRelu)", "the attribute alpha is", "and 0.25"],
        ),
        (lambda d: set_attribute(node_of(d, "ArgMax"), "select_last_index", 1), ["rows (ArgMax)", "absent and 1"]),
        (lambda d: setattr(node_of(d, "LeakyRelu"), "op_type", "Elu"), ["the op is LeakyRelu and Elu"]),
        (lambda d: setattr(d.opset_import[0], "version", 19), ["('', 18)", "('', 19)"]),
        (lambda d: set_constant(d, "class_axis", np.array([-3])), ["confidence (ReduceMax)", "[1]", "[-3]"]),
        (add_dead_node, ["only the second graph has dead (Relu)"]),
        (
            lambda d: d.graph.initializer.append(numpy_helper.from_array(np.ones(3), "x")),
            ["nobody reads", "double [3]"],
        ),
        (lambda d: setattr(d.graph.output[0], "name", "maske"), ["outputs", "mask uint8", "maske uint8"]),
    ],
    ids=["attribute", "new attribute", "op", "opset", "setting", "dead node", "dead constant", "output"],
)
def test_the_first_difference_is_named(document, change, words):
    other = changed(document, change)
    if other.graph.output[0].name == "maske":
        node_of(other, "Cast", -1).output[0] = "maske"
    found = first_difference(document, other)
    assert found is not None
    for word in words:
        assert word in found


def test_wiring_is_compared(document):
    found = first_difference(document, changed(document, swap_concat))
    assert found is not None
    assert "(Conv)" in found


def test_shapes_of_constants_are_compared_and_weights_are_not(document):
    weight = next(t for t in document.graph.initializer if t.name == "backbone.stem.0.weight")
    twice = changed(document, lambda d: set_constant(d, weight.name, 2 * numpy_helper.to_array(weight)))
    assert first_difference(document, twice) is None
    half = numpy_helper.to_array(weight)[: weight.dims[0] // 2]
    small_bias = numpy_helper.to_array(next(t for t in document.graph.initializer if t.name == _bias(weight.name)))

    def shrink(d):
        set_constant(d, weight.name, half)
        set_constant(d, _bias(weight.name), small_bias[: len(half)])

    stem = _up_to_stem(document)
    found = first_difference(stem, changed(stem, shrink))
    assert found is not None
    assert "the constant at input 1 is float [8, 3, 7, 7] and float [4, 3, 7, 7]" in found


def _bias(name):
    return name.replace(".weight", ".bias")


def _up_to_stem(document):
    """The graph up to its first conv, whose width no later node depends on."""

    def cut(d):
        nodes = [node_of(d, op) for op in ("Cast", "Transpose", "Sub", "Conv")]
        read = {name for node in nodes for name in node.input}
        constants = [t for t in d.graph.initializer if t.name in read]
        del d.graph.node[:], d.graph.initializer[:], d.graph.output[:]
        d.graph.node.extend(nodes)
        d.graph.initializer.extend(constants)
        d.graph.output.append(helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None))

    return changed(document, cut)


def test_cost_by_hand():
    graph = helper.make_graph(
        [helper.make_node("Conv", ["image", "w", "b"], ["y"], group=2, strides=[2, 2], pads=[1, 1, 1, 1])],
        "g",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [3, 4, 8, 10])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 6, 4, 5])],
        [
            numpy_helper.from_array(np.zeros((6, 2, 3, 3), np.float32), "w"),
            numpy_helper.from_array(np.zeros(6, np.float32), "b"),
        ],
    )
    document = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    assert parameters_and_macs(document) == (6 * 2 * 9 + 6, 6 * 4 * 5 * 2 * 9)


def test_the_cost_of_an_open_size_needs_the_size(model):
    with pytest.raises(RcilError, match="leaves its size open"):
        parameters_and_macs(export(fold(model)[0], model, OPEN))

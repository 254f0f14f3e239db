import numpy as np
import pytest
from exports import described
from onnx import helper, numpy_helper

from rcil.nn import fold
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.lint import GraphError, check_graph, lint
from rcil_export.graph.shapes import InputShape

INTERFACE = Interface(shape=InputShape.of(32, 32))


@pytest.fixture
def document():
    model, metadata = described("resnet18", 1)
    return to_onnx(fold(model)[0], metadata, INTERFACE)


def insert(document, op, inputs, output, **attributes):
    """Put a node before the Resize and let the Resize read it."""
    at = next(i for i, node in enumerate(document.graph.node) if node.op_type == "Resize")
    document.graph.node.insert(at, helper.make_node(op, inputs, [output], name=output, **attributes))
    document.graph.node[at + 1].input[0] = output


def test_a_clean_graph_passes(document):
    assert lint(document, INTERFACE) == []


def test_a_norm_left_in_is_named():
    model, metadata = described("resnet18", 1)
    document = to_onnx(model, metadata, INTERFACE.model_copy(update={"folded": False}))
    problems = lint(document, INTERFACE)
    assert problems[0] == "backbone.stem.norm is a BatchNormalization, which is not allowed here"


@pytest.mark.parametrize("op", ["Identity", "Dropout", "Mul"])
def test_ops_that_are_not_the_network_are_named(document, op):
    small = next(node for node in document.graph.node if node.op_type == "Resize").input[0]
    insert(document, op, [small, small] if op == "Mul" else [small], "extra")
    assert lint(document, INTERFACE) == [f"extra is a {op}, which is not allowed here"]


def test_shape_arithmetic_is_only_for_varying_sizes(document):
    document.graph.node.append(helper.make_node("Shape", ["image"], ["size"], name="size"))
    assert "size is a Shape, which is not allowed here" in lint(document, INTERFACE)


def test_what_could_be_computed_beforehand_is_named(document):
    document.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "one"))
    document.graph.node.append(helper.make_node("Add", ["one", "one"], ["two"], name="two"))
    assert "two (Add) computes a constant" in lint(document, INTERFACE)
    assert "nobody reads two (Add)" in lint(document, INTERFACE)


def test_an_unused_constant_is_named(document):
    document.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "left"))
    with pytest.raises(GraphError, match="the constant left is not used"):
        check_graph(document, INTERFACE)


def test_another_opset_is_named(document):
    assert lint(document, INTERFACE.model_copy(update={"opset": 19})) == ["opset 18, not 19"]


def test_invalid_onnx_is_refused(document):
    del document.graph.node[0].attribute[:]
    with pytest.raises(GraphError, match="not valid ONNX"):
        check_graph(document, INTERFACE)


def test_uint8_must_be_cast_first(document):
    document.graph.node[0].op_type = "Transpose"
    assert any("not by one Cast" in problem for problem in lint(document, INTERFACE))


def test_a_conv_of_each_channel_by_itself_is_a_norm_left_behind(document):
    small = next(node for node in document.graph.node if node.op_type == "Resize").input[0]
    channels = len(described("resnet18", 1)[1].classes)
    scale = np.ones((channels, 1, 1, 1), np.float32)
    document.graph.initializer.append(numpy_helper.from_array(scale, "scale"))
    insert(document, "Conv", [small, "scale"], "extra", group=channels)
    assert lint(document, INTERFACE) == ["extra scales each channel by itself: a norm that was not folded"]


def test_the_same_work_twice_is_named(document):
    first = next(node for node in document.graph.node if node.op_type == "MaxPool")
    twin = helper.make_node("MaxPool", first.input, ["again"], name="again")
    twin.attribute.extend(first.attribute)
    document.graph.node.append(twin)
    assert f"again (MaxPool) computes what {first.name} computes" in lint(document, INTERFACE)


def test_all_of_a_dead_branch_is_named(document):
    document.graph.node.append(helper.make_node("Relu", ["centred"], ["one"], name="one"))
    document.graph.node.append(helper.make_node("Relu", ["one"], ["two"], name="two"))
    assert lint(document, INTERFACE) == ["nobody reads one (Relu)", "nobody reads two (Relu)"]


def test_what_nodes_do_not_show_is_named(document):
    document.training_info.add()
    document.graph.sparse_initializer.add().values.name = "thin"
    document.graph.quantization_annotation.add().tensor_name = "centred"
    text = " ".join(lint(document, INTERFACE))
    assert "training" in text and "thin is sparse" in text and "centred has a quantisation annotation" in text

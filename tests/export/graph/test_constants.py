"""Nodes that depend on constants alone are computed; everything else stays."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rcil.core.errors import RcilError
from rcil_export.graph.constants import compute_constants


def graph_of(nodes, output="y"):
    constants = [
        numpy_helper.from_array(np.arange(4, dtype=np.float32), "a"),
        numpy_helper.from_array(np.array([4], np.int64), "length"),
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", output)]
    graph = helper.make_graph(nodes, "graph", value[:1], value[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs, [output], name=output, **attributes)


def test_a_chain_of_constants_becomes_one():
    document = graph_of(
        [
            node("ConstantOfShape", ["length"], "ones", value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])),
            node("Add", ["a", "ones"], "more"),
            node("Mul", ["more", "more"], "squares"),
            node("Add", ["x", "squares"], "y"),
        ]
    )
    compute_constants(document)
    assert [n.op_type for n in document.graph.node] == ["Add"]
    assert {t.name: numpy_helper.to_array(t).tolist() for t in document.graph.initializer} == {"squares": [1, 4, 9, 16]}


@pytest.mark.parametrize(
    "nodes",
    [[node("RandomUniform", [], "noise", shape=[4]), node("Add", ["x", "noise"], "y")], [node("Neg", ["a"], "y")]],
)
def test_random_values_and_outputs_stay(nodes):
    document = graph_of(nodes)
    before = document.SerializeToString()
    compute_constants(document)
    assert document.SerializeToString() == before


def test_what_cannot_be_computed_is_an_error():
    with pytest.raises(RcilError, match="cannot be computed"):
        compute_constants(graph_of([node("Reshape", ["a", "a"], "b"), node("Add", ["x", "b"], "y")]))

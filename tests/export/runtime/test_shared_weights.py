"""Graphs whose weights ONNX Runtime reads where they are."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rcil_export.runtime.sessions import open_session
from rcil_export.runtime.shared_weights import split

WEIGHT = np.random.default_rng(0).normal(size=(64, 32, 1, 1)).astype(np.float32)
IMAGE = np.random.default_rng(1).normal(size=(1, 32, 5, 5)).astype(np.float32)


def graph(kind=np.float32):
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [
        helper.make_node("Cast", ["x"], ["cast"], to=element),
        helper.make_node("Conv", ["cast", "w"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    body = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, None, None])],
        [helper.make_tensor_value_info("z", element, None)],
        [numpy_helper.from_array(WEIGHT.astype(kind), "w")],
    )
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=8, producer_name="me")


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("exact", [False, True])
def test_the_session_gives_what_the_serialised_graph_gives(kind, exact):
    document = graph(kind)
    before = document.SerializeToString()
    assert split(document)[1].keys() == {"w"} and len(split(document)[0]) < 1000
    found = open_session(document, 1, exact=exact).run(None, {"x": IMAGE})[0]
    expected = open_session(before, 1, exact=exact).run(None, {"x": IMAGE})[0]
    assert np.array_equal(found, expected) and found.any()
    assert document.SerializeToString() == before


def test_further_outputs_and_only_those():
    session = open_session(graph(), 1, outputs=["y"])
    assert [output.name for output in session.get_outputs()] == ["z", "y"]
    session = open_session(graph(), 1, outputs=["y"], only=True)
    assert [output.name for output in session.get_outputs()] == ["y"]


def test_constants_of_another_graph():
    document = graph()
    light = onnx.ModelProto.FromString(split(document)[0])
    del light.graph.initializer[:]
    found = open_session(light, 1, constants=document.graph.initializer, early=True).run(None, {"x": IMAGE})[0]
    assert np.array_equal(found, open_session(document, 1).run(None, {"x": IMAGE})[0])


def test_a_default_that_may_be_replaced_stays_one():
    document = graph()
    document.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, WEIGHT.shape))
    assert split(document)[1] == {}
    given = open_session(document, 1).run(None, {"x": IMAGE, "w": np.zeros_like(WEIGHT)})[0]
    assert not given.any()


def test_a_constant_of_the_wrong_length_is_left_to_onnx_runtime():
    document = graph()
    document.graph.initializer[0].raw_data = document.graph.initializer[0].raw_data[:-4]
    assert split(document)[1] == {}

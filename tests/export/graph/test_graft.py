"""Grafting keeps what a graph computes, whatever the shapes of its constants."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from rcil_export.graph.graft import graft
from rcil_export.graph.nodes import NodeList


def test_scalars_stay_scalars():
    """torch's older exporter computes sizes from single axes, which a list of one axis would give another rank."""
    body = [
        helper.make_node("Shape", ["x"], ["sides"]),
        helper.make_node("Gather", ["sides", "axis"], ["side"]),
        helper.make_node("Unsqueeze", ["side", "first"], ["listed"]),
        helper.make_node("Concat", ["listed", "listed"], ["y"], axis=0),
    ]
    constants = [
        numpy_helper.from_array(np.array(1, np.int64), "axis"),
        numpy_helper.from_array(np.array([0], np.int64), "first"),
    ]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 5])
    sizes = helper.make_tensor_value_info("y", TensorProto.INT64, [2])
    nodes = NodeList()
    graft(nodes, helper.make_model(helper.make_graph(body, "body", [image], [sizes], constants)), "image", "sizes")
    image.name, sizes.name = "image", "sizes"
    graph = helper.make_graph(nodes.nodes, "grafted", [image], [sizes], list(nodes.constants.values()))
    document = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = onnxruntime.InferenceSession(document.SerializeToString())
    assert session.run(None, {"image": np.zeros((2, 5), np.float32)})[0].tolist() == [5, 5]

"""Copies of ONNX graphs, and small changes to them in place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rcil.model.header import METADATA_KEY
from rcil_export.graph.interface import INTERFACE_KEY

Array = np.ndarray[Any, Any]


def copied(document: onnx.ModelProto) -> onnx.ModelProto:
    """A copy, to be changed in place."""
    copy = onnx.ModelProto()
    copy.CopyFrom(document)
    return copy


def changed(document: onnx.ModelProto, change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    """A copy with a change."""
    copy = copied(document)
    change(copy)
    return copy


def nodes_of(document: onnx.ModelProto, op: str) -> list[onnx.NodeProto]:
    """All nodes of a kind, in the order of the file."""
    return [node for node in document.graph.node if node.op_type == op]


def a_conv(document: onnx.ModelProto, side: int | None = None) -> onnx.NodeProto:
    """A conv in the middle of the network; with `side`, one with a kernel of that size."""
    convs = nodes_of(document, "Conv")
    if side is not None:
        convs = [conv for conv in convs if attribute(conv, "kernel_shape") == [side, side]]
    return convs[len(convs) // 2]


def classifier(document: onnx.ModelProto) -> onnx.NodeProto:
    """The conv whose output channels are classes."""
    return nodes_of(document, "Conv")[-1]


def maker(document: onnx.ModelProto, value: str) -> onnx.NodeProto | None:
    """The node that gives a value."""
    return next((node for node in document.graph.node if value in node.output), None)


def stored(document: onnx.ModelProto, value: str) -> onnx.TensorProto:
    """The constant behind a value, through casts and quantisation."""
    constants = {tensor.name: tensor for tensor in document.graph.initializer}
    while value not in constants:
        node = maker(document, value)
        assert node is not None, value
        value = node.input[0]
    return constants[value]


def edit(tensor: onnx.TensorProto, change: Callable[[Array], Array]) -> None:
    """Replace the numbers of a constant; type and name stay."""
    array = numpy_helper.to_array(tensor)
    changed = numpy_helper.from_array(np.asarray(change(array.copy())).astype(array.dtype, order="C"), tensor.name)
    assert changed.SerializeToString() != tensor.SerializeToString(), f"{tensor.name} did not change"
    tensor.CopyFrom(changed)


def constant(document: onnx.ModelProto, name: str, array: Array) -> str:
    """A new constant."""
    document.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return name


def attribute(node: onnx.NodeProto, name: str) -> Any:
    """The value of an attribute, None without it."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), None)


def set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Give an attribute another value."""
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def expand_depthwise(document: onnx.ModelProto) -> onnx.NodeProto:
    """Make the first depthwise conv a dense one that computes the same; returns it."""
    conv = next(node for node in nodes_of(document, "Conv") if attribute(node, "group") > 1)

    def expanded(narrow: Array) -> Array:
        dense = np.zeros((len(narrow), len(narrow), *narrow.shape[2:]), narrow.dtype)
        dense[range(len(narrow)), range(len(narrow))] = narrow[:, 0]
        return dense

    edit(stored(document, conv.input[1]), expanded)
    set_attribute(conv, "group", 1)
    return conv


def insert(document: onnx.ModelProto, after: str, *nodes: onnx.NodeProto) -> None:
    """Put nodes behind the one that gives `after`; whoever read that value reads the last output of them instead."""
    last = nodes[-1].output[0]
    for node in document.graph.node:
        for index, name in enumerate(node.input):
            if name == after:
                node.input[index] = last
    at = next(i for i, node in enumerate(document.graph.node) if after in node.output)
    for offset, node in enumerate(nodes, 1):
        document.graph.node.insert(at + offset, node)


def make(op: str, inputs: list[str], name: str, **attributes: Any) -> onnx.NodeProto:
    """A node whose output has its name."""
    return helper.make_node(op, inputs, [name], name=name, **attributes)


def element_type(document: onnx.ModelProto, value: str) -> int:
    """ONNX's number for the type of a value, by shape inference."""
    graph = onnx.shape_inference.infer_shapes(document, data_prop=True).graph
    for entry in (*graph.value_info, *graph.input, *graph.output):
        if entry.name == value:
            return int(entry.type.tensor_type.elem_type)
    raise AssertionError(value)


def numpy_type(document: onnx.ModelProto, value: str) -> Any:
    """The same as a numpy type."""
    return helper.tensor_dtype_to_np_dtype(element_type(document, value))


def described(document: onnx.ModelProto, key: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a JSON text inside the file."""
    entry = next(entry for entry in document.metadata_props if entry.key == key)
    fields = json.loads(entry.value)
    change(fields)
    entry.value = json.dumps(fields, separators=(",", ":"))


def metadata(document: onnx.ModelProto, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what the file says about the network."""
    described(document, METADATA_KEY, change)


def interface(document: onnx.ModelProto, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what the file says about its input and outputs."""
    described(document, INTERFACE_KEY, change)


FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

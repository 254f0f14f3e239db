"""What a graph could hide from a comparison of nodes and constants; graphs that rcil-export writes have none of it."""

from __future__ import annotations

from collections import Counter

import onnx
from onnx import AttributeProto, TensorProto

UNCOMPARED = {
    AttributeProto.GRAPH: "a subgraph",
    AttributeProto.GRAPHS: "subgraphs",
    AttributeProto.SPARSE_TENSOR: "a sparse tensor",
    AttributeProto.SPARSE_TENSORS: "sparse tensors",
    AttributeProto.TYPE_PROTO: "a type",
    AttributeProto.TYPE_PROTOS: "types",
    AttributeProto.UNDEFINED: "an attribute without a type",
}
STORES = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
"""Fields of a tensor that hold its values; one of them is in use."""


def first_hidden(document: onnx.ModelProto) -> str | None:
    """The first thing in a graph that is refused rather than compared, in words; None if there is none."""
    graph = document.graph
    for what, entries in (
        ("functions of its own", document.functions),
        ("training information", document.training_info),
        ("sparse constants", graph.sparse_initializer),
        ("quantisation annotations", graph.quantization_annotation),
    ):
        if len(entries):
            return what
    return _in_nodes(graph) or _in_constants(graph) or _in_wiring(graph)


def _in_nodes(graph: onnx.GraphProto) -> str | None:
    for node in graph.node:
        where = f"at {node.name or (node.output[0] if node.output else '?')} ({node.op_type})"
        for attribute in node.attribute:
            if attribute.type in UNCOMPARED:
                return f"{UNCOMPARED[attribute.type]} {where}, in the attribute {attribute.name}"
            if attribute.ref_attr_name:
                return f"a reference to an attribute of a function {where}"
        if getattr(node, "overload", ""):
            return f"an overloaded op {where}"
        if not any(node.output):
            return f"a node that gives nothing {where}"
        doubled = [name for name, count in Counter(a.name for a in node.attribute).items() if count > 1]
        if doubled:
            return f"the attribute {doubled[0]} twice {where}"
    return None


def _in_constants(graph: onnx.GraphProto) -> str | None:
    inputs = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL or len(tensor.external_data):
            return f"the constant {tensor.name} in a file of its own"
        if tensor.HasField("segment"):
            return f"the constant {tensor.name} in segments"
        if sum(bool(len(getattr(tensor, field))) for field in STORES) > 1:
            return f"the values of the constant {tensor.name} twice"
        if tensor.name in inputs:
            return f"the constant {tensor.name} among its inputs, where it can be replaced"
    return None


def _in_wiring(graph: onnx.GraphProto) -> str | None:
    """Names that mean two things, or nothing."""
    given = [value.name for value in graph.input] + [tensor.name for tensor in graph.initializer]
    given += [name for node in graph.node for name in node.output if name]
    doubled = [name for name, count in Counter(given).items() if count > 1]
    if doubled:
        return f"two values that are called {doubled[0]}"
    known = {*given, ""}
    read = [name for node in graph.node for name in node.input] + [value.name for value in graph.output]
    unknown = [name for name in read if name not in known]
    if unknown:
        return f"the value {unknown[0]}, which nothing gives"
    return None

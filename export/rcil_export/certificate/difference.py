"""Comparing two ONNX graphs: first their structure, then all their numbers."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from rcil.core.errors import first_line
from rcil_export.certificate.graph import (
    GraphView,
    canonical,
    constants_by_canonical_name,
    learned_constants,
    ordered,
    type_and_dims,
    type_of,
)
from rcil_export.graph.nodes import constants_of, label

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
"""Fields of a tensor that can hold its values; exactly one of them should."""
MAX_LISTED = 16
"""Numbers of a constant that a message lists; longer constants are shown as a hash."""
FORMATS: dict[int, tuple[int, int]] = {
    TensorProto.DOUBLE: (52, -1074),
    TensorProto.FLOAT: (23, -149),
    TensorProto.FLOAT16: (10, -24),
    TensorProto.BFLOAT16: (7, -133),
}
"""Floating-point formats: bits of the mantissa, and the exponent of the smallest step between two numbers."""
NEGLIGIBLE = 1e-9
"""Numbers below this share of the constant's largest number are compared with the rounding step of that share: where
terms cancel, the order of additions matters even in float64."""
MAX_ULPS = 1.0
"""Two computations in float64 may round to neighbouring numbers."""
MAX_ROUNDED_OTHERWISE = 1e-4
"""Share of a constant's numbers that may differ by a rounding step (one number always may). By chance one in 10^8 does.
A constant in which many numbers are off by a step was changed, and in int8 a step is large."""


def first_difference(a: onnx.ModelProto, b: onnx.ModelProto) -> str | None:
    """None if both graphs are isomorphic, otherwise the first difference, with the names of both nodes.

    Compared are the IR version, opsets, names, types and shapes of inputs and outputs, ops, attributes, wiring, the
    type and shape of every value and of every constant, and the values of all constants that are settings (sizes, axes,
    bounds, zero points, the mean of pixels). Learned weights may differ; `weight_differences` compares them. Parts that
    this comparison cannot see, such as functions and subgraphs, count as a difference.
    """
    for which, document in (("first", a), ("second", b)):
        hidden = first_hidden(document)
        if hidden is not None:
            return f"the {which} graph has {hidden}; graphs of rcil-export have no such thing"
    plain_a, plain_b = canonical(a, weights=False), canonical(b, weights=False)
    heads_a, heads_b = _heads(plain_a), _heads(plain_b)
    for key, value in heads_a.items():
        if value != heads_b[key]:
            return f"the {key} are {value} and {heads_b[key]}"
    view_a, view_b = GraphView(plain_a), GraphView(plain_b)
    nodes_a, nodes_b = ordered(a.graph), ordered(b.graph)
    found = _first_node_difference(nodes_a, nodes_b, view_a, view_b)
    return found or _first_type_difference(nodes_a, nodes_b, view_a, view_b)


def _heads(plain: onnx.ModelProto) -> dict[str, str]:
    """Properties of the graph as a whole, by the words to use in a message."""
    return {
        "IR versions": str(plain.ir_version),
        "opsets": str([(opset.domain, opset.version) for opset in plain.opset_import]),
        "inputs": ", ".join(f"{value.name} {type_of(value)}" for value in plain.graph.input),
        "outputs": ", ".join(f"{value.name} {type_of(value)}" for value in plain.graph.output),
    }


def _first_node_difference(
    nodes_a: list[onnx.NodeProto], nodes_b: list[onnx.NodeProto], view_a: GraphView, view_b: GraphView
) -> str | None:
    for index, (node_a, node_b) in enumerate(zip(nodes_a, nodes_b, strict=False)):
        facts_a, facts_b = _facts(view_a, index), _facts(view_b, index)
        for key in dict.fromkeys([*facts_a, *facts_b]):
            if facts_a.get(key) != facts_b.get(key):
                return (
                    f"{label(node_a)} and {label(node_b)}: "
                    f"{key} is {facts_a.get(key, 'absent')} and {facts_b.get(key, 'absent')}"
                )
    if len(nodes_a) != len(nodes_b):
        longer, which = (nodes_a, "first") if len(nodes_a) > len(nodes_b) else (nodes_b, "second")
        extra = longer[min(len(nodes_a), len(nodes_b))]
        return f"only the {which} graph has {label(extra)}; the graphs have {len(nodes_a)} and {len(nodes_b)} nodes"
    unused_a, unused_b = _unused(view_a), _unused(view_b)
    return None if unused_a == unused_b else f"the constants that nobody reads are {unused_a} and {unused_b}"


def _facts(view: GraphView, index: int) -> dict[str, Any]:
    """Everything about one node that must agree, by the words to use in a message."""
    node = view.nodes[index]
    facts: dict[str, Any] = {"the op": ".".join(filter(None, (node.domain, node.op_type)))}
    for attribute in node.attribute:
        facts[f"the attribute {attribute.name}"] = helper.get_attribute_value(attribute)
        facts[f"the type of the attribute {attribute.name}"] = attribute.type
    for at, name in enumerate(node.input):
        facts[f"the source of input {at}"] = _source(view, name)
        if name in view.constants:
            facts[f"the constant at input {at}"] = _constant(view, name)
    facts["the number of outputs"] = len(node.output)
    for name in node.output:
        if name in view.outputs:
            facts["the graph's output"] = name
    return facts


def _first_type_difference(
    nodes_a: list[onnx.NodeProto], nodes_b: list[onnx.NodeProto], view_a: GraphView, view_b: GraphView
) -> str | None:
    """Types and shapes of all values of two graphs with equal nodes."""
    for which, view in (("first", view_a), ("second", view_b)):
        try:
            _ = view.values
        except (onnx.shape_inference.InferenceError, ValueError) as error:
            return f"the {which} graph is not valid ONNX: {first_line(error)}"
    for index, (node_a, node_b) in enumerate(zip(nodes_a, nodes_b, strict=True)):
        for name in view_a.nodes[index].output:
            types = view_a.type_of(name), view_b.type_of(name)
            if types[0] != types[1]:
                return f"{label(node_a)} and {label(node_b)} give {types[0]} and {types[1]}"
    return None


def _source(view: GraphView, name: str) -> str:
    if not name:
        return "nothing"
    if name in view.constants:
        return f"constant {name[1:]}"
    return f"node {view.position[name]}" if name in view.position else name


def _constant(view: GraphView, name: str) -> str:
    """Type and shape, and the values of a setting."""
    tensor = view.constants[name]
    text = type_and_dims(tensor.data_type, list(tensor.dims))
    if name in view.learned:
        return text
    values = numpy_helper.to_array(tensor)
    listed = values.tolist() if values.size <= MAX_LISTED else hashlib.sha256(values.tobytes()).hexdigest()
    return f"{text} = {listed}"


def _unused(view: GraphView) -> list[str]:
    read = {name for node in view.nodes for name in node.input} | view.outputs
    return [_constant(view, name) for name in view.constants if name not in read]


@dataclass(frozen=True)
class WeightDifference:
    """A constant whose numbers differ between two graphs of the same structure."""

    layer: str
    """The node that reads it, as in the first graph."""
    op: str
    input: int
    """Which input of the node it is."""
    constant: str
    """The name of the constant in the first graph."""
    ulps: float
    """Largest difference, in steps between neighbouring numbers of its format (in whole steps for integers)."""
    relative: float
    """Largest difference over the largest number of the constant."""
    count: int
    """Numbers that differ by more than is allowed."""
    size: int

    def __str__(self) -> str:
        return (
            f"{self.layer} ({self.op}), {self.constant}: {self.count:,} of {self.size:,} numbers differ, by up to "
            f"{self.relative:.2e} of the largest one ({self.ulps:.3g} rounding steps)"
        )

    def as_document(self) -> dict[str, Any]:
        """JSON-ready; infinity and NaN become texts."""
        return _finite(asdict(self))


def _finite(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        key: str(value) if isinstance(value, float) and not np.isfinite(value) else value
        for key, value in fields.items()
    }


def weight_differences(
    a: onnx.ModelProto, b: onnx.ModelProto, max_ulps: float = MAX_ULPS
) -> Iterator[WeightDifference]:
    """All constants of two isomorphic graphs whose numbers differ by more than rounding, in the order of execution.

    Args:
        a: A graph; its names are used.
        b: A graph for which `first_difference` found nothing.
        max_ulps: Rounding steps of the stored format by which a few numbers may differ.
    """
    constants_a, constants_b = (constants_of(document) for document in (a, b))
    seen: set[tuple[str, str]] = set()
    for node_a, node_b in zip(ordered(a.graph), ordered(b.graph), strict=True):
        for at, pair in enumerate(zip(node_a.input, node_b.input, strict=True)):
            if pair[0] not in constants_a or pair in seen:
                continue
            seen.add(pair)
            first, second = constants_a[pair[0]], constants_b[pair[1]]
            if first.raw_data and first.raw_data == second.raw_data:
                continue
            x, y = numpy_helper.to_array(first), numpy_helper.to_array(second)
            ulps, relative = distances(x, y, first.data_type)
            count, others = int((ulps > max_ulps).sum()), int((ulps > 0).sum())
            if others > max(1, MAX_ROUNDED_OTHERWISE * ulps.size):
                count = others
            if count:
                layer = node_a.name or node_a.output[0]
                largest = float(ulps.max()), float(relative)
                yield WeightDifference(layer, node_a.op_type, at, pair[0], *largest, count, ulps.size)


def distances(first: NDArray[Any], second: NDArray[Any], kind: int) -> tuple[NDArray[np.float64], float]:
    """Differences of all numbers in rounding steps of their format, and the largest as a share of the largest number.

    Args:
        first: Numbers of any type.
        second: Numbers of the same shape.
        kind: ONNX's element type, whose rounding steps are the unit.
    """
    x, y = np.asarray(first, np.float64), np.asarray(second, np.float64)
    size = np.maximum(np.abs(x), np.abs(y))
    largest = float(size.max(initial=0))
    with np.errstate(invalid="ignore"):
        apart = np.where(x == y, 0.0, np.abs(x - y))
    apart[np.isnan(apart)] = np.inf
    apart[np.isnan(x) & np.isnan(y)] = 0.0
    steps: NDArray[np.float64] = np.ones_like(size)
    if kind in FORMATS:
        bits, smallest = FORMATS[kind]
        floor = NEGLIGIBLE * largest if np.isfinite(largest) else 1.0
        powers = np.frexp(np.maximum(np.nan_to_num(size), floor))[1] - 1
        steps = np.ldexp(1.0, np.maximum(powers - bits, smallest))
    furthest = float(apart.max(initial=0))
    return apart / steps, furthest / largest if 0 < largest < np.inf else furthest


def with_weights_of(document: onnx.ModelProto, other: onnx.ModelProto) -> onnx.ModelProto:
    """The canonical form of `document` with the learned numbers of `other`, which is isomorphic to it."""
    plain, numbers = canonical(document, weights=False), constants_by_canonical_name(other.graph)
    learned = learned_constants(plain.graph)
    for tensor in plain.graph.initializer:
        if tensor.name in learned:
            name = tensor.name
            tensor.CopyFrom(numbers[name])
            tensor.ClearField("doc_string")
            tensor.name = name
    return plain


def first_hidden(document: onnx.ModelProto) -> str | None:
    """The first part of a graph that is refused rather than compared; graphs that rcil-export writes have none."""
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
        where = f"at {label(node)}"
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
    """Names that are defined twice, or not at all."""
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

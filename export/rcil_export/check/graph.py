"""Comparing two ONNX graphs node for node, whatever their names, and counting what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

from rcil.errors import RcilError

PARAMETERS_AT = {"Conv": (1, 2), "BatchNormalization": (1, 2)}
"""Which inputs of a node are trained numbers; the mean and variance of a norm are not."""
PASSED_ON = {"Cast", "QuantizeLinear", "DequantizeLinear"}
"""Nodes that may stand between a conv and its stored weights."""


def canonical(document: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph in an order and with names that depend on its structure alone.

    Nodes come in the order in which a walk from the outputs, first input first, has all it needs. Nodes, their values
    and constants are named by that order: n0, v0, c0 ... Inputs and outputs keep their names, which users see. What
    does not compute is dropped: metadata, descriptions, recorded shapes, producer.
    """
    graph = document.graph
    nodes = _ordered(graph)
    constants = {tensor.name: tensor for tensor in graph.initializer}
    kept = {value.name for value in (*graph.input, *graph.output)}
    read = [name for node in nodes for name in node.input if name in constants]
    used = list(dict.fromkeys([*read, *(name for name in constants if name not in read)]))
    made = [name for node in nodes for name in node.output if name]
    names = {name: name for name in kept} | {"": ""}
    names |= {name: f"c{index}" for index, name in enumerate(used) if name not in kept}
    names |= {name: f"v{index}" for index, name in enumerate(made) if name not in kept}

    renamed = onnx.ModelProto(ir_version=document.ir_version)
    renamed.opset_import.extend(sorted(document.opset_import, key=lambda opset: opset.domain))
    renamed.graph.name = "canonical"
    for side, values in ((renamed.graph.input, graph.input), (renamed.graph.output, graph.output)):
        side.extend(onnx.ValueInfoProto(name=value.name, type=value.type) for value in values)
    for name in used:
        tensor = renamed.graph.initializer.add()
        tensor.CopyFrom(constants[name])
        tensor.name = names[name]
        tensor.ClearField("doc_string")
    for index, node in enumerate(nodes):
        twin = renamed.graph.node.add(op_type=node.op_type, domain=node.domain, name=f"n{index}")
        twin.input.extend(names[name] for name in node.input)
        twin.output.extend(names[name] for name in node.output)
        twin.attribute.extend(sorted(node.attribute, key=lambda attribute: attribute.name))
    return renamed


def first_difference(a: onnx.ModelProto, b: onnx.ModelProto) -> str | None:
    """None if both graphs are isomorphic, or the first place where they differ, named as in both.

    Compared are ops, attributes, wiring, type and shape of every value and of every constant, and the values of
    constants that are settings (sizes, axes, bounds). Weights may differ.
    """
    plain_a, plain_b = canonical(a), canonical(b)
    opsets_a, opsets_b = ([(o.domain, o.version) for o in plain.opset_import] for plain in (plain_a, plain_b))
    if opsets_a != opsets_b:
        return f"the opsets are {opsets_a} and {opsets_b}"
    for side in ("input", "output"):
        ends_a, ends_b = (
            [f"{value.name} {_type_of(value)}" for value in getattr(plain.graph, side)] for plain in (plain_a, plain_b)
        )
        if ends_a != ends_b:
            return f"the {side}s are {', '.join(ends_a)} and {', '.join(ends_b)}"
    view_a, view_b = _View(plain_a), _View(plain_b)
    ordered_a, ordered_b = _ordered(a.graph), _ordered(b.graph)
    for index, (node_a, node_b) in enumerate(zip(ordered_a, ordered_b, strict=False)):
        facts_a, facts_b = view_a.facts(index), view_b.facts(index)
        for key in dict.fromkeys([*facts_a, *facts_b]):
            if facts_a.get(key) != facts_b.get(key):
                return (
                    f"{_named(node_a)} and {_named(node_b)}: "
                    f"{key} is {facts_a.get(key, 'absent')} and {facts_b.get(key, 'absent')}"
                )
    if len(ordered_a) != len(ordered_b):
        longer, which = (ordered_a, "first") if len(ordered_a) > len(ordered_b) else (ordered_b, "second")
        extra = longer[min(len(ordered_a), len(ordered_b))]
        return f"only the {which} graph has {_named(extra)}; it has {len(ordered_a)} and {len(ordered_b)} nodes"
    unused_a, unused_b = view_a.unused(), view_b.unused()
    return None if unused_a == unused_b else f"constants that nobody reads: {unused_a} and {unused_b}"


def parameters_and_macs(document: onnx.ModelProto, image: Sequence[int] | None = None) -> tuple[int, int]:
    """Trained numbers, and multiply-accumulates of all convs for one image, counted from the graph itself.

    Args:
        document: A graph with a single input.
        image: Shape of the input, for a graph that leaves it open.
    """
    plain = canonical(document)
    if image is not None:
        plain = at_shape(plain, image)
    view = _View(plain)
    stored: set[str] = set()
    macs = 0
    for node in plain.graph.node:
        places = PARAMETERS_AT.get(node.op_type, ())
        stored |= {view.stored(node.input[at]) for at in places if at < len(node.input)}
        if node.op_type == "Conv":
            weight = view.constants[view.stored(node.input[1])]
            made = view.dims(node.output[0])[1:]
            sides = [side for side in made if isinstance(side, int)]
            if len(sides) < len(made):
                raise RcilError(
                    f"the graph leaves its size open (a conv gives {made}), so its cost has no number",
                    "Name the shape of the image to count for.",
                )
            macs += math.prod(sides) * math.prod(weight.dims[1:])
    return sum(math.prod(view.constants[name].dims) for name in stored), macs


def at_shape(document: onnx.ModelProto, image: Sequence[int]) -> onnx.ModelProto:
    """A copy whose single input has this shape; the shapes of the outputs follow from it."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(document)
    entry = fixed.graph.input[0]
    kind = entry.type.tensor_type.elem_type
    entry.CopyFrom(helper.make_tensor_value_info(entry.name, kind, list(image)))
    for value in fixed.graph.output:
        value.type.tensor_type.ClearField("shape")
    del fixed.graph.value_info[:]
    return fixed


class _View:
    """A canonical graph with all shapes inferred."""

    def __init__(self, plain: onnx.ModelProto) -> None:
        self.nodes = list(plain.graph.node)
        self.constants = {tensor.name: tensor for tensor in plain.graph.initializer}
        self.outputs = {value.name for value in plain.graph.output}
        self.position = {name: index for index, node in enumerate(self.nodes) for name in node.output}
        graph = onnx.shape_inference.infer_shapes(
            _without_weights(plain), check_type=True, strict_mode=True, data_prop=True
        ).graph
        self.values = {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}

    def facts(self, index: int) -> dict[str, Any]:
        """All about one node that must agree, under the words to use in a message."""
        node = self.nodes[index]
        facts: dict[str, Any] = {"the op": ".".join(filter(None, (node.domain, node.op_type)))}
        for attribute in node.attribute:
            facts[f"the attribute {attribute.name}"] = helper.get_attribute_value(attribute)
        for at, name in enumerate(node.input):
            facts[f"the source of input {at}"] = self._source(name)
            if name in self.constants:
                facts[f"the constant at input {at}"] = self._constant(node, self.constants[name])
        for at, name in enumerate(node.output):
            facts[f"output {at}"] = _type_of(self.values[name]) if name in self.values else "unknown"
            if name in self.outputs:
                facts["the graph's output"] = name
        return facts

    def dims(self, name: str) -> list[int | str]:
        """Inferred shape of a value."""
        return _dims(self.values[name])

    def stored(self, name: str) -> str:
        """The constant behind a value that a cast or a quantisation passes on."""
        while name not in self.constants:
            node = self.nodes[self.position[name]] if name in self.position else None
            if node is None or node.op_type not in PASSED_ON:
                raise RcilError("the weights of a conv are computed, not stored", "Give a file that rcil-export wrote.")
            name = node.input[0]
        return name

    def unused(self) -> list[str]:
        """Constants that nobody reads."""
        read = {name for node in self.nodes for name in node.input}
        return [_type_and_dims(t.data_type, list(t.dims)) for name, t in self.constants.items() if name not in read]

    def _source(self, name: str) -> str:
        if not name:
            return "nothing"
        if name in self.constants:
            return f"constant {name[1:]}"
        return f"node {self.position[name]}" if name in self.position else name

    def _constant(self, node: onnx.NodeProto, tensor: onnx.TensorProto) -> str:
        text = _type_and_dims(tensor.data_type, list(tensor.dims))
        return f"{text} = {numpy_helper.to_array(tensor).tolist()}" if _is_setting(node, tensor) else text


def _is_setting(node: onnx.NodeProto, tensor: onnx.TensorProto) -> bool:
    """Whether a constant is a part of the graph like an attribute, not a learned number."""
    return tensor.data_type == TensorProto.INT64 or node.op_type == "Clip"


def _without_weights(plain: onnx.ModelProto) -> onnx.ModelProto:
    """Floating-point constants declared as inputs: shape inference then copies no weights."""
    light = onnx.ModelProto(ir_version=plain.ir_version)
    light.opset_import.extend(plain.opset_import)
    light.graph.name = plain.graph.name
    light.graph.node.extend(plain.graph.node)
    light.graph.input.extend(plain.graph.input)
    light.graph.output.extend(plain.graph.output)
    for tensor in plain.graph.initializer:
        if tensor.data_type == TensorProto.INT64:
            light.graph.initializer.add().CopyFrom(tensor)
        else:
            light.graph.input.add().CopyFrom(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    return light


def _ordered(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """All nodes, each after those it reads, in an order that neither names nor the file's order decide.

    Nodes that no output needs come last, in the order of the file.
    """
    made_by = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    order: list[int] = []
    entered: set[int] = set()
    roots = [made_by[value.name] for value in graph.output if value.name in made_by]
    for root in (*roots, *range(len(graph.node))):
        stack = [(root, False)]
        while stack:
            index, ready = stack.pop()
            if ready:
                order.append(index)
            elif index not in entered:
                entered.add(index)
                stack.append((index, True))
                sources = [made_by[name] for name in graph.node[index].input if name in made_by]
                stack.extend((source, False) for source in reversed(sources) if source not in entered)
    return [graph.node[index] for index in order]


def _named(node: onnx.NodeProto) -> str:
    return f"{node.name or node.output[0]} ({node.op_type})"


def _dims(value: onnx.ValueInfoProto) -> list[int | str]:
    shape: Iterable[Any] = value.type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in shape]


def _type_of(value: onnx.ValueInfoProto) -> str:
    return _type_and_dims(value.type.tensor_type.elem_type, _dims(value))


def _type_and_dims(kind: int, dims: Sequence[int | str]) -> str:
    return f"{TensorProto.DataType.Name(kind).lower()} {list(dims)}"

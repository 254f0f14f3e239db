"""ONNX graphs independent of names: a canonical form, and counts of parameters and multiply-accumulates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from rcil.core.errors import RcilError
from rcil_export.graph.nodes import constants_of, with_declared_constants

PARAMETERS_AT = {"Conv": (1, 2), "BatchNormalization": (1, 2)}
"""Inputs of a node that are trained parameters; the mean and variance of a norm are not."""
LEARNED_AT = {
    "Conv": (1, 2),
    "BatchNormalization": (1, 2, 3, 4),
    "Mul": (0, 1),
    "QuantizeLinear": (1,),
    "DequantizeLinear": (0, 1),
}
"""Inputs of a node whose constants follow from training or calibration; all other constants are settings."""
PASSED_ON = {"Cast", "QuantizeLinear", "DequantizeLinear"}
"""Operations that are allowed between stored weights and their conv."""


def canonical(document: onnx.ModelProto, *, weights: bool = True) -> onnx.ModelProto:
    """The same graph in an order and with names that depend on its structure alone.

    Nodes are in the order of a depth-first walk from the outputs, first input first, each after its inputs. Nodes,
    values and constants are named by that order: n0, v0, c0 ... Inputs and outputs keep their names, which users see.
    Everything that computes nothing is dropped: metadata, descriptions, recorded shapes, producer.

    Args:
        document: The graph.
        weights: Whether learned constants keep their numbers; if not, only their types and shapes.
    """
    graph = document.graph
    nodes = ordered(graph)
    constants = {tensor.name: tensor for tensor in graph.initializer}
    names = _canonical_names(graph, nodes, constants)
    dropped = set() if weights else learned_constants(graph)

    renamed = onnx.ModelProto(ir_version=document.ir_version)
    renamed.opset_import.extend(sorted(document.opset_import, key=lambda opset: opset.domain))
    renamed.graph.name = "canonical"
    for side, values in ((renamed.graph.input, graph.input), (renamed.graph.output, graph.output)):
        side.extend(onnx.ValueInfoProto(name=value.name, type=value.type) for value in values)
    for name in sorted(constants, key=lambda name: _position(names[name])):
        tensor = renamed.graph.initializer.add()
        if name in dropped:
            tensor.data_type = constants[name].data_type
            tensor.dims.extend(constants[name].dims)
        else:
            tensor.CopyFrom(constants[name])
            tensor.ClearField("doc_string")
        tensor.name = names[name]
    for index, node in enumerate(nodes):
        twin = renamed.graph.node.add(op_type=node.op_type, domain=node.domain, name=f"n{index}")
        twin.input.extend(names.get(name, name) for name in node.input)
        twin.output.extend(names[name] for name in node.output)
        twin.attribute.extend(sorted(node.attribute, key=lambda attribute: attribute.name))
    return renamed


def _canonical_names(
    graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], constants: Iterable[str]
) -> dict[str, str]:
    """New names of all values and constants; constants that nobody reads come last."""
    kept = {value.name for value in (*graph.input, *graph.output)}
    known = set(constants)
    read = [name for node in nodes for name in node.input if name in known]
    used = list(dict.fromkeys([*read, *constants]))
    made = [name for node in nodes for name in node.output if name]
    names = {name: name for name in kept} | {"": ""}
    names |= {name: f"c{index}" for index, name in enumerate(used) if name not in kept}
    return names | {name: f"v{index}" for index, name in enumerate(made) if name not in kept}


def constants_by_canonical_name(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """The constants of a graph, by the names that `canonical` gives them."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    names = _canonical_names(graph, ordered(graph), constants)
    return {names[name]: tensor for name, tensor in constants.items()}


def _position(name: str) -> int:
    """The number in a constant's canonical name; a constant that is also an output of the graph comes first."""
    return int(name[1:]) if name[1:].isdigit() else -1


def ordered(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """All nodes, each after its inputs, in an order that depends neither on names nor on the order in the file.

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


def learned_constants(graph: onnx.GraphProto) -> set[str]:
    """Names of the constants that follow from training or calibration, also behind casts and quantisation."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    made_by = {name: node for node in graph.node for name in node.output}
    found: set[str] = set()
    for node in graph.node:
        for at in LEARNED_AT.get(node.op_type, ()):
            name = node.input[at] if at < len(node.input) else ""
            while name in made_by and made_by[name].op_type in PASSED_ON:
                name = made_by[name].input[0]
            if name in constants:
                found.add(name)
    return found


def parameters_and_macs(document: onnx.ModelProto, image: Sequence[int] | None = None) -> tuple[int, int]:
    """Trained parameters, and multiply-accumulates of all convs for one image, counted in the graph itself.

    Args:
        document: A graph with a single input.
        image: Shape of the input, for a graph that leaves it open.
    """
    plain = canonical(document, weights=False)
    if image is not None:
        plain = at_shape(plain, image)
    view = GraphView(plain)
    stored: set[str] = set()
    macs = 0
    for node in plain.graph.node:
        positions = PARAMETERS_AT.get(node.op_type, ())
        stored |= {view.stored(node.input[at]) for at in positions if at < len(node.input)}
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


def with_fixed_size(document: onnx.ModelProto, image: Sequence[int]) -> onnx.ModelProto:
    """A copy for images of this shape alone, in which computed sizes are constants.

    TensorRT-RTX builds are reproducible only if a graph computes no sizes.
    """
    if not any(node.op_type == "Shape" for node in document.graph.node):
        return document
    fixed = at_shape(document, image)
    graph = fixed.graph
    known = {t.name: numpy_helper.to_array(t) for t in graph.initializer if t.data_type == TensorProto.INT64}
    computed: dict[str, NDArray[Any]] = {}
    kept: list[onnx.NodeProto] = []
    for node in ordered(graph):
        values = [{**known, **computed}.get(name) for name in node.input]
        if node.op_type == "Shape" and node.input[0] == graph.input[0].name and not node.attribute:
            computed[node.output[0]] = np.array(image, np.int64)
        elif node.op_type == "Gather" and node.input[0] in computed and values[1] is not None and not node.attribute:
            computed[node.output[0]] = np.take(computed[node.input[0]], values[1])
        elif node.op_type == "Concat" and all(value is not None for value in values):
            computed[node.output[0]] = np.concatenate([value for value in values if value is not None])
        else:
            kept.append(node)
    read = {name for node in kept for name in node.input}
    graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in computed.items() if name in read)
    nodes = [node.SerializeToString() for node in kept]
    constants = [t.SerializeToString() for t in graph.initializer if t.name in read]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(map(onnx.NodeProto.FromString, nodes))
    graph.initializer.extend(map(onnx.TensorProto.FromString, constants))
    return fixed


class GraphView:
    """A canonical graph; its shapes are inferred on first use."""

    def __init__(self, plain: onnx.ModelProto) -> None:
        self.plain = plain
        self.nodes = list(plain.graph.node)
        self.constants = constants_of(plain)
        self.outputs = {value.name for value in plain.graph.output}
        self.position = {name: index for index, node in enumerate(self.nodes) for name in node.output}
        self.learned = learned_constants(plain.graph)

    @cached_property
    def values(self) -> dict[str, onnx.ValueInfoProto]:
        """Types and shapes of all values; a graph that is not valid raises `InferenceError`."""
        light = with_declared_constants(self.plain)
        graph = onnx.shape_inference.infer_shapes(light, check_type=True, strict_mode=True, data_prop=True).graph
        return {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}

    def dims(self, name: str) -> list[int | str]:
        """Inferred shape of a value."""
        return dims_of(self.values[name])

    def type_of(self, name: str) -> str:
        """Inferred type and shape of a value."""
        return type_of(self.values[name]) if name in self.values else "unknown"

    def stored(self, name: str) -> str:
        """The constant that a value is cast or dequantised from."""
        while name not in self.constants:
            node = self.nodes[self.position[name]] if name in self.position else None
            if node is None or node.op_type not in PASSED_ON:
                raise RcilError("the weights of a conv are computed, not stored", "Give a file that rcil-export wrote.")
            name = node.input[0]
        return name


def dims_of(value: onnx.ValueInfoProto) -> list[int | str]:
    """Lengths or names of the axes that a value declares; `?` for an axis without either."""
    shape: Iterable[Any] = value.type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in shape]


def type_of(value: onnx.ValueInfoProto) -> str:
    """Type and shape of a value as text."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return f"{kind_name(tensor.elem_type)} of any shape"
    return type_and_dims(tensor.elem_type, dims_of(value))


def type_and_dims(kind: int, dims: Sequence[int | str]) -> str:
    """An element type and a shape as text."""
    return f"{kind_name(kind)} {list(dims)}"


def kind_name(kind: int) -> str:
    """Name of an element type; damaged files may have types that ONNX does not know."""
    known = TensorProto.DataType.values()
    return TensorProto.DataType.Name(kind).lower() if kind in known else f"element type {kind}"

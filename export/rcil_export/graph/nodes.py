"""The nodes and constants of an ONNX graph: adding, finding, ordering and copying them. No torch here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

ACTIVATIONS = frozenset({"LeakyRelu", "Relu", "Clip"})


class NodeList:
    """Nodes in the order of execution; every node has one output, named like the node."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def add(self, op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        """Append a node; returns the name of its output. An empty input name leaves an optional input out."""
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """A constant by name; the same name twice is the same constant."""
        self.constants.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name


def constants_of(document: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """The graph's constants by name."""
    return {tensor.name: tensor for tensor in document.graph.initializer}


def without_constants(document: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of all but the constants, which are nearly all of a file's bytes."""
    light = onnx.ModelProto()
    _copy_fields(document, light, "graph")
    _copy_fields(document.graph, light.graph, "initializer")
    return light


def _copy_fields(source: Any, target: Any, left_out: str) -> None:
    for field, value in source.ListFields():
        if field.name == left_out:
            continue
        if isinstance(value, str | bytes | int | float):
            setattr(target, field.name, value)
        elif isinstance(value, Iterable):
            getattr(target, field.name).extend(value)
        else:
            getattr(target, field.name).CopyFrom(value)


def with_declared_constants(document: onnx.ModelProto, min_bytes: int = 0) -> onnx.ModelProto:
    """A copy whose constants are inputs of the same type and shape, so that looking at types copies no weights.

    Integers of 64 bits, on which shapes may depend, stay constants, and so do those that are inputs or exist twice.

    Args:
        document: Any graph.
        min_bytes: Constants with less raw data stay too.
    """
    light = without_constants(document)
    taken = {value.name for value in document.graph.input}
    for tensor in document.graph.initializer:
        if tensor.data_type == TensorProto.INT64 or tensor.name in taken or tensor.ByteSize() < min_bytes:
            light.graph.initializer.append(tensor)
        else:
            light.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        taken.add(tensor.name)
    return light


def readers_of(nodes: Iterable[onnx.NodeProto]) -> dict[str, list[onnx.NodeProto]]:
    """Who reads a value, by the value's name."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in dict.fromkeys(node.input):
            if name:
                readers.setdefault(name, []).append(node)
    return readers


def activation_after(name: str, readers: dict[str, list[onnx.NodeProto]]) -> onnx.NodeProto | None:
    """The activation that alone reads the value `name`, if it is so."""
    found = readers.get(name, [])
    return found[0] if len(found) == 1 and found[0].op_type in ACTIVATIONS else None


def set_inputs(node: onnx.NodeProto, names: Iterable[str]) -> None:
    """Let the node read other values."""
    kept = list(names)
    del node.input[:]
    node.input.extend(kept)


def replace_nodes(document: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Put `nodes` into the graph in an order of execution; what leads to no output is left out.

    Nodes keep the order they have, but for those that stand behind their reader: they move in front of it.
    """
    graph = document.graph
    ordered = [
        onnx.NodeProto.FromString(node.SerializeToString())
        for node in _in_order(list(nodes), {output.name for output in graph.output})
    ]
    read = {name for node in ordered for name in node.input}
    constants = [t.SerializeToString() for t in graph.initializer if t.name in read]
    del graph.node[:], graph.value_info[:], graph.initializer[:]
    graph.node.extend(ordered)
    graph.initializer.extend(onnx.TensorProto.FromString(constant) for constant in constants)


def _in_order(nodes: list[onnx.NodeProto], wanted: set[str]) -> list[onnx.NodeProto]:
    """Nodes that lead to a wanted value, each behind what it reads."""
    writer = {name: at for at, node in enumerate(nodes) for name in node.output}
    needed: set[int] = set()
    names = list(wanted)
    while names:
        at = writer.get(names.pop())
        if at is not None and at not in needed:
            needed.add(at)
            names += nodes[at].input
    ordered: dict[int, None] = {}
    waiting = sorted(needed, reverse=True)
    while waiting:
        sources = [writer[name] for name in nodes[waiting[-1]].input if name in writer]
        missing = [at for at in sources if at not in ordered]
        if missing:
            waiting += reversed(missing)
        else:
            ordered.setdefault(waiting.pop())
    return [nodes[at] for at in ordered]

"""The nodes and constants of an ONNX graph: adding, finding, ordering and copying them. No torch here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

ACTIVATIONS = frozenset({"LeakyRelu", "Relu", "Clip"})


@dataclass
class NodeList:
    """Nodes in the order of execution; every node has one output, named like the node."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def add(self, op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        """Append a node; returns the name of its output. An empty input name omits an optional input."""
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """Add a constant and return its name; the same name twice is the same constant."""
        self.constants.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name


def constants_of(document: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """The graph's constants by name."""
    return {tensor.name: tensor for tensor in document.graph.initializer}


def label(node: onnx.NodeProto) -> str:
    """The node's name, or that of its output, and its op, for messages."""
    return f"{node.name or (node.output[0] if node.output else '?')} ({node.op_type})"


def without_constants(document: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without the constants, which are nearly all of a file's bytes."""
    light = onnx.ModelProto()
    _copy_fields(document, light, "graph")
    _copy_fields(document.graph, light.graph, "initializer")
    return light


def _copy_fields(source: Any, target: Any, left_out: str) -> None:
    for entry, value in source.ListFields():
        if entry.name == left_out:
            continue
        if isinstance(value, str | bytes | int | float):
            setattr(target, entry.name, value)
        elif isinstance(value, Iterable):
            getattr(target, entry.name).extend(value)
        else:
            getattr(target, entry.name).CopyFrom(value)


def with_declared_constants(document: onnx.ModelProto, min_bytes: int = 0) -> onnx.ModelProto:
    """A copy whose constants are inputs of the same type and shape, so that inferring types copies no weights.

    Those that shapes depend on stay, which are of int64 or scale a Resize, and those that are inputs or exist twice.

    Args:
        document: Any graph.
        min_bytes: Constants with less raw data stay too.
    """
    light = without_constants(document)
    kept = {value.name for value in document.graph.input}
    kept |= {node.input[2] for node in document.graph.node if node.op_type == "Resize" and len(node.input) > 2}
    for tensor in document.graph.initializer:
        if tensor.data_type == TensorProto.INT64 or tensor.name in kept or tensor.ByteSize() < min_bytes:
            light.graph.initializer.append(tensor)
        else:
            light.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        kept.add(tensor.name)
    return light


def readers_of(nodes: Iterable[onnx.NodeProto]) -> dict[str, list[onnx.NodeProto]]:
    """The nodes that read a value, by the value's name."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in dict.fromkeys(node.input):
            if name:
                readers.setdefault(name, []).append(node)
    return readers


def activation_after(name: str, readers: dict[str, list[onnx.NodeProto]]) -> onnx.NodeProto | None:
    """The activation that is the only reader of the value `name`; None if there is none."""
    found = readers.get(name, [])
    return found[0] if len(found) == 1 and found[0].op_type in ACTIVATIONS else None


def set_inputs(node: onnx.NodeProto, names: Iterable[str]) -> None:
    """Let the node read other values."""
    kept = list(names)
    del node.input[:]
    node.input.extend(kept)


def replace_nodes(document: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Replace the nodes of the graph by `nodes`, in an order of execution; nodes that lead to no output are left out.

    Nodes keep their order, except that a node after its reader moves in front of it.
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


def needed_values(nodes: Iterable[onnx.NodeProto], outputs: Iterable[str]) -> set[str]:
    """Names of all values that the values `outputs` are computed from, and of these themselves."""
    writer = {name: node for node in nodes for name in node.output}
    needed: set[str] = set()
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name and name not in needed:
            needed.add(name)
            waiting += writer[name].input if name in writer else []
    return needed


def _in_order(nodes: list[onnx.NodeProto], outputs: set[str]) -> list[onnx.NodeProto]:
    """The nodes that lead to an output, each after the nodes that it reads from."""
    needed = needed_values(nodes, outputs)
    writer = {name: index for index, node in enumerate(nodes) for name in node.output}
    ordered: dict[int, None] = {}
    waiting = [index for index, node in enumerate(nodes) if needed.intersection(node.output)][::-1]
    while waiting:
        sources = [writer[name] for name in nodes[waiting[-1]].input if name in writer]
        missing = [index for index in sources if index not in ordered]
        if missing:
            waiting += reversed(missing)
        else:
            ordered.setdefault(waiting.pop())
    return [nodes[index] for index in ordered]

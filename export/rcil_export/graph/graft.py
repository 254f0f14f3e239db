"""Putting the nodes of a graph that another program wrote into one of ours."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper, numpy_helper

from rcil.core.errors import RcilError
from rcil_export.graph.nodes import NodeList


def graft(
    nodes: NodeList, body: onnx.ModelProto, image: str, output: str, known: Mapping[str, str] | None = None
) -> None:
    """Add the nodes and constants of a graph with one input and one output, under names of their own.

    Args:
        nodes: Where they are added.
        body: The graph.
        image: Name of the value that its input is.
        output: Name for the value that its output is.
        known: New names for some of its values.
    """
    graph = body.graph
    if body.functions or len(graph.input) != 1 or len(graph.output) != 1:
        raise RcilError("the graph has functions, or several inputs", "Export the network without them.")
    names = {**(known or {}), "": "", graph.input[0].name: image, graph.output[0].name: output}
    for tensor in graph.initializer:
        name = names[tensor.name] = f"net.{tensor.name}"  # a scalar stays one, as a Gather of one axis needs it
        nodes.constants[name] = numpy_helper.from_array(numpy_helper.to_array(tensor), name)
    for index, node in enumerate(graph.node):
        for position, value in enumerate(node.output):
            if value and value not in names:
                names[value] = f"net.{node.op_type}_{index}" + (f"_{position}" if position else "")
    for index, node in enumerate(graph.node):
        title = known[node.output[0]] if known and node.output[0] in known else f"net.{node.op_type}_{index}"
        copy = helper.make_node(
            node.op_type,
            [names[name] for name in node.input],
            [names[name] for name in node.output],
            name=title,
            domain=node.domain,
        )
        copy.attribute.extend(node.attribute)
        for attribute in copy.attribute:
            attribute.ClearField("doc_string")
        nodes.nodes.append(copy)

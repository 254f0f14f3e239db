"""A growing list of ONNX nodes and constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper


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

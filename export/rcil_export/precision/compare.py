"""Running graphs of any precision on the CPU and comparing the classes that they choose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from rcil_export.graph.nodes import without_constants
from rcil_export.graph.postprocessing import full_logits
from rcil_export.precision.feeds import Feed
from rcil_export.precision.ranges import float_values
from rcil_export.runtime.sessions import open_session

Rows = NDArray[np.int64]


def rows_of(document: onnx.ModelProto, feeds: Iterable[Feed], *, exact: bool = True) -> list[Rows]:
    """Class rows [N, H, W] of every batch, from the full-size logits, whatever the graph's outputs are.

    Args:
        document: Any precision; fp16 and bf16 are computed with fp32 kernels and rounded after every node.
        feeds: The batches.
        exact: Run node by node as written. Otherwise ONNX Runtime fuses nodes, for int8 into the CPU's int8 kernels.
    """
    axis = full_logits(document)[1]
    return [np.argmax(values, axis=axis) for values in logits_of(with_rounding(document), feeds, exact=exact)]


def logits_of(document: onnx.ModelProto, feeds: Iterable[Feed], *, exact: bool) -> Iterator[NDArray[np.float32]]:
    """Full-size logits of every batch, whatever the graph's outputs are; see `full_logits` for their axes."""
    name = full_logits(document)[0]
    session = open_session(document, exact=exact, outputs=[name], only=True)
    return (session.run([name], feed)[0] for feed in feeds)


def agreement(first: list[Rows], second: list[Rows]) -> float:
    """Share of pixels with the same class."""
    same = sum(int((a == b).sum()) for a, b in zip(first, second, strict=True))
    return same / sum(a.size for a in first)


def with_rounding(document: onnx.ModelProto) -> onnx.ModelProto:
    """An fp32 graph that computes what an fp16 or bf16 graph does: every half value is rounded when it is written.

    ONNX Runtime's CPU has few fp16 and hardly any bf16 kernels and silently skips the rounding between fp32 ones, so
    running the half graph itself would look better than it is. Sums inside a node are in fp32, as on tensor cores.
    The result for a graph without half values is a copy.
    """
    half = {name: kind for name, kind in float_values(document).items() if kind != TensorProto.FLOAT}
    copy = without_constants(document)
    graph = copy.graph
    for tensor in document.graph.initializer:
        if tensor.data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
            values = numpy_helper.to_array(tensor).astype(np.float32)
            graph.initializer.append(numpy_helper.from_array(values, tensor.name))
        else:
            graph.initializer.append(tensor)
    nodes: list[onnx.NodeProto] = []
    for node in document.graph.node:
        same = onnx.NodeProto.FromString(node.SerializeToString())
        nodes.append(same)
        kind = half.get(node.output[0])
        if kind is None:
            continue
        name = node.output[0]
        same.output[0] = f"{name}/unrounded"
        for attribute in same.attribute:
            if node.op_type == "Cast" and attribute.name == "to":
                attribute.i = TensorProto.FLOAT
        nodes.append(helper.make_node("Cast", [same.output[0]], [f"{name}/rounded"], to=kind))
        nodes.append(helper.make_node("Cast", [f"{name}/rounded"], [name], to=TensorProto.FLOAT))
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    return copy

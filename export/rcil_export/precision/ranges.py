"""How large the values of a graph get on images, measured by the graph itself: one pass, one number a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rcil_export.graph.nodes import with_declared_constants, without_constants
from rcil_export.precision.feeds import Feed
from rcil_export.runtime.sessions import open_session

SUMS = ("Conv", "GlobalAveragePool", "AveragePool")


@dataclass(frozen=True)
class Ranges:
    """What was measured."""

    values: dict[str, float]
    """Largest magnitude over all images, by the value's name; every float value of the graph."""
    accumulated: dict[str, float]
    """By node: the largest sum of magnitudes that a conv or an average adds up, a bound of every partial sum."""


def float_values(document: onnx.ModelProto) -> dict[str, int]:
    """Element type of every floating-point value that a node writes, in the order of execution."""
    kinds = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    graph = onnx.shape_inference.infer_shapes(with_declared_constants(document), strict_mode=True, data_prop=True).graph
    typed = {value.name: value.type.tensor_type.elem_type for value in [*graph.value_info, *graph.output]}
    written = (name for node in document.graph.node for name in node.output)
    return {name: typed[name] for name in written if typed.get(name) in kinds}


def measure_ranges(document: onnx.ModelProto, feeds: Iterable[Feed]) -> Ranges:
    """Run an fp32 graph on all feeds and note how large every value and every sum gets.

    Args:
        document: In fp32.
        feeds: Iterated once.
    """
    names = list(float_values(document))
    sums = [node.name for node in document.graph.node if node.op_type in SUMS]
    session = open_session(_with_tops(document, names), constants=document.graph.initializer, early=True)
    largest = np.zeros(len(names) + len(sums))
    for feed in feeds:
        largest = np.maximum(largest, [float(value) for value in session.run(None, feed)])
    values, accumulated = largest[: len(names)].tolist(), largest[len(names) :].tolist()
    return Ranges(dict(zip(names, values, strict=True)), dict(zip(sums, accumulated, strict=True)))


def _with_tops(document: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """The graph with the largest magnitude of each of these values as its outputs, then that of each sum.

    It lacks the constants of `document`.
    """
    probe = without_constants(document)
    del probe.graph.output[:]
    for name in names:
        _add_top(probe.graph, f"{name}/size", name, magnitude=True)
    for node in document.graph.node:
        if node.op_type in SUMS:
            _add_sum(probe.graph, node)
    return probe


def _add_top(graph: onnx.GraphProto, name: str, source: str, *, magnitude: bool) -> None:
    """One more output: the largest number, or magnitude, of a value."""
    if magnitude:
        graph.node.append(helper.make_node("Abs", [source], [name], name=name))
        source = name
    top = f"{name}/top"
    graph.node.append(helper.make_node("ReduceMax", [source], [top], name=top, keepdims=0))
    graph.output.append(helper.make_tensor_value_info(top, TensorProto.FLOAT, []))


def _add_sum(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    """One more output: the largest sum of magnitudes of a node, for a conv that of |x| with |w| plus |b|."""
    x, total = f"{node.name}/x", f"{node.name}/sum"
    graph.node.append(helper.make_node("Abs", [node.input[0]], [x], name=x))
    if node.op_type == "GlobalAveragePool":
        axes = f"{node.name}/axes"
        graph.initializer.append(numpy_helper.from_array(np.array([2, 3], np.int64), axes))
        graph.node.append(helper.make_node("ReduceSum", [x, axes], [total], name=total))
    else:
        same = onnx.NodeProto.FromString(node.SerializeToString())
        same.name, same.output[0], same.input[0] = total, total, x
        for at, name in enumerate(node.input[1:], 1):
            same.input[at] = f"{node.name}/{name}/magnitude"
            graph.node.append(helper.make_node("Abs", [name], [same.input[at]], name=same.input[at]))
        graph.node.append(same)
    if node.op_type == "AveragePool":
        kernel = next(a.ints for a in node.attribute if a.name == "kernel_shape")
        cells, mean = f"{node.name}/cells", f"{node.name}/mean"
        graph.node[-1].output[0] = mean
        graph.initializer.append(numpy_helper.from_array(np.array(np.prod(kernel), np.float32), cells))
        graph.node.append(helper.make_node("Mul", [mean, cells], [total], name=f"{total}s"))
    _add_top(graph, total, total, magnitude=False)

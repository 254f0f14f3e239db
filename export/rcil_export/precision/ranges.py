"""How large the values of a graph get on images, measured by the graph itself: one number per value and pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from rcil_export.graph.nodes import NodeList, set_inputs, with_declared_constants, without_constants
from rcil_export.precision.feeds import Feed
from rcil_export.runtime.sessions import open_session

SUMS = ("Conv", "GlobalAveragePool", "AveragePool")


@dataclass(frozen=True)
class Ranges:
    """The largest numbers that a graph was seen to compute."""

    values: dict[str, float]
    """Largest magnitude over all images, by the value's name; every float value of the graph."""
    accumulated: dict[str, float]
    """By node: the largest sum of magnitudes in a conv or an average, which bounds every partial sum."""


def float_values(document: onnx.ModelProto) -> dict[str, int]:
    """Element type of every floating-point value that a node writes, in the order of execution."""
    kinds = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    graph = onnx.shape_inference.infer_shapes(with_declared_constants(document), strict_mode=True, data_prop=True).graph
    typed = {value.name: value.type.tensor_type.elem_type for value in [*graph.value_info, *graph.output]}
    written = (name for node in document.graph.node for name in node.output)
    return {name: typed[name] for name in written if typed.get(name) in kinds}


def measure_ranges(document: onnx.ModelProto, feeds: Iterable[Feed]) -> Ranges:
    """Run an fp32 graph on all feeds and record how large every value and every sum gets.

    Args:
        document: In fp32.
        feeds: Iterated once.
    """
    names = list(float_values(document))
    sums = [node.name for node in document.graph.node if node.op_type in SUMS]
    session = open_session(_with_maxima(document, names), constants=document.graph.initializer, early=True)
    largest = np.zeros(len(names) + len(sums))
    for feed in feeds:
        largest = np.maximum(largest, [float(value) for value in session.run(None, feed)])
    values, accumulated = largest[: len(names)].tolist(), largest[len(names) :].tolist()
    return Ranges(dict(zip(names, values, strict=True)), dict(zip(sums, accumulated, strict=True)))


def _with_maxima(document: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """The graph without its constants; its outputs are the largest magnitude of each value, then of each sum."""
    added = NodeList()
    maxima = [_add_maximum(added, added.add("Abs", [name], f"{name}/size")) for name in names]
    maxima += [_add_maximum(added, _add_sum(added, node)) for node in document.graph.node if node.op_type in SUMS]
    probe = without_constants(document)
    probe.graph.node.extend(added.nodes)
    probe.graph.initializer.extend(added.constants.values())
    del probe.graph.output[:]
    probe.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in maxima)
    return probe


def _add_maximum(added: NodeList, source: str) -> str:
    """A value with the largest number of the value `source`."""
    return added.add("ReduceMax", [source], f"{source}/top", keepdims=0)


def _add_sum(added: NodeList, node: onnx.NodeProto) -> str:
    """A value with the sums of magnitudes of a node, for a conv those of |x| with |w| plus |b|."""
    x, total = added.add("Abs", [node.input[0]], f"{node.name}/x"), f"{node.name}/sum"
    if node.op_type == "GlobalAveragePool":
        axes = added.constant(f"{node.name}/axes", np.array([2, 3], np.int64))
        return added.add("ReduceSum", [x, axes], total)
    same = onnx.NodeProto.FromString(node.SerializeToString())
    others = [added.add("Abs", [name], f"{node.name}/{name}/magnitude") for name in node.input[1:]]
    set_inputs(same, [x, *others])
    added.nodes.append(same)
    if node.op_type == "Conv":
        same.name = same.output[0] = total
        return total
    same.name = same.output[0] = f"{node.name}/mean"
    kernel = next(attribute.ints for attribute in node.attribute if attribute.name == "kernel_shape")
    cells = added.constant(f"{node.name}/cells", np.array(np.prod(kernel), np.float32))
    return added.add("Mul", [same.name, cells], total)

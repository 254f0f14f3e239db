"""How large the values of a graph get on images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rcil_export.precision.feeds import Feed
from rcil_export.precision.graph import constants_of
from rcil_export.sessions import open_session

CHUNK = 8
"""Values that are fetched in one pass over the images; all at once would not fit into memory."""
PERCENTILE = 99.99


@dataclass(frozen=True)
class ValueRange:
    """Magnitudes of one value over all images."""

    largest: float
    percentile: float
    """The largest over images of each image's percentile `PERCENTILE`."""


@dataclass(frozen=True)
class Ranges:
    """What was measured."""

    values: dict[str, ValueRange]
    """By the value's name; every float value of the graph."""
    accumulated: dict[str, float]
    """By node: the largest sum of magnitudes that a Conv or an average adds up, a bound of every partial sum."""


def float_values(document: onnx.ModelProto) -> dict[str, int]:
    """Element type of every floating-point value that a node writes, in the order of execution."""
    kinds = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    graph = onnx.shape_inference.infer_shapes(document, strict_mode=True, data_prop=True).graph
    typed = {value.name: value.type.tensor_type.elem_type for value in [*graph.value_info, *graph.output]}
    written = (name for node in document.graph.node for name in node.output)
    return {name: typed[name] for name in written if typed.get(name) in kinds}


def measure_ranges(
    document: onnx.ModelProto,
    feeds: Iterable[Feed],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Ranges:
    """Run an fp32 graph on all feeds and note how large every value and every sum gets.

    Args:
        document: In fp32.
        feeds: Must give the same when iterated again, which happens once per `CHUNK` values.
        progress: Told how many of how many passes over the images are done.
    """
    names = list(float_values(document))
    chunks = [names[start : start + CHUNK] for start in range(0, len(names), CHUNK)]
    values: dict[str, ValueRange] = {}
    for done, chunk in enumerate(chunks, 1):
        values |= _measure_values(document, chunk, feeds)
        progress(done, len(chunks) + 1)
    accumulated = _measure_sums(document, feeds)
    progress(len(chunks) + 1, len(chunks) + 1)
    return Ranges(values, accumulated)


def _measure_values(document: onnx.ModelProto, names: Sequence[str], feeds: Iterable[Feed]) -> dict[str, ValueRange]:
    session = open_session(_with_outputs(document, names))
    largest = dict.fromkeys(names, 0.0)
    percentile = dict.fromkeys(names, 0.0)
    for feed in feeds:
        for name, value in zip(names, session.run(list(names), feed), strict=True):
            magnitude = np.abs(value).ravel()
            at = min(magnitude.size - 1, int(magnitude.size * PERCENTILE / 100))
            magnitude.partition(at)
            largest[name] = max(largest[name], float(magnitude[at:].max()))
            percentile[name] = max(percentile[name], float(magnitude[at]))
    return {name: ValueRange(largest[name], percentile[name]) for name in names}


def _measure_sums(document: onnx.ModelProto, feeds: Iterable[Feed]) -> dict[str, float]:
    """Largest sum of magnitudes per node, computed by the graph itself: a conv of |x| with |w| plus |b|."""
    probe, outputs = _with_sums(document)
    if not outputs:
        return {}
    session = open_session(probe)
    largest = dict.fromkeys(outputs, 0.0)
    for feed in feeds:
        for name, value in zip(outputs, session.run(list(outputs.values()), feed), strict=True):
            largest[name] = max(largest[name], float(value))
    return largest


def _with_outputs(document: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """The graph with these values as its only outputs; ONNX Runtime leaves out what does not lead to them."""
    probe = onnx.ModelProto.FromString(document.SerializeToString())
    del probe.graph.output[:]
    probe.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    return probe


def _with_sums(document: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, str]]:
    """The graph with one number per summing node as its outputs, and their names by node."""
    probe = _with_outputs(document, [])
    graph, constants = probe.graph, constants_of(document)
    outputs: dict[str, str] = {}
    for node in document.graph.node:
        if node.op_type not in ("Conv", "GlobalAveragePool", "AveragePool"):
            continue
        x, total, top = (f"{node.name}/{part}" for part in ("x", "sum", "top"))
        graph.node.append(helper.make_node("Abs", [node.input[0]], [x], name=x))
        if node.op_type == "GlobalAveragePool":
            axes = f"{node.name}/axes"
            graph.initializer.append(numpy_helper.from_array(np.array([2, 3], np.int64), axes))
            graph.node.append(helper.make_node("ReduceSum", [x, axes], [total], name=total))
        else:
            same = onnx.NodeProto.FromString(node.SerializeToString())
            same.name, same.output[0], same.input[0] = total, total, x
            for at, name in enumerate(node.input[1:], 1):
                same.input[at] = f"{name}/magnitude"
                magnitude = np.abs(numpy_helper.to_array(constants[name]))
                graph.initializer.append(numpy_helper.from_array(magnitude, same.input[at]))
            graph.node.append(same)
        if node.op_type == "AveragePool":
            kernel = next(a.ints for a in node.attribute if a.name == "kernel_shape")
            cells, factor = f"{node.name}/cells", f"{node.name}/mean"
            graph.node[-1].output[0] = factor
            graph.initializer.append(numpy_helper.from_array(np.array(np.prod(kernel), np.float32), cells))
            graph.node.append(helper.make_node("Mul", [factor, cells], [total], name=f"{total}s"))
        graph.node.append(helper.make_node("ReduceMax", [total], [top], name=top, keepdims=0))
        graph.output.append(helper.make_tensor_value_info(top, TensorProto.FLOAT, []))
        outputs[node.name] = top
    return probe, outputs

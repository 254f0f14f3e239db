"""Time variants of the last nodes of a graph, from low-resolution logits to a mask, on ONNX Runtime's CPU kernels.

Planes are correct on every execution provider, channels-last only on CPUs; the others were tried as exact replacements
of the first that are as fast as the second. A line has the milliseconds with their quartiles, the number of pixels
whose class differs from that with planes, and the share of logits that are not bit-identical.

Examples:
    python tools/bench/upsampling.py
    python tools/bench/upsampling.py --classes 151 --clock wall
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import onnx
from onnx import TensorProto, helper
from ratios import paired, record

from rcil_export.graph.nodes import NodeList
from rcil_export.runtime.sessions import open_session
from rcil_export.timing.interleaved import CLOCKS, Clock, interleaved

LOW, HIGH = 32, 512
NHWC = [0, 2, 3, 1]


@dataclass(frozen=True)
class End:
    """A graph from `x` [1, classes, 32, 32] to `mask` [1, 512, 512]."""

    document: onnx.ModelProto
    axis: int
    """Axis of the classes in the value `full`, the logits at full size."""


def resize(nodes: NodeList, x: str, name: str, sizes: Sequence[int]) -> str:
    constant = nodes.constant(f"{name}_sizes", np.array(sizes, np.int64))
    settings = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    return nodes.add("Resize", [x, "", "", constant], name, **settings)


def reshape(nodes: NodeList, x: str, name: str, sizes: Sequence[int]) -> str:
    return nodes.add("Reshape", [x, nodes.constant(f"{name}_sizes", np.array(sizes, np.int64))], name)


def interpolation() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Weights of linear interpolation as a matrix [512, 32]."""
    rows = np.zeros((HIGH, LOW), np.float32)
    for row in range(HIGH):
        position = (row + 0.5) * LOW / HIGH - 0.5
        below = int(np.floor(position))
        rows[row, max(below, 0)] += 1 - (position - below)
        rows[row, min(below + 1, LOW - 1)] += position - below
    return rows


def planes(nodes: NodeList, classes: int) -> int:
    resize(nodes, "x", "full", [1, classes, HIGH, HIGH])
    return 1


def channels_last(nodes: NodeList, classes: int) -> int:
    resize(nodes, nodes.add("Transpose", ["x"], "last", perm=NHWC), "full", [1, HIGH, HIGH, classes])
    return 3


def transposed_planes(nodes: NodeList, classes: int) -> int:
    """One Resize on planes, then a transpose that makes the logits of a pixel contiguous for the ArgMax."""
    nodes.add("Transpose", [resize(nodes, "x", "wide", [1, classes, HIGH, HIGH])], "full", perm=NHWC)
    return 3


def rows_then_columns(nodes: NodeList, classes: int) -> int:
    resize(nodes, resize(nodes, "x", "rows", [1, classes, LOW, HIGH]), "full", [1, classes, HIGH, HIGH])
    return 1


def two_resizes(nodes: NodeList, classes: int) -> int:
    """Resize heights, then widths, each as the second-to-last axis; the last axis holds the classes."""
    columns = nodes.add("Transpose", ["x"], "columns", perm=[0, 3, 2, 1])
    tall = resize(nodes, columns, "tall", [1, LOW, HIGH, classes])
    resize(nodes, nodes.add("Transpose", [tall], "lines", perm=[0, 2, 1, 3]), "full", [1, HIGH, HIGH, classes])
    return 3


def two_products(nodes: NodeList, classes: int) -> int:
    """Interpolate by two products with constant matrices, with the classes last."""
    matrix = nodes.constant("matrix", interpolation())
    flat = reshape(nodes, nodes.add("Transpose", ["x"], "last", perm=NHWC), "flat", [1, LOW, LOW * classes])
    tall = reshape(nodes, nodes.add("MatMul", [matrix, flat], "tall"), "lines", [1, HIGH, LOW, classes])
    nodes.add("MatMul", [matrix, tall], "full")
    return 3


WAYS = {
    "planes (`--for any`)": planes,
    "channels-last (`--for cpu`)": channels_last,
    "planes, Transpose, ArgMax": transposed_planes,
    "rows, then columns, in planes": rows_then_columns,
    "two Resizes beside the classes": two_resizes,
    "two MatMuls": two_products,
}


def graph(way: str, classes: int) -> End:
    nodes = NodeList()
    axis = WAYS[way](nodes, classes)
    nodes.add("ArgMax", ["full"], "mask", axis=axis, keepdims=0)
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, classes, LOW, LOW])
    mask = helper.make_tensor_value_info("mask", TensorProto.INT64, [1, HIGH, HIGH])
    body = helper.make_graph(nodes.nodes, "end", [image], [mask], list(nodes.constants.values()))
    return End(helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), axis)


def logits_of(end: End, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Full-size logits [1, classes, H, W], node by node as written."""
    probe = onnx.ModelProto.FromString(end.document.SerializeToString())
    probe.graph.output.append(helper.make_tensor_value_info("full", TensorProto.FLOAT, None))
    full = open_session(probe, 1).run(["full"], {"x": x})[0]
    return np.moveaxis(full, end.axis, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=21)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--clock", choices=get_args(Clock), default="processor")
    arguments = parser.parse_args()
    x = np.random.default_rng(0).standard_normal((1, arguments.classes, LOW, LOW), np.float32)
    ends = {way: graph(way, arguments.classes) for way in WAYS}
    sessions = {way: open_session(end.document, arguments.threads) for way, end in ends.items()}
    runs = {way: (lambda session=session: session.run(None, {"x": x})) for way, session in sessions.items()}
    times = interleaved(runs, arguments.rounds, 2, 0, CLOCKS[arguments.clock])
    first = next(iter(WAYS))
    mask, logits = sessions[first].run(None, {"x": x})[0], logits_of(ends[first], x)
    print(f"{arguments.classes} classes, {arguments.threads} threads, {arguments.clock} clock")
    for way, values in times.items():
        low, middle, high = 1000 * np.percentile(values, [25, 50, 75])
        masks = (sessions[way].run(None, {"x": x})[0] != mask).sum()
        changed = (logits_of(ends[way], x) != logits).mean()
        print(f"| {way} | {middle:.1f} ({low:.1f} to {high:.1f}) | {masks} | {changed:.0%} |")
    record(
        f"upsampling, {arguments.classes} classes",
        {f"{first} / {way}": paired(times[first], values) for way, values in times.items() if way != first},
    )


if __name__ == "__main__":
    main()

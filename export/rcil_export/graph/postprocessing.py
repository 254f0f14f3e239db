"""The last nodes of a graph: from low-resolution logits to a mask, from the scores of a classifier to a label.

On a CPU upsampling and argmax are several times faster when a pixel's logits are adjacent in memory. Only ONNX
Runtime's CPU kernel supports such a channels-last Resize; its CUDA kernel accepts the same node and gives garbage. So
planes [N, classes, H, W] are the default, and `--for cpu` asks for the other form. `docs/speed.md` has the figures.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from rcil_export.graph.interface import INPUT_NAME, GraphInterface
from rcil_export.graph.nodes import NodeList
from rcil_export.graph.preprocessing import declared_sides
from rcil_export.graph.shapes import InputShape

BY_PIXEL = "logits_full"
"""The full-size logits [N, H, W, classes] of a graph for CPUs; in other graphs they are `logits`, in planes."""


def write_outputs(nodes: NodeList, logits: str, classes: int, interface: GraphInterface) -> None:
    """Write the nodes after the network, from its logits [N, classes, h, w] or its scores [N, classes, ...]."""
    if "label" in interface.outputs:
        _write_labels(nodes, logits, classes)
        return
    by_pixel = interface.for_cpu
    axis = 3 if by_pixel else 1
    small = nodes.add("Transpose", [logits], "logits_nhwc", perm=[0, 2, 3, 1]) if by_pixel else logits
    full = nodes.add(
        "Resize",
        [small, "", "", _full_size(nodes, classes, interface)],
        BY_PIXEL if by_pixel else "logits",
        mode="linear",
        coordinate_transformation_mode="half_pixel",
    )
    write_rows(nodes, full, axis, classes, interface)
    if "logits" in interface.outputs and by_pixel:
        nodes.add("Transpose", [full], "logits", perm=[0, 3, 1, 2])


def write_rows(nodes: NodeList, full: str, axis: int, classes: int, interface: GraphInterface) -> None:
    """Write mask and confidence from full-size logits with their classes along `axis`."""
    if "mask" in interface.outputs:
        rows = nodes.add("ArgMax", [full], "rows", axis=axis, keepdims=0)
        nodes.add("Cast", [rows], "mask", to=output_type("mask", classes))
    if "confidence" in interface.outputs:
        chances = nodes.add("Softmax", [full], "chances", axis=axis)
        class_axis = nodes.constant("class_axis", np.array([axis], np.int64))
        nodes.add("ReduceMax", [chances, class_axis], "confidence", keepdims=0)


def _write_labels(nodes: NodeList, scores: str, classes: int) -> None:
    """Write the nodes after a classifier's head [N, classes, ...]: the scores as a list, and the row of the largest."""
    flat = nodes.add("Flatten", [scores], "scores", axis=1)
    rows = nodes.add("ArgMax", [flat], "rows", axis=1, keepdims=0)
    nodes.add("Cast", [rows], "label", to=output_type("label", classes))


def full_logits(document: onnx.ModelProto) -> tuple[str, int]:
    """The name of the value with the full-size logits, and the axis of its classes."""
    made = {name for node in document.graph.node for name in node.output}
    return (BY_PIXEL, 3) if BY_PIXEL in made else ("logits", 1)


def _full_size(nodes: NodeList, classes: int, interface: GraphInterface) -> str:
    """[N, H, W, classes] or [N, classes, H, W]: a constant, or computed from the image if sizes vary."""
    batch, height, width = interface.shape.usual
    by_pixel = interface.for_cpu
    if interface.shape.static:
        sides = [batch, height, width, classes] if by_pixel else [batch, classes, height, width]
        return nodes.constant("full_size", np.array(sides, np.int64))
    shape = nodes.add("Shape", [INPUT_NAME], "image_shape")
    first = 1 if interface.input == "uint8" else 2
    count = nodes.constant("class_count", np.array([classes], np.int64))

    def picked(name: str, *axes: int) -> str:
        return nodes.add("Gather", [shape, nodes.constant(f"{name}_at", np.array(axes, np.int64))], name)

    if by_pixel:
        return nodes.add("Concat", [picked("sides", 0, first, first + 1), count], "full_size", axis=0)
    parts = [picked("images", 0), count, picked("sides", first, first + 1)]
    return nodes.add("Concat", parts, "full_size", axis=0)


def output_dims(name: str, classes: int, shape: InputShape) -> list[int | str]:
    """Axes of an output of a segmenter or a classifier as ONNX declares them."""
    batch, height, width = declared_sides(shape)
    axes = {"logits": [batch, classes, height, width], "scores": [batch, classes], "label": [batch]}
    return axes.get(name, [batch, height, width])


def output_type(name: str, classes: int) -> int:
    """ONNX's element type of an output: integers for class rows, otherwise floats."""
    if name not in ("mask", "label"):
        return TensorProto.FLOAT
    return TensorProto.UINT8 if classes <= 256 else TensorProto.INT32

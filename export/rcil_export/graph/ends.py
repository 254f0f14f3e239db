"""The two ends of the graph: from camera pixels to the network's input, from low-resolution logits to a mask.

On a CPU upsampling and argmax are several times faster when a pixel's logits lie side by side: the largest is found
without striding through memory. Only ONNX Runtime's CPU kernel supports such a channels-last Resize; its CUDA kernel
takes the same node and gives garbage. So planes are the rule, and `--for cpu` asks for the other form. `docs/speed.md`
has the figures.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from rcil.model.metadata import Metadata
from rcil_export.graph.interface import INPUT_NAME, GraphInterface
from rcil_export.graph.nodes import NodeList
from rcil_export.graph.shapes import InputShape

NHWC_TO_NCHW, NCHW_TO_NHWC = [0, 3, 1, 2], [0, 2, 3, 1]
BY_PIXEL = "logits_full"
"""The full-size logits [N, H, W, classes] where a pixel's lie side by side; otherwise they are `logits`, in planes."""


def write_input(
    nodes: NodeList, metadata: Metadata, interface: GraphInterface
) -> tuple[str, NDArray[np.float64] | None]:
    """Nodes before the stem; returns the value that the stem reads, and the scale that its kernel must take over.

    (x / 255 - mean) / std = (x - 255 mean) / (255 std): the subtraction stays in the graph, so that the zeros around
    the image still mean the average colour; the division goes into the stem.
    """
    if interface.input == "float":
        return INPUT_NAME, None
    pixels = nodes.add("Cast", [INPUT_NAME], "pixels", to=TensorProto.FLOAT)
    planes = nodes.add("Transpose", [pixels], "planes", perm=NHWC_TO_NCHW)
    mean = 255 * np.array(metadata.mean).reshape(1, 3, 1, 1)
    centred = nodes.add("Sub", [planes, nodes.constant("mean", mean.astype(np.float32))], "centred")
    return centred, 1 / (255 * np.array(metadata.std))


def write_outputs(nodes: NodeList, logits: str, classes: int, interface: GraphInterface) -> None:
    """Nodes after the classifier, from its logits [N, classes, h, w], or from a list of scores [N, classes, ...]."""
    if "label" in interface.outputs:
        _write_labels(nodes, logits, classes)
        return
    by_pixel = interface.for_cpu
    axis = 3 if by_pixel else 1
    small = nodes.add("Transpose", [logits], "logits_nhwc", perm=NCHW_TO_NHWC) if by_pixel else logits
    full = nodes.add(
        "Resize",
        [small, "", "", _full_size(nodes, classes, interface)],
        BY_PIXEL if by_pixel else "logits",
        mode="linear",
        coordinate_transformation_mode="half_pixel",
    )
    if "mask" in interface.outputs:
        rows = nodes.add("ArgMax", [full], "rows", axis=axis, keepdims=0)
        nodes.add("Cast", [rows], "mask", to=output_type("mask", classes))
    if "confidence" in interface.outputs:
        chances = nodes.add("Softmax", [full], "chances", axis=axis)
        nodes.add(
            "ReduceMax", [chances, nodes.constant("class_axis", np.array([axis], np.int64))], "confidence", keepdims=0
        )
    if "logits" in interface.outputs and by_pixel:
        nodes.add("Transpose", [full], "logits", perm=NHWC_TO_NCHW)


def _write_labels(nodes: NodeList, scores: str, classes: int) -> None:
    """Nodes after a classifier's head, which gives [N, classes, ...]: the scores as a list, the row of the largest."""
    flat = nodes.add("Flatten", [scores], "scores", axis=1)
    rows = nodes.add("ArgMax", [flat], "rows", axis=1, keepdims=0)
    nodes.add("Cast", [rows], "label", to=output_type("label", classes))


def full_logits(document: onnx.ModelProto) -> tuple[str, int]:
    """The value with the logits at the size of the image, and the axis of its classes."""
    made = {name for node in document.graph.node for name in node.output}
    return (BY_PIXEL, 3) if BY_PIXEL in made else ("logits", 1)


def _full_size(nodes: NodeList, classes: int, interface: GraphInterface) -> str:
    """[N, H, W, classes] or [N, classes, H, W]: a constant, or read off the image where sizes vary."""
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


def input_dims(shape: InputShape, interface: GraphInterface) -> list[int | str]:
    """Axes of the input as ONNX declares them; what varies has a name."""
    batch, height, width = _sides(shape)
    return [batch, height, width, 3] if interface.input == "uint8" else [batch, 3, height, width]


def output_dims(name: str, classes: int, shape: InputShape) -> list[int | str]:
    """Axes of an output as ONNX declares them."""
    batch, height, width = _sides(shape)
    by_class = {"logits": [batch, classes, height, width], "scores": [batch, classes], "label": [batch]}
    return by_class.get(name, [batch, height, width])


def output_type(name: str, classes: int) -> int:
    """Element type of an output: integers for class rows, else floats."""
    if name not in ("mask", "label"):
        return TensorProto.FLOAT
    return TensorProto.UINT8 if classes <= 256 else TensorProto.INT32


def _sides(shape: InputShape) -> list[int | str]:
    axes = (("batch", shape.batch), ("height", shape.height), ("width", shape.width))
    return [extent.low if extent.fixed else name for name, extent in axes]

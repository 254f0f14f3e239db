"""The two ends of the graph: from camera pixels to the network's input, from low-resolution logits to a mask.

Upsampling and argmax work on channels-last maps: a pixel's logits lie side by side, so that the largest is found
without striding through memory; `docs/speed.md` has the figures.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from rcil.checkpoint.metadata import Metadata
from rcil_export.interface import INPUT_NAME, Interface
from rcil_export.onnx_graph.nodes import NodeList
from rcil_export.shapes import InputShape

NHWC_TO_NCHW, NCHW_TO_NHWC = [0, 3, 1, 2], [0, 2, 3, 1]


def write_input(nodes: NodeList, metadata: Metadata, interface: Interface) -> tuple[str, NDArray[np.float64] | None]:
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


def write_outputs(nodes: NodeList, logits: str, classes: int, interface: Interface) -> None:
    """Nodes after the classifier, from its logits [N, classes, h, w]."""
    small = nodes.add("Transpose", [logits], "logits_nhwc", perm=NCHW_TO_NHWC)
    full = nodes.add(
        "Resize",
        [small, "", "", _full_size(nodes, classes, interface)],
        "logits_full",
        mode="linear",
        coordinate_transformation_mode="half_pixel",
    )
    if "mask" in interface.outputs:
        rows = nodes.add("ArgMax", [full], "rows", axis=3, keepdims=0)
        nodes.add("Cast", [rows], "mask", to=TensorProto.UINT8 if classes <= 256 else TensorProto.INT32)
    if "confidence" in interface.outputs:
        chances = nodes.add("Softmax", [full], "chances", axis=3)
        axis = nodes.constant("class_axis", np.array([3], np.int64))
        nodes.add("ReduceMax", [chances, axis], "confidence", keepdims=0)
    if "logits" in interface.outputs:
        nodes.add("Transpose", [full], "logits", perm=NHWC_TO_NCHW)


def _full_size(nodes: NodeList, classes: int, interface: Interface) -> str:
    """[N, H, W, classes]: a constant, or read off the image where sizes vary."""
    batch, height, width = interface.shape.usual
    if interface.shape.static:
        return nodes.constant("full_size", np.array([batch, height, width, classes], np.int64))
    shape = nodes.add("Shape", [INPUT_NAME], "image_shape")
    picked = [0, 1, 2] if interface.input == "uint8" else [0, 2, 3]
    sides = nodes.add("Gather", [shape, nodes.constant("sides_at", np.array(picked, np.int64))], "sides")
    count = nodes.constant("class_count", np.array([classes], np.int64))
    return nodes.add("Concat", [sides, count], "full_size", axis=0)


def input_dims(shape: InputShape, interface: Interface) -> list[int | str]:
    """Axes of the input as ONNX declares them; what varies has a name."""
    axes = (("batch", shape.batch), ("height", shape.height), ("width", shape.width))
    sides: list[int | str] = [name if not extent.fixed else extent.low for name, extent in axes]
    return [*sides, 3] if interface.input == "uint8" else [sides[0], 3, *sides[1:]]


def output_dims(name: str, classes: int, shape: InputShape, interface: Interface) -> list[int | str]:
    """Axes of an output as ONNX declares them."""
    batch, *sides = (side for side in input_dims(shape, interface) if side != 3 or not isinstance(side, int))
    return [batch, classes, *sides] if name == "logits" else [batch, *sides]

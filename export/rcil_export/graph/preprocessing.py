"""From camera pixels to the network's input: as arrays that a graph takes, and as the first nodes of a graph.

Neither torch nor the package onnx is imported here, because serving uses this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image
from rcil.model.metadata import Metadata
from rcil_export.graph.interface import INPUT_NAME, GraphInterface
from rcil_export.graph.shapes import InputShape

if TYPE_CHECKING:
    from rcil_export.graph.nodes import NodeList


def image_input(metadata: Metadata, interface: GraphInterface, image: Image) -> NDArray[Any]:
    """An RGB image [H, W, 3] as [H, W, 3] uint8 in the model's colour order, or as normalised float32 [3, H, W]."""
    ordered = image if metadata.colour_order == "RGB" else image[..., ::-1]
    if interface.input == "uint8":
        return np.ascontiguousarray(ordered)
    mean, std = np.array(metadata.mean, np.float32), np.array(metadata.std, np.float32)
    pixels = ordered.astype(np.float32) / np.float32(255)
    return np.ascontiguousarray(((pixels - mean) / std).transpose(2, 0, 1))


def write_input(
    nodes: NodeList, metadata: Metadata, interface: GraphInterface
) -> tuple[str, NDArray[np.float64] | None]:
    """Write the nodes before the stem; returns the value that the stem reads, and the scale [3] for the stem's kernel.

    (x / 255 - mean) / std = (x - 255 mean) / (255 std): the subtraction stays in the graph, so that the zeros around
    the image still mean the average colour; the division goes into the stem's kernel.
    """
    if interface.input == "float":
        return INPUT_NAME, None
    from onnx import TensorProto

    pixels = nodes.add("Cast", [INPUT_NAME], "pixels", to=TensorProto.FLOAT)
    planes = nodes.add("Transpose", [pixels], "planes", perm=[0, 3, 1, 2])
    mean = 255 * np.array(metadata.mean).reshape(1, 3, 1, 1)
    centred = nodes.add("Sub", [planes, nodes.constant("mean", mean.astype(np.float32))], "centred")
    return centred, 1 / (255 * np.array(metadata.std))


def input_dims(shape: InputShape, interface: GraphInterface) -> list[int | str]:
    """Axes of the input as ONNX declares them; an axis that varies has a name."""
    batch, height, width = declared_sides(shape)
    return [batch, height, width, 3] if interface.input == "uint8" else [batch, 3, height, width]


def usual_input_dims(interface: GraphInterface) -> tuple[int, ...]:
    """Axes of the input at the usual batch and size."""
    batch, height, width = interface.shape.usual
    return tuple(int(side) for side in input_dims(InputShape.of(height, width, batch), interface))


def declared_sides(shape: InputShape) -> list[int | str]:
    """Batch, height and width as ONNX declares them."""
    axes = (("batch", shape.batch), ("height", shape.height), ("width", shape.width))
    return [extent.low if extent.fixed else name for name, extent in axes]

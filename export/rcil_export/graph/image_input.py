"""Photographs as a graph takes them. No torch here: serving uses it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rcil.core.images import Image
from rcil.model.metadata import Metadata
from rcil_export.graph.interface import GraphInterface


def image_input(metadata: Metadata, interface: GraphInterface, image: Image) -> NDArray[Any]:
    """An RGB image [H, W, 3] as [H, W, 3] uint8 in the model's colour order, or as normalised float32 [3, H, W]."""
    ordered = image if metadata.colour_order == "RGB" else image[..., ::-1]
    if interface.input == "uint8":
        return np.ascontiguousarray(ordered)
    mean, std = np.array(metadata.mean, np.float32), np.array(metadata.std, np.float32)
    pixels = ordered.astype(np.float32) / np.float32(255)
    return np.ascontiguousarray(((pixels - mean) / std).transpose(2, 0, 1))

"""Types of the scene generator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Colour = tuple[float, float, float]
"""RGB, 0 to 255 each."""


@dataclass(frozen=True)
class Scene:
    """One image with its mask."""

    image: Bytes
    """[H, W, 3] RGB."""
    mask: Bytes
    """[H, W] class ids, the index into `CLASSES`."""
    domain: str

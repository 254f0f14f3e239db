"""Where a picture stands still."""

from __future__ import annotations

import cv2
import numpy as np

from rcil.core.images import Image

BLUR = 5
"""Side of the square over which grey values are averaged, so that the noise of a camera does not count as motion."""
REACH = 9
"""Side of the square around a moved pixel that counts as moved too: a model looks around a pixel to name it."""


class Stillness:
    """Compares pictures with the ones before them.

    Args:
        levels: Of 255 grey levels, by how many a pixel may change and still count as still.
    """

    def __init__(self, levels: float) -> None:
        self._levels = levels
        self._before: Image | None = None

    def since_last(self, pixels: Image) -> Image | None:
        """255 where the picture [H, W, 3] did not move since the last call, else 0, [H, W]; None for the first one."""
        grey = np.asarray(cv2.blur(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), (BLUR, BLUR)), np.uint8)
        before, self._before = self._before, grey
        if before is None or before.shape != grey.shape:
            return None
        moved = (cv2.absdiff(grey, before) > self._levels).astype(np.uint8)
        reached = cv2.dilate(moved, np.ones((REACH, REACH), np.uint8))
        return np.asarray(255 * (1 - reached), np.uint8)

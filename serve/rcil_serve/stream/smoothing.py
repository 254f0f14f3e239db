"""Masks that do not flicker."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import ConfigError
from rcil_serve.runtime.backends.protocol import Mask


class Smoother:
    """A pixel changes its class only after it was seen with one and the same new class in `frames` frames in a row.

    Args:
        frames: From 1, which changes nothing, to 255.
    """

    def __init__(self, frames: int) -> None:
        if not 1 <= frames <= 255:
            raise ConfigError(f"masks cannot be smoothed over {frames} frames", "Choose 1 to 255.")
        self._frames = frames
        self._shown: Mask | None = None
        self._candidate: Mask | None = None
        self._count: NDArray[np.uint8] | None = None

    def smooth(self, mask: Mask) -> Mask:
        """The next mask [H, W] of a video -> what to show. A mask of another size starts anew."""
        if self._frames <= 1:
            return mask
        if self._shown is None or self._shown.shape != mask.shape:
            self._shown, self._candidate = mask.copy(), mask.copy()
            self._count = np.zeros(mask.shape, np.uint8)
            return mask
        assert self._candidate is not None and self._count is not None
        same = mask == self._candidate
        self._count += 1
        self._count[~same] = 1
        self._count[mask == self._shown] = 0
        self._candidate = mask
        change = self._count >= self._frames
        self._shown = np.where(change, mask, self._shown)
        self._count[change] = 0
        return self._shown

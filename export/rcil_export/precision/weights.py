"""Rounding the weights of a conv to int8, once, from the folded fp32 weights. No torch here."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

WeightBits = Literal[7, 8]
MAX_STEPS: dict[WeightBits, int] = {7: 63, 8: 127}
"""Largest weight in steps. CPUs without dot-product instructions add pairs of products in 16 bits, which overflow with
all 8 bits; 7 bits cannot overflow."""


def weight_scales(weight: NDArray[np.float32], bits: WeightBits) -> NDArray[np.float32]:
    """The step of every output channel [O] of a kernel [O, I, H, W]: its largest magnitude is `MAX_STEPS` steps.

    A channel of zeros gets a step of 1, with which it stays zero.
    """
    largest = np.abs(weight.reshape(len(weight), -1).astype(np.float64)).max(axis=1)
    scales = (np.where(largest > 0, largest, MAX_STEPS[bits]) / MAX_STEPS[bits]).astype(np.float32)
    return np.asarray(np.where(scales > 0, scales, np.finfo(np.float32).tiny), np.float32)


def round_weights(weight: NDArray[np.float32], scales: NDArray[np.float32], bits: WeightBits) -> NDArray[np.int8]:
    """The nearest whole number of steps of every weight [O, I, H, W]."""
    steps = np.rint(weight.astype(np.float64) / scales.astype(np.float64).reshape(-1, 1, 1, 1))
    return np.asarray(steps.clip(-MAX_STEPS[bits], MAX_STEPS[bits]), np.int8)

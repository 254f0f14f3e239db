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
    """Every weight in steps [O, I, H, W], within one step, and the errors of a channel sum to half a step at most.

    Nearest steps leave a channel with a mean error, which shifts all of its output. So the weights that lie nearest to
    a border between two steps go to the other side of it, as many as the sum of the errors asks for (SQuant,
    https://arxiv.org/abs/2202.07471, over whole channels). It needs no images, so it can be repeated from the weights.
    """
    exact = weight.astype(np.float64).reshape(len(weight), -1) / scales.astype(np.float64)[:, None]
    steps = np.rint(exact).clip(-MAX_STEPS[bits], MAX_STEPS[bits])
    for row, errors in zip(steps, steps - exact, strict=True):
        total = float(errors.sum())
        sign = float(np.sign(total))
        row[_largest(sign * errors, round(abs(total)))] -= sign
    return np.asarray(steps.reshape(weight.shape), np.int8)


def _largest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Indices of the `count` largest values; of equal ones the first, so that every machine chooses the same."""
    if count == 0:
        return np.empty(0, np.int64)
    border = np.partition(values, len(values) - count)[len(values) - count]
    candidates = np.flatnonzero(values >= border)
    return candidates[np.argsort(-values[candidates], kind="stable")[:count]]

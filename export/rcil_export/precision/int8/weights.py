"""The int8 weights of convs: how they are rounded, and how many bits of them a CPU can use. No torch here."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from rcil_export.precision.record import WeightBits

CPU_INFO = Path("/proc/cpuinfo")
DOT_PRODUCTS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"})
"""Flags of x86 and features of ARM CPUs for int8 dot products with 32-bit sums."""
MAX_STEPS: dict[WeightBits, int] = {7: 63, 8: 127}
"""Largest weight in steps, by the number of bits. CPUs without dot-product instructions add pairs of products in 16
bits, which overflow with 8-bit weights and cannot overflow with 7-bit weights."""


def weight_scales(weight: NDArray[np.float32], bits: WeightBits) -> NDArray[np.float32]:
    """The step of every output channel [O] of a kernel [O, I, H, W]: its largest magnitude is `MAX_STEPS` steps.

    A channel of zeros gets a step of 1, with which it stays zero.
    """
    largest = np.abs(weight.reshape(len(weight), -1).astype(np.float64)).max(axis=1)
    scales = (np.where(largest > 0, largest, MAX_STEPS[bits]) / MAX_STEPS[bits]).astype(np.float32)
    return np.asarray(np.where(scales > 0, scales, np.finfo(np.float32).tiny), np.float32)


def round_weights(weight: NDArray[np.float32], scales: NDArray[np.float32], bits: WeightBits) -> NDArray[np.int8]:
    """Every weight in steps [O, I, H, W], within one step, and the errors of a channel sum to half a step at most.

    Rounding to the nearest step leaves a channel with a mean error, which shifts all of its output. So the weights
    nearest to a border between two steps are rounded to the other side, as many as the sum of the errors requires
    (SQuant, https://arxiv.org/abs/2202.07471, over whole channels). This needs no images, so it can be repeated from
    the weights.
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


def has_vnni(cpu_info: Path = CPU_INFO) -> bool:
    """Whether the CPU of this machine adds int8 products in 32 bits, so that weights can use all 8 bits.

    That is VNNI or AMX on x86 and the dot-product extension on ARM. Every Apple CPU of the M series has it. If
    nothing is known about the CPU, the answer is no, which is always safe.
    """
    if platform.system() == "Darwin":
        return platform.machine() == "arm64"
    try:
        text = cpu_info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    lines = (line.partition(":") for line in text.splitlines())
    flags = next((value.split() for key, _, value in lines if key.strip().lower() in ("flags", "features")), [])
    return not DOT_PRODUCTS.isdisjoint(flags)


def kernels_are_exact(document: onnx.ModelProto) -> bool:
    """Whether the int8 kernels of this CPU compute the weights of `document` without overflow."""
    if has_vnni():
        return True
    kernels = (t for t in document.graph.initializer if t.data_type == TensorProto.INT8 and len(t.dims) == 4)
    return all(int(np.abs(numpy_helper.to_array(t).astype(np.int16)).max(initial=0)) <= MAX_STEPS[7] for t in kernels)

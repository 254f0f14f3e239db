"""Which int8 instructions a CPU has. No torch here."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from rcil_export.precision.weights import MAX_STEPS

CPU_INFO = Path("/proc/cpuinfo")
DOT_PRODUCTS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"})
"""Flags of x86 and features of ARM that stand for int8 dot products with 32-bit sums."""


def has_vnni(cpu_info: Path = CPU_INFO) -> bool:
    """Whether the CPU of this machine adds int8 products in 32 bits, so that weights can use all 8 bits.

    That is VNNI or AMX on x86 and the dot-product extension on ARM. Every Apple CPU of the M series has it. Where
    nothing is known about the CPU the answer is no, which is always safe.
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
    """Whether the int8 kernels of this CPU cannot overflow on the weights of `document`."""
    if has_vnni():
        return True
    kernels = (t for t in document.graph.initializer if t.data_type == TensorProto.INT8 and len(t.dims) == 4)
    return all(int(np.abs(numpy_helper.to_array(t).astype(np.int16)).max(initial=0)) <= MAX_STEPS[7] for t in kernels)

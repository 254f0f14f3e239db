"""The NVIDIA GPUs of this machine, as the driver lists them: neither torch nor TensorRT is needed."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_DRIVER = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76
"""Numbers of the driver's attributes for the two parts of the compute capability."""
_NAME_BYTES = 128


@dataclass(frozen=True)
class Gpu:
    """One GPU, by its product name and its compute capability, for example `sm86`."""

    name: str
    capability: str


def find_gpus(driver: str = _DRIVER) -> tuple[Gpu, ...]:
    """The GPUs that CUDA programs see here, in CUDA's order; none without a driver."""
    try:
        cuda = ctypes.CDLL(driver)
    except OSError:
        return ()
    count = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    return tuple(_describe(cuda, number) for number in range(count.value))


def _describe(cuda: ctypes.CDLL, number: int) -> Gpu:
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    cuda.cuDeviceGet(ctypes.byref(device), number)
    cuda.cuDeviceGetName(name, _NAME_BYTES, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    return Gpu(name.value.decode(errors="replace"), f"sm{major.value}{minor.value}")

"""Which execution providers of ONNX Runtime start on this machine, and why others do not. No torch here.

ONNX Runtime lists the providers it was compiled with, even if their libraries, a driver or a GPU are missing, and a
session falls back to the CPU with no more than a line in its log. So each provider is tried once with a tiny graph.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import onnxruntime as ort

from rcil.core.errors import first_line
from rcil.core.log import log
from rcil_export.runtime.devices import PROVIDERS, check_device

CPU, CUDA, TENSORRT = PROVIDERS["cpu"], PROVIDERS["cuda"], PROVIDERS["tensorrt"]
INSTALL_GPU = "Install its libraries with: pip install 'rcil[gpu]'."
INSTALL_DRIVER = "Install the NVIDIA driver, on a machine with an NVIDIA GPU."
CUDNN = "libcudnn.so.9"
"""ONNX Runtime 1.22 and later load this library when they meet the first conv, not before."""
TINY_GRAPH = (
    b"\x08\x08:3\n\x0c\n\x01x\x12\x01y\x22\x04Relu\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01"
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x12"
)
"""An ONNX file with one Relu of opset 18, written out here because serving does not have the package onnx."""


class StartProblem(NamedTuple):
    """Why a provider does not start."""

    reason: str
    remedy: str


def is_listed(provider: str) -> bool:
    """Whether this ONNX Runtime was compiled with a provider; that says nothing about the machine."""
    return provider in ort.get_available_providers()


@functools.cache
def start_problem(provider: str) -> StartProblem | None:
    """Why a listed provider does not start here; None if it starts. Each provider is tried once per process."""
    if provider == CPU:
        return None
    if provider in (CUDA, TENSORRT):
        problem = _driver_problem() or _library_problem() or (_nvinfer_problem() if provider == TENSORRT else None)
        if problem is not None:
            return problem
    with _silent_log():
        try:
            used = ort.InferenceSession(TINY_GRAPH, providers=[provider, CPU], enable_fallback=0).get_providers()
        except Exception as error:  # its exceptions have no common root
            return StartProblem(first_line(error), INSTALL_GPU)
    return None if used[0] == provider else StartProblem(f"ONNX Runtime started {used[0]} instead", INSTALL_DRIVER)


def provider_of(device: str) -> str:
    """The execution provider of a device; `auto` is CUDA where its provider starts, and the CPU elsewhere.

    A CUDA provider that is installed but does not start causes a warning: users who installed it expect a GPU.
    """
    check_device(device)
    if device != "auto":
        return PROVIDERS[device.partition(":")[0]]
    if not is_listed(CUDA):
        return CPU
    problem = start_problem(CUDA)
    if problem is None:
        return CUDA
    log.warning(
        "ONNX Runtime's CUDA provider does not start, so the CPU is used: %s. %s `--device cpu` chooses the CPU "
        "without this warning.",
        problem.reason,
        problem.remedy,
    )
    return CPU


def _driver_problem() -> StartProblem | None:
    if _loads("libcuda.so.1"):
        return None
    return StartProblem("libcuda.so.1, the library of the NVIDIA driver, cannot be loaded", INSTALL_DRIVER)


def _library_problem() -> StartProblem | None:
    """Load the libraries of CUDA and cuDNN from NVIDIA's wheels, where the system's loader does not look."""
    if not hasattr(ort, "preload_dlls"):  # only in builds for GPUs
        return None
    said = io.StringIO()
    with contextlib.redirect_stdout(said):  # it prints what it did not find, which must not mix with results
        ort.preload_dlls()
    missing = re.search(r"Failed to load (?:\S*/)?(\S+): ", said.getvalue())
    name = missing[1] if missing else None if _loads(CUDNN) else CUDNN
    return None if name is None else StartProblem(f"the library {name} cannot be loaded", INSTALL_GPU)


def _nvinfer_problem() -> StartProblem | None:
    """The provider is linked to one major version of TensorRT; another one that is installed does not help it."""
    wanted = _linked_nvinfer(Path(ort.__file__).parent / "capi" / "libonnxruntime_providers_tensorrt.so")
    with contextlib.suppress(ImportError):
        importlib.import_module("tensorrt")  # loads the libraries of its wheel into this process
    if _loads(wanted):
        return None
    return StartProblem(
        f"it is linked to {wanted}, which cannot be loaded",
        f"Install it with: pip install 'tensorrt=={wanted.rpartition('.')[2]}.*', or use `--device cuda`.",
    )


def _loads(library: str) -> bool:
    """Whether the system's loader finds a library, or the process has it already."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _linked_nvinfer(library: Path) -> str:
    """Name of the TensorRT library that ONNX Runtime's provider is linked to, found in the file."""
    with contextlib.suppress(OSError):
        if found := re.search(rb"libnvinfer\.so\.\d+", library.read_bytes()):
            return found[0].decode()
    return "libnvinfer.so"


@contextlib.contextmanager
def _silent_log() -> Iterator[None]:
    """Silence ONNX Runtime, which logs a failed start over several lines; the caller reports the reason."""
    ort.set_default_logger_severity(4)
    try:
        yield
    finally:
        ort.set_default_logger_severity(2)

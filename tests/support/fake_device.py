"""A process in which torch believes that there is a GPU.

torch looks for a CUDA device once, when it is imported, and autograd starts its threads once, with the first backward
pass. So the fake device is loaded into a process of its own before torch is. This module must not import torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import multiprocessing
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("fake_device.cpp")
TIMEOUT = 600
"""Seconds; a run takes about ten on an idle machine."""


def torch_folder() -> Path:
    """Where torch is installed."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def compiled_device() -> Path:
    """The library with the fake device, built once for all processes and kept for the next run."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("the fake CUDA device needs a C++ compiler")
    key = hashlib.sha256(SOURCE.read_bytes() + importlib.metadata.version("torch").encode()).hexdigest()[:16]
    library = Path(tempfile.gettempdir()) / f"rcil-fake-cuda-{key}.so"
    with library.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            part = library.with_suffix(".part")
            command = [compiler, "-std=c++20", "-fPIC", "-shared", str(SOURCE), "-o", str(part)]
            built = subprocess.run(
                [*command, f"-I{torch_folder() / 'include'}"], capture_output=True, text=True, check=False
            )
            if built.returncode:
                pytest.fail(f"the fake CUDA device does not compile:\n{built.stderr}")
            part.rename(library)
    return library


def _load(library: Path) -> None:
    """Register the device with torch's C++ library, before its Python package looks for one."""
    ctypes.CDLL(str(torch_folder() / "lib" / "libtorch_cpu.so"), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(library))


@contextlib.contextmanager
def process_with_gpu() -> Iterator[Callable[..., Any]]:
    """Gives a function that calls another one, `call(function, *args)`, in a process with the fake GPU."""
    library = compiled_device()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=_load, initargs=(library,)) as pool:
        yield lambda function, *args: pool.submit(_call, function, *args).result(timeout=TIMEOUT)


def _call(function: Callable[..., Any], *args: Any) -> Any:
    """What the function returns; errors, which may hold what cannot leave the process, become their text."""
    try:
        return function(*args)
    except Exception:
        raise AssertionError(f"in the process with the fake GPU:\n{traceback.format_exc()}") from None

"""TensorRT's messages. The first logger of a process stays for good, so there is one; what listens to it changes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

_sink: list[str] = []


@functools.cache
def logger_of(trt: Any) -> Any:
    """The logger to hand to every object of this TensorRT module."""

    class ErrorLogger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR) and not is_echo(message):
                _sink.append(message)

    return ErrorLogger()


def is_echo(message: str) -> bool:
    """Whether TensorRT merely repeats that there is no CUDA driver: it does so after any error, whatever the cause."""
    return "catchCudaError" in message and "cudaError 35" in message


@contextlib.contextmanager
def collected_errors() -> Iterator[list[str]]:
    """The errors that are logged inside the block."""
    global _sink
    before, _sink = _sink, []
    try:
        yield _sink
    finally:
        _sink = before

"""TensorRT's messages. The first logger of a process stays for good, so there is one; who listens to it changes."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

_listeners: dict[int, list[list[str]]] = {}
"""By thread: the blocks of `collected_errors` that are open, the innermost last."""


@functools.cache
def logger_of(trt: Any) -> Any:
    """The logger to hand to every object of this TensorRT module."""

    class ErrorLogger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR) and not is_echo(message):
                _deliver(message)

    return ErrorLogger()


def is_echo(message: str) -> bool:
    """Whether TensorRT merely repeats that there is no CUDA driver: it does so after any error, whatever the cause."""
    return "catchCudaError" in message and "cudaError 35" in message


def _deliver(message: str) -> None:
    """To the block that is open in this thread; TensorRT's own threads have none, so theirs go to all blocks."""
    own = _listeners.get(threading.get_ident())
    for stack in [own] if own else list(_listeners.values()):
        stack[-1].append(message)


@contextlib.contextmanager
def collected_errors() -> Iterator[list[str]]:
    """The errors that are logged inside the block."""
    thread = threading.get_ident()
    errors: list[str] = []
    _listeners.setdefault(thread, []).append(errors)
    try:
        yield errors
    finally:
        stack = _listeners[thread]
        stack.pop()
        if not stack:
            del _listeners[thread]

"""What TensorRT calls while it works: the logger, and the monitor that reports and cancels a build."""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

Listener = Callable[[str, int, int], None]
"""Receives the name of a phase, the number of finished steps and the number of all steps."""
_collectors: dict[int, list[list[str]]] = {}
"""By thread: the open blocks of `collected_errors`, the innermost last."""


@functools.cache
def logger_of(trt: Any) -> Any:
    """The logger for every object of this TensorRT module; TensorRT keeps the first logger of a process for good."""

    class ErrorLogger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR) and not is_echo(message):
                _collect(message)

    return ErrorLogger()


def is_echo(message: str) -> bool:
    """Whether TensorRT merely repeats that there is no CUDA driver: it does so after any error, whatever the cause."""
    return "catchCudaError" in message and "cudaError 35" in message


def _collect(message: str) -> None:
    """Add to the innermost block of this thread; messages of TensorRT's own threads, which have none, go to all."""
    own = _collectors.get(threading.get_ident())
    for stack in [own] if own else list(_collectors.values()):
        stack[-1].append(message)


@contextlib.contextmanager
def collected_errors() -> Iterator[list[str]]:
    """The errors that TensorRT logs inside the block."""
    thread = threading.get_ident()
    errors: list[str] = []
    _collectors.setdefault(thread, []).append(errors)
    try:
        yield errors
    finally:
        stack = _collectors[thread]
        stack.pop()
        if not stack:
            del _collectors[thread]


class BuildWatch:
    """Passes the progress of a build on to a listener, and cancels the build on request.

    The first three methods are those of TensorRT's `IProgressMonitor`. TensorRT calls them from C++, where a Python
    exception would end the process. An error of the listener is therefore kept, the build is cancelled, and the caller
    raises the error when TensorRT has returned.
    """

    def __init__(self, listen: Listener | None) -> None:
        self._listen = listen
        self._steps: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self.stopped_by: BaseException | None = None

    def phase_start(self, phase: str, parent: str | None, steps: int) -> None:
        """A phase starts."""
        self._steps[phase] = steps
        self._report(phase, 0)

    def step_complete(self, phase: str, step: int) -> bool:
        """The step of this index is finished; returning False asks TensorRT to stop."""
        self._report(phase, step + 1)
        return self.stopped_by is None

    def phase_finish(self, phase: str) -> None:
        """A phase is over; TensorRT does not report the last step of every phase."""
        if self._done[phase] < self._steps[phase]:
            self._report(phase, self._steps[phase])

    def stop(self, reason: BaseException) -> None:
        """Cancel the build at its next step."""
        self.stopped_by = self.stopped_by or reason

    def _report(self, phase: str, done: int) -> None:
        self._done[phase] = done
        if self._listen is None or self.stopped_by is not None:
            return
        try:
            self._listen(phase, done, self._steps[phase])
        except BaseException as error:
            self.stop(error)


def monitor_of(trt: Any, watch: BuildWatch) -> Any:
    """The watch as an object that TensorRT accepts as its progress monitor."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        phase_start = watch.phase_start
        step_complete = watch.step_complete
        phase_finish = watch.phase_finish

    return Monitor()


@contextlib.contextmanager
def interrupt_stops(watch: BuildWatch) -> Iterator[None]:
    """Let Ctrl-C cancel the watched build instead of raising inside a callback."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: watch.stop(KeyboardInterrupt()))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

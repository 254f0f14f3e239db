"""Watching and cancelling a build."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

Listener = Callable[[str, int, int], None]
"""Gets the name of a phase, steps done and steps in all."""


class BuildWatch:
    """Passes progress on, and says whether to go on.

    TensorRT calls it from C++, where a Python exception would end the process; so an error of the listener is kept, the
    build is cancelled, and the error is raised when TensorRT has returned.
    """

    def __init__(self, listen: Listener | None) -> None:
        self._listen = listen
        self._steps: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self.stopped_by: BaseException | None = None

    def begin(self, phase: str, steps: int) -> None:
        """A phase starts."""
        self._steps[phase] = steps
        self._tell(phase, 0)

    def advance(self, phase: str, done: int) -> bool:
        """So many steps of a phase are done; False asks TensorRT to stop."""
        self._tell(phase, done)
        return self.stopped_by is None

    def finish(self, phase: str) -> None:
        """A phase is over; TensorRT does not count the last step of every phase."""
        if self._done[phase] < self._steps[phase]:
            self._tell(phase, self._steps[phase])

    def stop(self, reason: BaseException) -> None:
        """Cancel at the next step."""
        self.stopped_by = self.stopped_by or reason

    def _tell(self, phase: str, done: int) -> None:
        self._done[phase] = done
        if self._listen is None or self.stopped_by is not None:
            return
        try:
            self._listen(phase, done, self._steps[phase])
        except BaseException as error:
            self.stop(error)


def monitor_of(trt: Any, watch: BuildWatch) -> Any:
    """TensorRT's view of the watch."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            watch.begin(phase_name, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return watch.advance(phase_name, step + 1)

        def phase_finish(self, phase_name: str) -> None:
            watch.finish(phase_name)

    return Monitor()


@contextlib.contextmanager
def interrupt_stops(watch: BuildWatch) -> Iterator[None]:
    """Ctrl-C stops the watched build in place of raising inside a callback."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: watch.stop(KeyboardInterrupt()))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

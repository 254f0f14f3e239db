"""Ctrl-C and SIGTERM as an exception that waits until the work in progress is consistent.

Inside `interruptible`, the first signal raises `Interrupted` at once, or at the end of a block in `deferred`. A second
signal ends the process immediately. Signals that the parent process ignores, as `nohup` does, stay ignored.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_WAITING = b"\nstopping after this iteration; a second Ctrl-C ends the run at once\n"


class Interrupted(KeyboardInterrupt):
    """A run that was asked to stop.

    Args:
        number: The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.exit_code = 128 + number
        """The exit code that shells use for this signal."""


class _State:
    """The state of this process; signals are delivered to the process, not to an object."""

    received: int | None = None
    depth: int = 0
    """Number of `deferred` blocks that are open."""


def requested() -> int | None:
    """The signal that asked this process to stop, if any."""
    return _State.received


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise `Interrupted` for SIGINT and SIGTERM inside the block; no effect outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def receive(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a process that was forked; its parent tells it to end
            return
        if _State.received is not None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(owner, number)
        _State.received = number
        if _State.depth == 0:
            raise Interrupted(number)
        if number == signal.SIGINT:
            os.write(2, _WAITING)  # printing is not safe in a signal handler

    before = {number: signal.getsignal(number) for number in SIGNALS}
    handled = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
    _State.received, _State.depth = None, 0
    for number in handled:
        signal.signal(number, receive)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])
        _State.received, _State.depth = None, 0


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Delay `Interrupted` until the end of the outermost such block."""
    _State.depth += 1
    try:
        yield
    finally:
        _State.depth -= 1
    raise_if_requested()


@contextlib.contextmanager
def immediate() -> Iterator[None]:
    """Inside `deferred`: raise `Interrupted` at once in this block, also for a signal that came before it."""
    before, _State.depth = _State.depth, 0
    try:
        raise_if_requested()
        yield
    finally:
        _State.depth = before


def raise_if_requested() -> None:
    """Raise `Interrupted` if a signal has come and no `deferred` block is open."""
    if _State.received is not None and _State.depth == 0:
        raise Interrupted(_State.received)


def ignore_in_worker(worker: int) -> None:
    """Let a data loading process ignore both signals; the process that started it ends it.

    A terminal and service managers send signals to all processes of a run. A worker that ended first would break the
    batch that its parent is waiting for. A worker that is handing over a batch while its parent ends has nothing to
    report either.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    sys.excepthook = _report_unless_parent_ended


def _report_unless_parent_ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)

"""Progress without a terminal: a line on standard error whenever nothing was printed for half a minute."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rcil.core.log import Notify, is_quiet

INTERVAL = 30.0
"""Seconds between two lines; schedulers and CI services end jobs that stay silent for minutes."""


def _print(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@dataclass
class Heartbeat:
    """The state of the work, and when it was last shown.

    Args:
        status: What is being done.
        show: Prints a line.
        clock: Seconds; a test passes its own.
        interval: Seconds between two lines.
    """

    status: str
    show: Notify = _print
    clock: Callable[[], float] = time.monotonic
    interval: float = INTERVAL
    _started: float = field(init=False)
    _shown: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self._shown = self.clock()

    def count(self, title: str, done: int, total: int | None) -> None:
        """Update the status with the number of finished items."""
        self.status = f"{title}: {done}" if total is None else f"{title}: {done} of {total}"

    def restart(self) -> None:
        """Note that a line was printed by other means."""
        self._shown = self.clock()

    def tick(self) -> float:
        """Show the status if it is time to; returns the seconds until the next line."""
        now = self.clock()
        if now - self._shown >= self.interval:
            self._shown = now
            self.show(f"{self.status} ({_passed(now - self._started)})")
        return self._shown + self.interval - now


def _passed(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d} so far"


@contextlib.contextmanager
def heartbeat(status: str, *, terminal: bool, make: Callable[[str], Heartbeat] | None = None) -> Iterator[Heartbeat]:
    """Show the status regularly during the block, from a thread, since single stages can take minutes.

    Args:
        status: What is being done, until the block updates it.
        terminal: Whether a progress bar is shown instead; then, and with --quiet, no line is printed.
        make: Makes the heartbeat; a test passes its own.
    """
    beat = (make or Heartbeat)(status)
    if terminal or is_quiet():
        yield beat
        return
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(beat.tick()):
            pass

    thread = threading.Thread(target=follow, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield beat
    finally:
        ended.set()
        thread.join()

"""The logger `rcil`, which -v makes verbose and -q silences."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator

log = logging.getLogger("rcil")
Notify = Callable[[str], None]
"""Receives notices for the user, one line at a time; see `rcil.cli.console.make_notifier`."""


def is_quiet() -> bool:
    """Whether only results and errors are shown."""
    return not log.isEnabledFor(logging.WARNING)


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Log how long the block took."""
    start = time.perf_counter()
    yield
    log.info("%s: %.2f s", name, time.perf_counter() - start)


@contextlib.contextmanager
def listening(level: int) -> Iterator[None]:
    """Send messages from `level` on to standard error inside the block, then restore the logger for library users."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(level)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]

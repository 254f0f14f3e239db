"""How commands that run for long come to their end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from rcil.core.errors import RcilError
from rcil_serve.stream.frames import SourceError


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """`kill` and service managers end a run as Ctrl-C does: what was read is finished."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def in_brief(error: BaseException) -> str:
    """What went wrong, in a line for receipts and events."""
    return error.message if isinstance(error, RcilError) else f"{type(error).__name__}: {error}"


def raise_source_errors(receipt: dict[str, Any], path: Path, done: str) -> None:
    """Raise what was wrong with the source of a run that otherwise came to its end.

    Single problems of a live source are part of its life, and only that it is gone for good is an error.

    Args:
        receipt: Of the run.
        path: Where that is.
        done: What was done with the rest, for the hint.
    """
    frames, live = receipt["frames"], receipt["source"]["live"]
    why = frames["gone"] or ("" if live or not frames["problems"] else frames["problems"][0])
    if why:
        raise SourceError(why, f"What could be read is {done}; see {path}.")

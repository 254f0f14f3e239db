"""How long-running commands end: signals, short error messages, and errors of the source."""

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
    """Treat SIGTERM from `kill` or a service manager like Ctrl-C: frames that were read are finished."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def brief_message(error: BaseException) -> str:
    """The error in one line, for receipts and events."""
    return error.message if isinstance(error, RcilError) else f"{type(error).__name__}: {error}"


def raise_source_errors(receipt: dict[str, Any], path: Path, done: str) -> None:
    """Raise an error if the source of a finished run was damaged or lost.

    Interruptions of a live source are normal; only its permanent loss is an error.

    Args:
        receipt: Content of the receipt.
        path: Path of the receipt.
        done: What was done with the readable frames, for the hint.
    """
    frames, live = receipt["frames"], receipt["source"]["live"]
    why = frames["gone"] or ("" if live or not frames["problems"] else frames["problems"][0])
    if why:
        raise SourceError(why, f"All readable frames were {done}; see {path}.")

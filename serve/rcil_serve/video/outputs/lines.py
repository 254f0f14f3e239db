"""Text files that grow line by line, with errors that name them."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Literal

from rcil_serve.video.frames import OutputError


def make_folder(path: Path) -> None:
    """The folder of a file that is about to be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}", "Check the folder.") from error


def open_lines(path: Path, mode: Literal["w", "a"]) -> IO[str]:
    """A text file to write (`w`) or to go on with (`a`)."""
    make_folder(path)
    try:
        return path.open(mode, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}", "Check the folder.") from error


def not_written(path: Path | None, error: OSError) -> OutputError:
    """What to raise when a line could not be written."""
    return OutputError(f"cannot write {path}: {error.strerror}", "Check free space and permissions.")

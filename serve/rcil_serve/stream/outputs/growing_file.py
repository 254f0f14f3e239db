"""Files that grow: their names until they are complete, and errors that name them."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Literal

from rcil_serve.stream.frames import OutputError

PART = ".part"


def part_of(path: Path) -> Path:
    """`seen.mp4` -> `seen.part.mp4`: its name until it is complete, with the suffix that players go by."""
    return path.with_name(f"{path.stem}{PART}{path.suffix}")


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

"""Files that are written over a long time: their temporary names, and errors that name them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Literal

from rcil_serve.stream.frames import OutputError

PART = ".part"


def part_of(path: Path) -> Path:
    """Name of a file until it is complete: `seen.part.mp4` for `seen.mp4`, with the suffix that players expect."""
    return path.with_name(f"{path.stem}{PART}{path.suffix}")


def make_folder(path: Path) -> None:
    """Create the parent folder of a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path, error) from error


def open_lines(path: Path, mode: Literal["w", "a"]) -> IO[str]:
    """Open a text file to write (`w`) or append (`a`)."""
    make_folder(path)
    try:
        return path.open(mode, encoding="utf-8")
    except OSError as error:
        raise write_error(path, error) from error


def write_error(path: Path | None, error: OSError) -> OutputError:
    """The error for a file that could not be written."""
    return OutputError(f"cannot write {path}: {error.strerror}", "Check the folder, its free space and permissions.")


class RawFile:
    """An unbuffered file for FFmpeg to write to, so that a killed process keeps what it wrote.

    FFmpeg ignores errors when it closes a file that it opened itself, so a full disk would silently truncate a video.

    Args:
        path: The file; an existing one is replaced.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        try:
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise write_error(path, error) from error
        self._error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write all of the data, or raise."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._error = error
            raise
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.IOBase.seek`."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """See `io.IOBase.tell`."""
        return self._file.tell()

    def finish(self) -> None:
        """Close the file; raise if any of it did not reach the disk."""
        with self._file:
            if self._error is not None:
                raise self._error
            os.fsync(self._file.fileno())

    def abandon(self) -> None:
        """Close the file after an error."""
        self._file.close()

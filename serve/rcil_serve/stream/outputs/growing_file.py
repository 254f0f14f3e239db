"""Files that grow: their names until they are complete, and errors that name them."""

from __future__ import annotations

import os
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


class RawFile:
    """Bytes go to the disk as they come, so that a process that is killed keeps what it wrote.

    FFmpeg says nothing of errors while it closes a file that it opened itself: on a full disk a video would lose its
    end without a word.

    Args:
        path: The file; what stood there is replaced.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        try:
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise not_written(path, error) from error
        self._error: OSError | None = None

    def write(self, data: bytes) -> int:
        """All of the data, or an error."""
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
        """Close the file; raises if any of it did not reach the disk."""
        with self._file:
            if self._error is not None:
                raise self._error
            os.fsync(self._file.fileno())

    def abandon(self) -> None:
        """Close the file after an error."""
        self._file.close()

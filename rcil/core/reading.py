"""Reading of data files, with errors that name the file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from rcil.core.errors import RcilError
from rcil.core.files import building, is_free


class DataError(RcilError):
    """A dataset, mask or annotation file that is missing, damaged or not in the expected layout."""

    exit_code = 6


@contextlib.contextmanager
def readable(root: Path) -> Iterator[None]:
    """Turn an OSError inside the block, such as a missing permission, into a DataError."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot read {error.filename or root}: {error.strerror}", "Check its permissions.") from error


def existing_folder(path: Path, hint: str) -> Path:
    """Return `path`, or raise if it is not a folder."""
    if not path.is_dir():
        raise DataError(f"no folder at {path}", hint)
    return path


def is_text(path: Path) -> bool:
    """Whether a path is valid UTF-8. Other paths can be opened, but not written to a text file."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(path: Path) -> str:
    """A path as text, with invalid bytes escaped."""
    return os.fsencode(path).decode(errors="backslashreplace")


def require_free(folder: Path) -> None:
    """Raise unless the path is free or an empty folder."""
    if not is_free(folder):
        raise DataError(f"{folder} is in use", "Name a folder that does not exist yet, or an empty one.")


@contextlib.contextmanager
def creating(folder: Path) -> Iterator[Path]:
    """`building` for a folder of data: an OSError inside the block becomes a DataError."""
    try:
        with building(folder) as part:
            yield part
    except OSError as error:
        raise DataError(
            f"cannot write {folder}: {error.strerror or error}", "Check free space and permissions."
        ) from error


def read_bytes(path: Path, hint: str) -> bytes:
    """The bytes of a file; raises a DataError with this hint if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}", hint) from error
    except ValueError as error:  # a null character in its name
        raise DataError(f"invalid file name {str(path)!r}", hint) from error


def read_text(path: Path, hint: str) -> str:
    """A UTF-8 text file."""
    try:
        return read_bytes(path, hint).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a UTF-8 text file", hint) from error


def read_lines(path: Path, hint: str) -> list[str]:
    """The stripped lines of a UTF-8 text file; empty lines are kept, so that indices are line numbers."""
    return [line.strip() for line in read_text(path, hint).splitlines()]

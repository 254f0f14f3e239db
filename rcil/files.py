"""Writing files so that they are whole or absent."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rcil.errors import RcilError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` that takes its place when the block ends without an error.

    Whatever stood at `path` stays until then; after an error or an interrupt nothing new is left behind.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise RcilError(f"cannot write {path}: {error.strerror}", "Check the folder and its permissions.") from error
    part = Path(name)
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    except OSError as error:
        raise RcilError(
            f"cannot write {path}: {error.strerror or error}", "Check free space and permissions."
        ) from error
    finally:
        part.unlink(missing_ok=True)


def is_free(folder: Path) -> bool:
    """Whether a folder can be made here without touching anything: nothing is there, or an empty folder."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


@contextlib.contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder` that takes its name when the block ends without an error.

    Nothing is left behind otherwise. `folder` must be free; errors of the file system are the caller's to explain.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        yield part
        part.chmod(0o777 & ~_umask())
        part.replace(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    umask = os.umask(0)
    os.umask(umask)
    return umask


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

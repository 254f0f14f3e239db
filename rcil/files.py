"""Writing files so that they are whole or absent."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rcil.errors import ConfigError, RcilError


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


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Hold a folder against other processes; one that is held already is refused.

    The lock is a file beside the folder, so that a new folder stays empty until something is written. It goes with
    the process, however that ends.
    """
    folder = folder.absolute()
    path = folder.parent / f".{folder.name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _lock(path)
    except BlockingIOError as error:
        raise ConfigError(
            f"another process is working in {folder}", "Wait until it has ended, or choose another folder."
        ) from error
    except OSError as error:
        raise RcilError(f"cannot write {path}: {error.strerror}", "Check the folder and its permissions.") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _lock(path: Path) -> int:
    """An open file that only this process has locked, and that is still the one of this name."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        except OSError:
            os.close(handle)
            raise
        os.close(handle)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    umask = os.umask(0)
    os.umask(umask)
    return umask


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

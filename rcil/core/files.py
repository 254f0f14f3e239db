"""Atomic writing of files and folders: they appear complete or not at all.

Temporary files are called `.NAME.XXXXXXXX.part`, and their writer holds a lock on them. A temporary file without a
lock was left by a process that was killed; the next process that writes NAME removes it. It stays if the file system
does not support locks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rcil.core.errors import ConfigError, RcilError
from rcil.core.log import log

UMASK = os.umask(0o077)
"""The umask of the process at start. Reading it means setting it, which would affect files of other threads later."""
os.umask(UMASK)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` when the block ends without an error.

    An existing file at `path` is kept until then. Nothing new is left behind after an error or an interrupt.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(_left_behind(path.parent.absolute()), path.name)
        part, handle = _claimed(lambda: _new_file(path))
    except OSError as error:
        raise RcilError(f"cannot write {path}: {error.strerror}", "Check the folder and its permissions.") from error
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.chmod(0o666 & ~UMASK)
        part.replace(path)
        if not any(folder.suffix == ".part" for folder in path.parents):  # logged with their folder
            log.info("wrote %s, %d bytes", path, path.stat().st_size)
    except OSError as error:
        raise RcilError(
            f"cannot write {path}: {error.strerror or error}", "Check free space and permissions."
        ) from error
    finally:
        part.unlink(missing_ok=True)
        os.close(handle)


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file atomically; text is encoded as UTF-8."""
    with replacing(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def copy_file(source: Path, target: Path) -> None:
    """Copy the bytes of a file atomically."""
    with replacing(target) as part:
        shutil.copyfile(source, part)


def is_free(folder: Path) -> bool:
    """Whether nothing exists at this path, or only an empty folder."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


@contextlib.contextmanager
def building(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `folder` when the block ends without an error.

    Nothing is left behind otherwise. `folder` must be free (`is_free`). File system errors are not translated.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch(folder.parent, folder.name) as part:
        yield part
        part.chmod(0o777 & ~UMASK)
        part.replace(folder)
        log.info("wrote %s", folder)


@contextlib.contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """Yield a temporary folder in `parent`, deleted at the end with any that killed processes left under this name."""
    _clear(_parts_in(parent), name)
    part, handle = _claimed(lambda: _new_folder(parent, name))
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)
        os.close(handle)


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Lock a folder or file against other processes; raises if another process holds the lock.

    The lock is a file next to it, so that a new folder stays empty until something is written. The lock is released
    with the process, however the process ends.
    """
    folder = folder.absolute()
    path = folder.parent / f".{folder.name}.lock"
    try:
        handle = _hold(folder, path)
    except BlockingIOError as error:
        raise ConfigError(
            f"another process is working in {folder}", "Wait until it has ended, or choose another folder."
        ) from error
    except OSError as error:
        hint = "Check the folder and its permissions."
        raise RcilError(f"cannot write to {folder}: {error.strerror}", hint) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(handle)


def _hold(folder: Path, path: Path) -> int:
    """Lock `path`, or the folder itself where no file can be created at `path`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _lock(path)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or not folder.is_dir():
            raise
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _lock(path: Path) -> int:
    """Open and lock the file at `path`; retries if another process has replaced it meanwhile."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, path):
                return handle
        except OSError:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is still the one at `path`."""
    return path.exists() and os.path.samestat(os.fstat(handle), path.stat())


def _new_file(path: Path) -> tuple[Path, int]:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    return Path(name), handle


def _new_folder(parent: Path, name: str) -> tuple[Path, int]:
    part = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".part", dir=parent))
    return part, os.open(part, os.O_RDONLY)


def _claimed(make: Callable[[], tuple[Path, int]]) -> tuple[Path, int]:
    """Make a temporary file or folder and lock it; retries if another process removes it before it is locked."""
    while True:
        part, handle = make()
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            kept = _is_at(handle, part)
        except BlockingIOError:
            kept = False
        except OSError:  # without locks nobody else removes it either
            kept = True
        if kept:
            return part, handle
        os.close(handle)


@functools.lru_cache(maxsize=256)
def _left_behind(folder: Path) -> tuple[Path, ...]:
    """Temporary files in a folder when this process first writes there. Listing it for every file would be slow."""
    return _parts_in(folder)


def _parts_in(folder: Path) -> tuple[Path, ...]:
    with contextlib.suppress(OSError):  # a folder can be writable without being readable
        return tuple(path for path in folder.iterdir() if path.name.endswith(".part"))
    return ()


def _clear(parts: Iterable[Path], name: str) -> None:
    """Remove the temporary files of `name` whose writers no longer run."""
    for part in parts:
        if re.fullmatch(rf"\.{re.escape(name)}\.[a-z0-9_]{{8}}\.part", part.name):
            with contextlib.suppress(OSError):
                _remove_unlocked(part)


def _remove_unlocked(part: Path) -> None:
    handle = os.open(part, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()
    finally:
        os.close(handle)


def check_writable(path: Path) -> None:
    """Raise if `path` could not be created or replaced. Nothing is written."""
    existing = path.absolute()
    while not existing.exists():
        existing = existing.parent
    if existing != path.absolute() and not existing.is_dir():
        raise RcilError(f"cannot write {path}: {existing} is not a folder", "Choose another path.")
    if not os.access(existing, os.W_OK):
        raise RcilError(f"cannot write {path}: no permission in {existing}", "Check the folder and its permissions.")


def check_other_file(target: Path, source: Path, what: str) -> None:
    """Raise if `target` is the file `source`, under this or another name.

    Args:
        target: The file to write.
        source: The file it is made from.
        what: The source, for the message: `the checkpoint it is folded from`.
    """
    if target.resolve() == source.resolve():
        raise ConfigError(f"{target} would replace {what}", "Choose another name.")


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

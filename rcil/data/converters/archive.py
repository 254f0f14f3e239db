"""Unpack ZIP files of labelling tools, which may come from anywhere."""

from __future__ import annotations

import contextlib
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from rcil.core.errors import RcilError
from rcil.core.reading import DataError

MAX_FILES = 200_000
MAX_BYTES = 50 * 2**30
MAX_RATIO = 200
"""How many times larger than the archive its content may be; beyond that, it was made to fill the disk."""
SMALL = 64 * 2**20
"""Bytes that any archive may unpack to, whatever its ratio."""
_BLOCK = 2**20
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, LookupError, NotImplementedError, RuntimeError, ValueError
)  # fmt: skip
"""What `zipfile` raises for damaged, encrypted and odd archives, such as an IndexError for an empty name."""


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield a folder with the content of a ZIP file, which is deleted at the end; other paths are yielded unchanged.

    Errors inside the block name files as parts of the archive instead of the temporary folder.
    """
    if not path.is_file() or not zipfile.is_zipfile(path):
        if path.is_file() and path.suffix.lower() == ".zip":
            raise DataError(f"{path} is not a ZIP file, or is cut off", "Download or copy it again.")
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="rcil-") as name:
        folder = Path(name)
        try:
            _unpack(path, folder)
            yield _root(folder)
        except RcilError as error:
            message, hint = (text.replace(name, str(path)) for text in (error.message, error.hint))
            raise type(error)(message, hint) from error


def _unpack(path: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if _is_content(entry)]
            _check(path, entries)
            for entry in entries:
                _extract(archive, entry, folder, path)
    except _UNREADABLE as error:
        raise DataError(f"{path} cannot be unpacked ({error})", "Download or copy it again.") from error
    except OSError as error:
        raise DataError(
            f"cannot unpack {path}: {error.strerror or error}", "Check the free space of the temporary folder (TMPDIR)."
        ) from error


def _is_content(entry: zipfile.ZipInfo) -> bool:
    """Whether this is a file, and none that macOS adds to archives."""
    return not entry.is_dir() and not entry.filename.startswith("__MACOSX/")


def _check(path: Path, entries: list[zipfile.ZipInfo]) -> None:
    """Raise for archives that are too large, before anything is written."""
    size = sum(entry.file_size for entry in entries)
    if len(entries) > MAX_FILES or size > min(MAX_BYTES, max(SMALL, MAX_RATIO * path.stat().st_size)):
        raise DataError(
            f"{path} would unpack to {len(entries)} files with {size / 2**20:.0f} MiB",
            "Unpack it yourself, and give the folder.",
        )
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if size > free:
        raise DataError(
            f"{path} unpacks to {size / 2**20:.0f} MiB, and {tempfile.gettempdir()} has {free / 2**20:.0f} MiB left",
            "Set TMPDIR to another folder, or unpack it yourself.",
        )


def _extract(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path, path: Path) -> None:
    """Write one file, never more bytes than the archive states."""
    name = PurePosixPath(entry.filename.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or ":" in name.parts[0] or stat.S_ISLNK(entry.external_attr >> 16):
        raise DataError(
            f"{path} holds '{entry.filename}', which leads outside the archive", "Unpack it yourself, after a check."
        )
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    left = entry.file_size
    with archive.open(entry) as source, target.open("xb") as file:
        while block := source.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise DataError(f"{path}: '{entry.filename}' is longer than stated", "Download or copy it again.")
            file.write(block)


def _root(folder: Path) -> Path:
    """The folder itself, or the only folder in it, if that is not a split."""
    inside = list(folder.iterdir())
    if len(inside) == 1 and inside[0].is_dir() and inside[0].name not in _MEANINGFUL:
        return _root(inside[0])
    return folder


_MEANINGFUL = {"train", "val", "valid", "test", "annotations", "images", "labels"}
"""Folders that belong to the layout of a format, even if they are the only one."""

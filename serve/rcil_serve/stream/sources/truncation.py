"""Whether a file ends before the length that its own structure states."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"
_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"sidx", b"moof")
_UNKNOWN = 0xFFFFFFFF


def missing_bytes(path: Path) -> int:
    """Number of bytes that an MP4, AVI or Matroska file lacks at its end.

    0 for whole files, for other formats, and for files that do not state their length, such as recordings in progress.
    The number of frames that a file announces does not tell: AVI files count frames that are repeated, not stored.
    """
    try:
        with path.open("rb") as file:
            length = file.seek(0, 2)
            stated = max(_ends(file, length), default=0)
    except OSError:
        return 0
    return max(0, stated - length)


def _ends(file: BinaryIO, length: int) -> Iterator[int]:
    """Yield where each top-level element of the file should end."""
    head = _read(file, 0, 12)
    if head[:4] == b"RIFF":
        yield from _riff_ends(file, length)
    elif head[:4] == _EBML:
        yield from _matroska_ends(file)
    elif head[4:8] in _BOXES:
        yield from _box_ends(file, length)


def _riff_ends(file: BinaryIO, length: int) -> Iterator[int]:
    at = 0
    while at + 8 <= length:
        head = _read(file, at, 8)
        size = int.from_bytes(head[4:8], "little")
        if head[:4] != b"RIFF" or size in (0, _UNKNOWN):
            return
        at += 8 + size
        yield at
        at += size % 2


def _box_ends(file: BinaryIO, length: int) -> Iterator[int]:
    at = 0
    while at + 8 <= length:
        head = _read(file, at, 16)
        size = int.from_bytes(head[:4], "big")
        if size == 1:
            size = int.from_bytes(head[8:16], "big")
        if size < 8 or not all(0x20 <= letter < 0x7F or letter == 0xA9 for letter in head[4:8]):
            return
        at += size
        yield at


def _matroska_ends(file: BinaryIO) -> Iterator[int]:
    at = _element_end(file, 4)
    if at is not None and _read(file, at, 4) == _SEGMENT:
        end = _element_end(file, at + 4)
        if end is not None:
            yield end


def _element_end(file: BinaryIO, at: int) -> int | None:
    """End of an element whose size, in EBML's variable length, stands at `at`; None if it is unknown."""
    head = _read(file, at, 8)
    count = 9 - head[0].bit_length() if head and head[0] else 9
    if count > 8 or len(head) < count:
        return None
    size = int.from_bytes(head[:count], "big") & ((1 << (7 * count)) - 1)
    return None if size == (1 << (7 * count)) - 1 else at + count + size


def _read(file: BinaryIO, at: int, count: int) -> bytes:
    file.seek(at)
    return file.read(count)

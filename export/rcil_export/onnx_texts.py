"""What an ONNX file says about itself, read without loading its graph. Needs neither the package onnx nor a session.

Serving must know what a graph is written for before ONNX Runtime loads it. An ONNX file is one protobuf message; its
texts are the repeated field 14, each a message of key (1) and value (2), and everything else is skipped by its length.
https://protobuf.dev/programming-guides/encoding/ describes the bytes.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rcil.errors import CheckpointError

TEXTS_FIELD = 14
VARINT, EIGHT_BYTES, LENGTH_PREFIXED, FOUR_BYTES = 0, 1, 2, 5
MAX_VARINT_BYTES = 10


def damaged(path: Path) -> CheckpointError:
    """The error for a file that is no ONNX."""
    return CheckpointError(f"{path} is not an ONNX file, or damaged", "Export it again with rcil-export.")


def read_texts(path: Path, content: bytes | None = None) -> dict[str, str]:
    """Keys and values of the file's metadata; a `CheckpointError` names a file that is no ONNX.

    Args:
        path: The file.
        content: Its bytes, where they were read before.
    """
    try:
        with path.open("rb") if content is None else io.BytesIO(content) as file:
            return dict(_entry(value) for number, value in _fields(file, wanted=TEXTS_FIELD) if number == TEXTS_FIELD)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}", "Check the path.") from error
    except ValueError as error:  # UnicodeDecodeError too
        raise damaged(path) from error


def _entry(data: bytes) -> tuple[str, str]:
    """Key and value of one entry; either may be left out, which means an empty text."""
    found = {number: value.decode() for number, value in _fields(io.BytesIO(data))}
    return found.get(1, ""), found.get(2, "")


def _fields(file: BinaryIO, wanted: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of every length-prefixed field, of those of one number if it is given; raises `ValueError`."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    while file.tell() < size:
        tag = _varint(file)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("a field without a number")
        if kind == VARINT:
            _varint(file)
            continue
        length = _varint(file) if kind == LENGTH_PREFIXED else {EIGHT_BYTES: 8, FOUR_BYTES: 4}.get(kind)
        if length is None or length > size - file.tell():
            raise ValueError("a field of an unknown kind, or longer than the file")
        if kind == LENGTH_PREFIXED and wanted in (None, number):
            yield number, file.read(length)
        else:
            file.seek(length, os.SEEK_CUR)


def _varint(file: BinaryIO) -> int:
    """A number in groups of seven bits, the lowest first; the top bit says that another follows."""
    value = 0
    for position in range(MAX_VARINT_BYTES):
        byte = file.read(1)
        if not byte:
            raise ValueError("the file ends within a number")
        value |= (byte[0] & 0x7F) << (7 * position)
        if byte[0] < 0x80:
            return value
    raise ValueError("a number that does not end")

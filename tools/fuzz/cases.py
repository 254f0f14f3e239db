"""Fuzzed inputs, which are determined by their numbers, and the readers that receive them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

Case = dict[str, bytes]
"""Content of each file by its relative path."""


@dataclass(frozen=True)
class Reader:
    """A function that reads files, and a generator of inputs for it."""

    name: str
    make: Callable[[Random], Case]
    """Generates a random input."""
    read: Callable[[Path], None]
    """Reads an input from a folder. It may refuse with an `RcilError`; any other exception is a bug."""


def case_of(reader: Reader, seed: int, number: int) -> Case:
    """Return the input with this number; it is the same on every machine."""
    return reader.make(Random(f"{seed}/{reader.name}/{number}"))


def write_case(case: Case, folder: Path) -> None:
    """Write the files. Names that the file system rejects are skipped."""
    for name, data in case.items():
        path = folder / name
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

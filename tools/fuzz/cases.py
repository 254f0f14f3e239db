"""What is fuzzed: inputs that follow from their number, and the readers that they are given to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

Case = dict[str, bytes]
"""Files by their path below a folder."""


@dataclass(frozen=True)
class Reader:
    """Something that reads files."""

    name: str
    make: Callable[[Random], Case]
    """Draws an input."""
    read: Callable[[Path], None]
    """Reads the files of an input from a folder; refuses with an `RcilError`, and every other exception is a bug."""


def case_of(reader: Reader, seed: int, number: int) -> Case:
    """The input of this number, the same on every machine."""
    return reader.make(Random(f"{seed}/{reader.name}/{number}"))


def write_case(case: Case, folder: Path) -> None:
    """Lay the files out; a name that the file system does not take is left out."""
    for name, data in case.items():
        path = folder / name
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

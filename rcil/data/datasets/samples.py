"""Checks of the files that a dataset lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rcil.core.reading import DataError, is_text, printable
from rcil.data.types import Sample


def checked_split(samples: Iterable[Sample], where: Path, hint: str) -> tuple[Sample, ...]:
    """Check that all files of the samples exist; `where` is the list or folder that names them."""
    found = tuple(samples)
    if not found:
        raise DataError(f"{where} names no images", hint)
    unreadable = next((sample.image for sample in found if not is_text(sample.image)), None)
    if unreadable is not None:
        raise DataError(f"the name of {printable(unreadable)} is not UTF-8", "Rename the file, and its mask.")
    name, count = Counter(sample.name for sample in found).most_common(1)[0]
    if count > 1:
        raise DataError(f"{where} names '{name}' {count} times", "List every image once.")
    missing = [path for sample in found for path in (sample.image, sample.mask) if not path.is_file()]
    if missing:
        raise DataError(f"{len(missing)} files named by {where} are missing, first {missing[0]}", hint)
    return found

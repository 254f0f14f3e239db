"""Checking what a dataset's lists and folders name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rcil.core.reading import DataError, is_text, printable
from rcil.data.types import Sample


def checked_split(samples: Iterable[Sample], where: Path, hint: str) -> tuple[Sample, ...]:
    """Samples in the order given, all of whose files exist; `where` is the list or folder that named them."""
    found = tuple(samples)
    if not found:
        raise DataError(f"{where} names no images", hint)
    unreadable = next((sample.image for sample in found if not is_text(sample.image)), None)
    if unreadable is not None:
        raise DataError(f"the name of {printable(unreadable)} is not UTF-8", "Rename the file, and its mask.")
    name, count = Counter(sample.name for sample in found).most_common(1)[0]
    if count > 1:
        raise DataError(f"{where} names '{name}' {count} times", "Every image may be listed once.")
    missing = [path for sample in found for path in (sample.image, sample.mask) if not path.is_file()]
    if missing:
        raise DataError(f"{len(missing)} files that {where} asks for are missing, first {missing[0]}", hint)
    return found

"""The classes of two models, matched by name. A position in a class table never decides. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import ConfigError
from rcil.model.metadata import ClassInfo

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class ClassMatch:
    """Which rows of an old and a new model stand for the same class."""

    counts: tuple[int, int]
    """Number of classes of the old and of the new model."""
    names: tuple[str, ...]
    """Classes that both models have, in the old model's order."""
    old_rows: Rows
    """Rows of `names` in the old model."""
    new_rows: Rows
    """Rows of `names` in the new model."""
    gone: tuple[str, ...]
    """Classes that only the old model has."""
    gone_rows: Rows
    added: tuple[str, ...]
    """Classes that only the new model has."""
    added_rows: Rows

    @property
    def complete(self) -> bool:
        """Whether both models have the same classes."""
        return not self.gone and not self.added

    @property
    def same_rows(self) -> bool:
        """Whether both models have the same classes in the same rows."""
        return self.complete and np.array_equal(self.old_rows, self.new_rows)


def match_classes(old: Sequence[ClassInfo], new: Sequence[ClassInfo]) -> ClassMatch:
    """Match two class tables, each in row order; raises if no name is in both."""
    old_row = {info.name: row for row, info in enumerate(old)}
    new_row = {info.name: row for row, info in enumerate(new)}
    shared = tuple(name for name in old_row if name in new_row)
    if not shared:
        raise ConfigError(
            f"the models have no class in common: one has {', '.join(old_row)}, the other {', '.join(new_row)}",
            "Name two steps of the same model.",
        )
    gone = tuple(name for name in old_row if name not in new_row)
    added = tuple(name for name in new_row if name not in old_row)
    return ClassMatch(
        counts=(len(old), len(new)),
        names=shared,
        old_rows=_rows(old_row, shared),
        new_rows=_rows(new_row, shared),
        gone=gone,
        gone_rows=_rows(old_row, gone),
        added=added,
        added_rows=_rows(new_row, added),
    )


def _rows(rows: dict[str, int], names: Sequence[str]) -> Rows:
    return np.array([rows[name] for name in names], np.intp)

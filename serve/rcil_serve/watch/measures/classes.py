"""Which rows of two models' masks mean the same class; names decide, never positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import ConfigError
from rcil.model.metadata import ClassInfo

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Matching:
    """Classes of an older and a newer model."""

    counts: tuple[int, int]
    """Number of classes of either."""
    names: tuple[str, ...]
    """That both have, in the older one's order: the old classes."""
    old_rows: Rows
    """Their rows in the older model's masks."""
    new_rows: Rows
    """Their rows in the newer model's masks."""
    gone: tuple[str, ...]
    """Names that only the older one has."""
    gone_rows: Rows
    added: tuple[str, ...]
    """Names that only the newer one has."""
    added_rows: Rows


def match(old: Sequence[ClassInfo], new: Sequence[ClassInfo]) -> Matching:
    """Match the class tables of two models, each in the order of mask rows."""
    old_row = {info.name: row for row, info in enumerate(old)}
    new_row = {info.name: row for row, info in enumerate(new)}
    shared = tuple(name for name in old_row if name in new_row)
    if not shared:
        raise ConfigError(
            f"the models share no class: one has {', '.join(old_row)}, the other {', '.join(new_row)}",
            "Give steps of one and the same model.",
        )
    gone = tuple(name for name in old_row if name not in new_row)
    added = tuple(name for name in new_row if name not in old_row)
    return Matching(
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

"""The classes that two artefacts share, matched by name. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import RcilError
from rcil.model.metadata import Metadata


@dataclass(frozen=True)
class ClassMatch:
    """Common classes in the order of the first artefact's rows; `rows_*` say where each artefact has them."""

    names: tuple[str, ...]
    rows_a: tuple[int, ...]
    rows_b: tuple[int, ...]
    new: NDArray[np.bool_]
    """Whether a class came with the latest step [common classes]."""
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether both have the same classes."""
        return not self.only_a and not self.only_b

    @property
    def same_rows(self) -> bool:
        """Whether both have the same classes in the same rows."""
        return self.complete and self.rows_a == self.rows_b


def match_classes(a: Metadata, b: Metadata) -> ClassMatch:
    """Match by name; old are the classes of steps before the later model's own step, new those of that step."""
    row_of_b = {c.name: row for row, c in enumerate(b.classes)}
    common = [(c.name, row, row_of_b[c.name]) for row, c in enumerate(a.classes) if c.name in row_of_b]
    if not common:
        raise RcilError(
            "the two models have no class in common",
            f"The first knows {_listed(a)}; the second knows {_listed(b)}.",
        )
    later = b if b.step >= a.step else a
    step_of = {c.name: c.step for c in later.classes}
    names, rows_a, rows_b = zip(*common, strict=True)
    return ClassMatch(
        names=names,
        rows_a=rows_a,
        rows_b=rows_b,
        new=np.array([step_of[name] >= later.step for name in names]),
        only_a=tuple(c.name for c in a.classes if c.name not in row_of_b),
        only_b=tuple(c.name for c in b.classes if c.name not in names),
    )


def _listed(metadata: Metadata) -> str:
    return ", ".join(c.name for c in metadata.classes)

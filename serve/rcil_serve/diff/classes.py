"""The classes of two models in one table, matched by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import ConfigError
from rcil.core.palette import colour_of
from rcil.model.metadata import ClassInfo
from rcil_serve.runtime.painter import BACKGROUND


@dataclass(frozen=True)
class CommonClasses:
    """All classes of either model; a place in this table is a common row. Row 0 is the background of both."""

    table: tuple[ClassInfo, ...]
    """Those of the new model in its order, then those that only the old one has."""
    old: NDArray[np.intp]
    """Common row of each of the old model's rows."""
    new: NDArray[np.intp]
    """Common row of each of the new model's rows."""

    @property
    def names(self) -> list[str]:
        """In the order of common rows."""
        return [c.name for c in self.table]

    @cached_property
    def added(self) -> list[int]:
        """Common rows that the old model lacks."""
        return sorted(set(range(len(self.table))) - set(self.old.tolist()))

    @cached_property
    def removed(self) -> list[int]:
        """Common rows that the new model lacks."""
        return sorted(set(range(len(self.table))) - set(self.new.tolist()))


def match_classes(old: Sequence[ClassInfo], new: Sequence[ClassInfo]) -> CommonClasses:
    """One table for both; the new model's colours count, and classes that it lacks get colours that it does not use."""
    if old[BACKGROUND].name != new[BACKGROUND].name:
        raise ConfigError(
            f"the background of the old model is '{old[BACKGROUND].name}', of the new one '{new[BACKGROUND].name}'",
            "Compare models whose first class is the same.",
        )
    known = {c.name for c in new}
    if not known.intersection(c.name for c in old[BACKGROUND + 1 :]):
        raise ConfigError(
            f"the models share no class but {new[BACKGROUND].name}: the old one knows {_listed(old)}, the new one "
            f"{_listed(new)}",
            "Compare a model with one that continues it; classes are matched by their names.",
        )
    table = list(new)
    for gone in (c for c in old if c.name not in known):
        used = {c.colour for c in table}
        colours = (gone.colour, *map(colour_of, range(1, 256)))
        table.append(gone.model_copy(update={"colour": next((c for c in colours if c not in used), gone.colour)}))
    places = dict(zip((c.name for c in table), count(), strict=False))
    return CommonClasses(tuple(table), np.array([places[c.name] for c in old]), np.array([places[c.name] for c in new]))


def _listed(classes: Sequence[ClassInfo]) -> str:
    names = [c.name for c in classes[BACKGROUND + 1 :]]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") or "nothing else"

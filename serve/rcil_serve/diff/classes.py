"""The classes of two models in one table, matched by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rcil.core.errors import ConfigError
from rcil.core.palette import colour_of
from rcil.model.class_match import Rows, match_classes
from rcil.model.metadata import ClassInfo
from rcil_serve.runtime.painter import BACKGROUND


@dataclass(frozen=True)
class CommonClasses:
    """All classes of either model in one table, whose positions are the common rows. Row 0 is the background."""

    table: tuple[ClassInfo, ...]
    """The classes of the new model in its order, then those that only the old one has."""
    old: Rows
    """Common row of each row of the old model."""
    new: Rows
    """Common row of each row of the new model."""
    added: list[int]
    """Common rows that the old model lacks."""
    removed: list[int]
    """Common rows that the new model lacks."""

    @property
    def names(self) -> list[str]:
        """Class names in the order of common rows."""
        return [c.name for c in self.table]


def common_classes(old: Sequence[ClassInfo], new: Sequence[ClassInfo]) -> CommonClasses:
    """One table for both; colours are the new model's, and classes that it lacks get colours that it does not use."""
    if old[BACKGROUND].name != new[BACKGROUND].name:
        raise ConfigError(
            f"the background of the old model is '{old[BACKGROUND].name}', of the new one '{new[BACKGROUND].name}'",
            "Compare models whose first class is the same.",
        )
    match = match_classes(old, new)
    if len(match.names) == 1:
        raise ConfigError(
            f"the models share no class but {new[BACKGROUND].name}: the old one knows {_listed(old)}, the new one "
            f"{_listed(new)}",
            "Compare a model with one that continues it; classes are matched by their names.",
        )
    table = list(new)
    for gone in (old[row] for row in match.gone_rows):
        used = {c.colour for c in table}
        colours = (gone.colour, *map(colour_of, range(1, 256)))
        table.append(gone.model_copy(update={"colour": next((c for c in colours if c not in used), gone.colour)}))
    removed = np.arange(len(new), len(table))
    from_old = np.empty(len(old), np.intp)
    from_old[match.old_rows], from_old[match.gone_rows] = match.new_rows, removed
    return CommonClasses(
        tuple(table), from_old, np.arange(len(new)), sorted(match.added_rows.tolist()), removed.tolist()
    )


def _listed(classes: Sequence[ClassInfo]) -> str:
    names = [c.name for c in classes[BACKGROUND + 1 :]]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") or "nothing else"

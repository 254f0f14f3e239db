"""What a change of class means, as a table that is looked up once a pixel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rcil.core.drawing import Colour
from rcil.model.metadata import ClassInfo
from rcil_serve.diff.classes import CommonClasses
from rcil_serve.runtime.painter import BACKGROUND


@dataclass(frozen=True)
class Kind:
    """One kind of transition; its place in `KINDS` is its number."""

    name: str
    colour: Colour
    meaning: str

    @property
    def hex(self) -> str:
        """The colour for pages and plots."""
        return "#{:02x}{:02x}{:02x}".format(*self.colour)


KINDS = (
    Kind("same", (128, 136, 144), "both models give the same class"),
    Kind("forgotten", (213, 94, 0), "a class that both know became background: suspected forgetting"),
    Kind("learned", (0, 158, 115), "background became a class that is new"),
    Kind("taken", (204, 121, 167), "a class that both know became a class that is new"),
    Kind("appeared", (86, 180, 233), "background became a class that both know"),
    Kind("swapped", (230, 159, 0), "a class that both know became another one that both know"),
    Kind("lost", (0, 114, 178), "a class that the new model does not have became something else"),
)
"""In Okabe and Ito's colours, which are told apart with any colour vision; harm to old classes is warm."""
SAME, FORGOTTEN, LEARNED, TAKEN, APPEARED, SWAPPED, LOST = range(len(KINDS))
HARM = (FORGOTTEN, SWAPPED, LOST, TAKEN)
"""What happens to classes that the old model knew, from the most to the least suspicious."""


def kind_table(classes: CommonClasses) -> NDArray[np.uint8]:
    """Kind of every transition, [old common row, new common row]."""
    count = len(classes.table)
    table = np.full((count, count), SWAPPED, np.uint8)
    table[:, BACKGROUND] = FORGOTTEN
    table[BACKGROUND, :] = APPEARED
    table[:, classes.added] = TAKEN
    table[BACKGROUND, classes.added] = LEARNED
    table[classes.removed, :] = LOST
    np.fill_diagonal(table, SAME)
    return table


def kind_classes() -> tuple[ClassInfo, ...]:
    """The kinds as a class table, for a `Painter`: `same` is the background, which stays unpainted."""
    return tuple(ClassInfo(name=kind.name, id=row, colour=kind.colour, step=0) for row, kind in enumerate(KINDS))

"""The classes of a scene, and the older classes that appear with them.

Class-incremental learning is hard because an image of a new class also shows old ones that its annotation calls
background. The table makes that happen on purpose: almost no class appears without companions that precede it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Occurrence:
    """How often a class appears."""

    chance: float
    """Probability that the class appears on its own account."""
    most: int = 1
    """Maximum number of objects if the class appears; stuff classes count once."""
    brings: dict[str, float] = field(default_factory=dict)
    """Older class -> minimum probability that it appears too."""


OCCURRENCE = {
    "road": Occurrence(0.40),
    "building": Occurrence(0.55, 3),
    "vegetation": Occurrence(0.50, 4),
    "person": Occurrence(0.25, 3, {"road": 0.40, "building": 0.70}),
    "vehicle": Occurrence(0.25, 2, {"road": 0.85, "vegetation": 0.60}),
    "crate": Occurrence(0.25, 3, {"building": 0.85, "person": 0.55}),
    "barrier": Occurrence(0.20, 2, {"road": 0.85, "vehicle": 0.50}),
    "cone": Occurrence(0.25, 4, {"road": 0.85, "barrier": 0.45, "vehicle": 0.50}),
    "sign": Occurrence(0.25, 2, {"road": 0.60, "vegetation": 0.85}),
    "ball": Occurrence(0.25, 2, {"vegetation": 0.90, "person": 0.80}),
}
CLASSES = ("background", *OCCURRENCE)
"""Class names by id, in a natural order for steps, as companions always have smaller ids."""


def draw_counts(rng: np.random.Generator) -> dict[str, int]:
    """Draw the number of objects per class of a scene; absent classes are omitted.

    Classes are decided from the newest to the oldest, so a companion is asked for before its own turn comes.
    """
    wanted: set[str] = set()
    counts: dict[str, int] = {}
    for name in reversed(CLASSES[1:]):
        entry = OCCURRENCE[name]
        by_itself = rng.random() < entry.chance
        if by_itself or name in wanted:
            counts[name] = int(rng.integers(1, entry.most + 1))
            wanted.update(older for older, share in entry.brings.items() if rng.random() < share)
    return counts

"""Which classes come in which step. No torch here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rcil.classify.task import ProtocolSection
from rcil.core.errors import ConfigError


def class_steps(names: Sequence[str], protocol: ProtocolSection, seed: int) -> tuple[tuple[str, ...], ...]:
    """The class names of each step; the order is drawn from `seed`.

    Args:
        names: All classes.
        protocol: How many come first, and over how many steps the rest is shared out.
        seed: Of the task.
    """
    first = len(names) // 2 if protocol.first is None else protocol.first
    rest, later = len(names) - first, protocol.later_steps
    if first < 2 or rest < 0 or (later and (rest < later or rest % later)) or (not later and rest):
        raise ConfigError(
            f"{len(names)} classes cannot be {first} first and then {later} equal steps",
            "Choose protocol.first (at least 2) and protocol.later_steps so that the rest divides evenly.",
        )
    order = [names[place] for place in np.random.default_rng(seed).permutation(len(names))]
    size = rest // later if later else 1
    return (tuple(order[:first]), *(tuple(order[at : at + size]) for at in range(first, len(order), size)))

"""What the meters say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Measure(StrEnum):
    """What can raise an alarm."""

    AGREEMENT = "agreement"
    """IoU of a class between the previous step and the current one."""
    DRIFT = "drift"
    """Relative change of a class's share of the picture against the reference."""
    FLICKER = "flicker"
    """Share of a class's pixels that come and go where the picture stands still."""
    SILENCE = "silence"
    """Seconds without a frame."""


@dataclass(frozen=True)
class Reading:
    """One measure of one class."""

    measure: Measure
    name: str
    """Of the class; empty where the measure is about the source."""
    value: float | None
    """None where there is nothing to measure."""
    firm: bool = True
    """Whether there is enough to judge by; other values are shown and raise no alarm."""

"""How things stand: what receipts and Prometheus read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rcil_serve.watch.measures.meters import Measure, Reading


@dataclass(frozen=True)
class Standing:
    """A moment of a run; replaced as a whole, so that other threads may read it."""

    step: int
    """Of the model that is watched."""
    sha256: str
    frames: int = 0
    """Measured."""
    compared: int = 0
    """Seen by the previous step too."""
    readings: tuple[Reading, ...] = ()
    active: frozenset[tuple[Measure, str]] = frozenset()
    """Alarms that stand."""
    raised: dict[tuple[Measure, str], int] = field(default_factory=dict)
    """How often alarms were raised."""
    shadow_frames: int = 0
    """Seen by the new step too, in all rounds."""
    shadow_round: int = 0
    """The same in this round."""
    shadow_agreement: dict[str, float] = field(default_factory=dict)
    """In this round so far, by name."""
    promotions: int = 0

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        measures: dict[str, dict[str, float | None]] = {}
        for reading in self.readings:
            value = None if reading.value is None else round(reading.value, 6)
            measures.setdefault(reading.measure, {})[reading.name] = value
        return {
            "step": self.step,
            "sha256": self.sha256,
            "frames": self.frames,
            "compared": self.compared,
            "measures": measures,
            "standing_alarms": [{"measure": key[0], "class": key[1]} for key in sorted(self.active)],
            "raised_alarms": [
                {"measure": key[0], "class": key[1], "count": count} for key, count in sorted(self.raised.items())
            ],
            "shadow": {
                "compared": self.shadow_frames,
                "round": self.shadow_round,
                "agreement": {name: round(value, 6) for name, value in self.shadow_agreement.items()},
            },
            "promotions": self.promotions,
        }

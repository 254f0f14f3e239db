"""The status of a watch, for receipts and Prometheus."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rcil_serve.watch.measures.meters import Measure, Reading


@dataclass(frozen=True)
class WatchStatus:
    """An immutable snapshot of a run, so that other threads may read it."""

    step: int
    """Continual step of the watched model."""
    sha256: str
    frames: int = 0
    """Frames that were measured."""
    compared: int = 0
    """Frames that the previous step also processed."""
    readings: tuple[Reading, ...] = ()
    active: frozenset[tuple[Measure, str]] = frozenset()
    """Active alarms."""
    raised: dict[tuple[Measure, str], int] = field(default_factory=dict)
    """How often each alarm was raised."""
    shadow_frames: int = 0
    """Frames that the new step also processed, in all rounds."""
    shadow_round: int = 0
    """Frames that the new step also processed, in this round."""
    shadow_agreement: dict[str, float] = field(default_factory=dict)
    """IoU by class name in this round so far."""
    promotions: int = 0

    def as_document(self) -> dict[str, Any]:
        """The status as JSON-ready values."""
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

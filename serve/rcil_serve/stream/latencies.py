"""How long things take, in memory that does not grow."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

SHORTEST, LONGEST, STEP = 1e-6, 1e4, 1.01
"""Seconds; bins are one percent wide."""


class Latencies:
    """Percentiles to one percent of their value, of any number of times."""

    def __init__(self) -> None:
        self._counts = np.zeros(int(math.log(LONGEST / SHORTEST) / math.log(STEP)) + 2, np.int64)
        self.count = 0
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Note one time."""
        place = int(math.log(max(seconds, SHORTEST) / SHORTEST) / math.log(STEP))
        self._counts[min(place, len(self._counts) - 1)] += 1
        self.count += 1
        self.total += seconds

    def percentile(self, percent: float) -> float:
        """The time in seconds that so many percent stay below; 0 where nothing was noted."""
        if not self.count:
            return 0.0
        place = int(np.searchsorted(self._counts.cumsum(), percent / 100 * self.count))
        return float(SHORTEST * STEP ** (place + 0.5))

    def as_document(self) -> dict[str, float]:
        """JSON-ready, in milliseconds."""
        document = {f"p{percent}_ms": round(1000 * self.percentile(percent), 3) for percent in (50, 95, 99)}
        return {"count": self.count, **document, "mean_ms": round(1000 * self.total / max(1, self.count), 3)}


@dataclass
class Stages:
    """Of a pipeline."""

    decode: Latencies = field(default_factory=Latencies)
    infer: Latencies = field(default_factory=Latencies)
    paint: Latencies = field(default_factory=Latencies)
    encode: Latencies = field(default_factory=Latencies)
    write: Latencies = field(default_factory=Latencies)
    """Everything after inference: painting, encoding, masks, records."""
    lag: Latencies = field(default_factory=Latencies)
    """From the decoded frame to its last output."""

    def as_document(self) -> dict[str, dict[str, float]]:
        """JSON-ready."""
        return {name: getattr(self, name).as_document() for name in self.__dataclass_fields__}

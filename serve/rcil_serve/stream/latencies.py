"""How long things take, in memory that does not grow."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rcil.core.log_histogram import LogHistogram


class Latencies:
    """Percentiles of any number of times, exact to one percent, from a microsecond to three hours."""

    def __init__(self) -> None:
        self._histogram = LogHistogram(low=-6, high=4, per_decade=232)
        self.total = 0.0

    @property
    def count(self) -> int:
        """How many times were added."""
        return self._histogram.total

    def add(self, seconds: float) -> None:
        """Add one time."""
        self._histogram.add(np.array(seconds))
        self.total += seconds

    def percentile(self, percent: float) -> float:
        """The time in seconds that `percent` of the times do not exceed; 0 without times."""
        return self._histogram.quantile(percent / 100) if self.count else 0.0

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

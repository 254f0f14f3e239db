"""How int8 chooses the ranges of values. No ONNX Runtime here, so that files can be described quickly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rcil.errors import ConfigError

Method = Literal["percentile", "entropy"]
Span = tuple[float, float]
"""The lower and the upper end of a range; numbers that float32 holds exactly."""


@dataclass(frozen=True)
class CalibrationOptions:
    """How ranges of values are chosen."""

    method: Method = "percentile"
    percentile: float = 99.99
    """Share of values, in percent, that the range covers; larger ones are clipped."""

    def __post_init__(self) -> None:
        if not 50 < self.percentile <= 100:
            raise ConfigError(f"percentile {self.percentile} makes no range", "Choose one above 50, up to 100.")

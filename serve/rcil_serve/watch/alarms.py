"""Alarms with hysteresis: several bad readings raise one, several good readings clear it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rcil.core.errors import ConfigError, RcilError
from rcil_serve.watch.meters import Measure, Reading

MARGIN = 0.1
"""To clear an alarm, the value must be better than the limit by this fraction of the distance to perfect."""
PERFECT = {Measure.AGREEMENT: 1.0, Measure.DRIFT: 0.0, Measure.FLICKER: 0.0, Measure.SILENCE: 0.0}
Key = tuple[Measure, str]


class AlarmError(RcilError):
    """An alarm was raised during a run with --fail-on-alarm."""

    exit_code = 9


@dataclass(frozen=True)
class Limits:
    """Limits beyond which alarms are raised."""

    min_agreement: float = 0.9
    max_drift: float = 0.3
    """Relative change of a class's share, in either direction."""
    max_flicker: float = 0.1
    max_silence: float = float("inf")
    """Seconds without a frame."""
    patience: int = 5
    """Consecutive bad readings that raise an alarm, and good readings that clear it."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_agreement <= 1:
            raise ConfigError(f"the minimum agreement is {self.min_agreement:g}", "Choose a value from 0 to 1.")
        if min(self.max_drift, self.max_flicker, self.max_silence) <= 0:
            raise ConfigError("the limits of drift, flicker and silence must be positive", "Choose limits above 0.")
        if self.patience < 1:
            raise ConfigError(f"the patience is {self.patience}", "Choose 1 or more.")

    def of(self, measure: Measure) -> float:
        """The limit of one measure."""
        return {
            Measure.AGREEMENT: self.min_agreement,
            Measure.DRIFT: self.max_drift,
            Measure.FLICKER: self.max_flicker,
            Measure.SILENCE: self.max_silence,
        }[measure]


@dataclass(frozen=True)
class Change:
    """An alarm that was raised or cleared."""

    measure: Measure
    name: str
    value: float | None
    """None if the alarm was cleared because the model was replaced."""
    limit: float
    raised: bool

    @property
    def text(self) -> str:
        """Message for the user."""
        state = "ALARM  " if self.raised else "cleared"
        of = f" of {self.name}" if self.name else ""
        if self.value is None:
            return f"{state} {self.measure}{of}: the model was replaced"
        unit = " s" if self.measure is Measure.SILENCE else ""
        side = "at least" if self.measure is Measure.AGREEMENT else "at most"
        return f"{state} {self.measure}{of} is {self.value:.3f}{unit}, should be {side} {self.limit:.3f}{unit}"


class Alarms:
    """Compares readings with limits, separately for each measure and class. Thread-safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._streaks: Counter[Key] = Counter()
        self._lock = threading.Lock()
        self.active: frozenset[Key] = frozenset()
        self.raised: dict[Key, int] = {}
        """How often each alarm was raised. Like `active`, it is replaced and never mutated."""

    def judge(self, readings: Iterable[Reading]) -> list[Change]:
        """Return the alarms that these readings raise or clear. Readings that are not firm are ignored."""
        with self._lock:
            return [
                change
                for reading in readings
                if reading.firm and reading.value is not None and (change := self._judge(reading, reading.value))
            ]

    def _judge(self, reading: Reading, value: float) -> Change | None:
        key = (reading.measure, reading.name)
        is_raised = key in self.active
        limit = self._limits.of(reading.measure)
        perfect = PERFECT[reading.measure]
        level = limit + MARGIN * (perfect - limit) if is_raised else limit
        is_bad = abs(value - perfect) > abs(level - perfect)
        self._streaks[key] = self._streaks[key] + 1 if is_bad != is_raised else 0
        if self._streaks[key] < self._limits.patience:
            return None
        self._streaks[key] = 0
        self.active = self.active ^ {key}
        if not is_raised:
            self.raised = self.raised | {key: self.raised.get(key, 0) + 1}
        return Change(*key, value, limit, raised=not is_raised)

    def drop(self) -> list[Change]:
        """Clear all alarms about the model, because it is being replaced."""
        with self._lock:
            ended = sorted(key for key in self.active if key[0] is not Measure.SILENCE)
            self.active = self.active - set(ended)
            for key in [key for key in self._streaks if key[0] is not Measure.SILENCE]:
                del self._streaks[key]
        return [Change(*key, None, self._limits.of(key[0]), raised=False) for key in ended]

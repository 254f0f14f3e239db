"""Alarms with hysteresis: several bad readings raise one, several good readings clear it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rcil.core.errors import ConfigError, RcilError
from rcil_serve.watch.meters import Measure, Reading
from rcil_serve.watch.rules import Rule

MARGIN = 0.1
"""To clear an alarm, the value must be better than the limit by this fraction of the distance to perfect."""
PERFECT = {Measure.AGREEMENT: 1.0, Measure.DRIFT: 0.0, Measure.FLICKER: 0.0, Measure.SILENCE: 0.0}
ABOUT_SCENE = (Measure.SILENCE, Measure.COVERAGE)
"""Measures whose alarms outlive a model that is replaced."""
TOLERANCE = 1e-6
"""Seconds by which sums of frame times may be off."""
Key = tuple[Measure, str]


class AlarmError(RcilError):
    """An alarm was raised during a run with --fail-on-alarm."""

    exit_code = 9


@dataclass(frozen=True)
class Limit:
    """When one alarm is raised and cleared."""

    value: float
    perfect: float
    """The best value; the limit is passed by values that are further away from it."""
    patience: int
    """Consecutive readings that raise or clear the alarm."""
    seconds: float = 0.0
    """Time in the source that these readings must span."""


@dataclass
class _Streak:
    """Consecutive readings that contradict the state of an alarm."""

    count: int = 0
    since: float = 0.0
    """Time of the first of them in the source."""


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

    def of(self, measure: Measure) -> Limit:
        """The limit of one measure."""
        values = {
            Measure.AGREEMENT: self.min_agreement,
            Measure.DRIFT: self.max_drift,
            Measure.FLICKER: self.max_flicker,
            Measure.SILENCE: self.max_silence,
        }
        return Limit(values[measure], PERFECT[measure], self.patience)


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
        if self.measure is Measure.COVERAGE and self.value is not None:
            return f"{state} {self.name}: {100 * self.value:.1f} %"
        of = f" of {self.name}" if self.name else ""
        if self.value is None:
            return f"{state} {self.measure}{of}: the model was replaced"
        unit = " s" if self.measure is Measure.SILENCE else ""
        side = "at least" if self.measure is Measure.AGREEMENT else "at most"
        return f"{state} {self.measure}{of} is {self.value:.3f}{unit}, should be {side} {self.limit:.3f}{unit}"


class Alarms:
    """Compares readings with limits, separately for each measure and class, and for each rule. Thread-safe.

    Args:
        limits: Limits of the measures.
        rules: Rules about zones; their readings have their texts as names.
    """

    def __init__(self, limits: Limits, rules: Sequence[Rule] = ()) -> None:
        self._limits = limits
        self._rules = {rule.text: Limit(rule.limit, 0.0 if rule.above else 1.0, 1, rule.seconds) for rule in rules}
        self._streaks: dict[Key, _Streak] = {}
        self._lock = threading.Lock()
        self.active: frozenset[Key] = frozenset()
        self.raised: dict[Key, int] = {}
        """How often each alarm was raised. Like `active`, it is replaced and never mutated."""

    def judge(self, readings: Iterable[Reading], time: float = 0.0) -> list[Change]:
        """Return the alarms that these readings raise or clear. Readings that are not firm are ignored.

        Args:
            readings: The readings of one moment.
            time: That moment in the source, in seconds.
        """
        with self._lock:
            return [
                change
                for reading in readings
                if reading.firm and reading.value is not None and (change := self._judge(reading, reading.value, time))
            ]

    def _judge(self, reading: Reading, value: float, time: float) -> Change | None:
        key = (reading.measure, reading.name)
        is_raised = key in self.active
        limit = self._limit_of(key)
        level = limit.value + MARGIN * (limit.perfect - limit.value) if is_raised else limit.value
        is_bad = abs(value - limit.perfect) > abs(level - limit.perfect)
        if is_bad == is_raised:
            self._streaks.pop(key, None)
            return None
        streak = self._streaks.setdefault(key, _Streak(since=time))
        streak.count += 1
        if streak.count < limit.patience or time - streak.since < limit.seconds - TOLERANCE:
            return None
        del self._streaks[key]
        self.active = self.active ^ {key}
        if not is_raised:
            self.raised = self.raised | {key: self.raised.get(key, 0) + 1}
        return Change(*key, value, limit.value, raised=not is_raised)

    def _limit_of(self, key: Key) -> Limit:
        return self._rules[key[1]] if key[0] is Measure.COVERAGE else self._limits.of(key[0])

    def drop(self) -> list[Change]:
        """Clear all alarms about the model, because it is being replaced."""
        with self._lock:
            ended = sorted(key for key in self.active if key[0] not in ABOUT_SCENE)
            self.active = self.active - set(ended)
            for key in [key for key in self._streaks if key[0] not in ABOUT_SCENE]:
                del self._streaks[key]
        return [Change(*key, None, self._limit_of(key).value, raised=False) for key in ended]

"""The sink of a watch: measures every frame, compares every Nth, raises alarms and promotes a new step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rcil.core.errors import ConfigError
from rcil.model.class_match import match_classes
from rcil_serve.live.pictures import Pictures
from rcil_serve.live.view import LiveView
from rcil_serve.runtime.painter import shares
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.stream.frames import Sound
from rcil_serve.stream.pipeline import SegmentedFrame
from rcil_serve.watch.alarms import Alarms, Change
from rcil_serve.watch.events import Event, EventLog
from rcil_serve.watch.meters import AgreementMeter, DriftMeter, FlickerMeter, Measure, Reading
from rcil_serve.watch.rules import Rule, coverage
from rcil_serve.watch.shadow import Shadow
from rcil_serve.watch.shares import History, Reference
from rcil_serve.watch.swappable_predictor import SwappablePredictor


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


@dataclass(frozen=True)
class WatchSettings:
    """How frames are measured."""

    every: int = 10
    """The other models run, and alarms are judged, on every Nth frame."""
    window: float = 60.0
    """Length of the measuring window in seconds."""
    min_share: float = 0.001
    """Minimum share of the image that a class must cover to be judged."""
    still: float = 8.0
    """Grey levels up to which a pixel counts as still."""

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"--every is {self.every}", "Choose 1 or more.")
        if self.window <= 0:
            raise ConfigError(f"the window is {self.window:g} s long", "Choose a longer --window.")
        if not 0 <= self.min_share <= 1:
            raise ConfigError(f"the minimum share is {self.min_share:g}", "Choose a --min-share from 0 to 1.")


class Watcher:
    """A sink for `run_pipeline`.

    Args:
        predictor: Runs the current model in the pipeline.
        current: The watched model.
        previous: The previous step; if None, agreement is not measured.
        shadow: The new step that may be promoted.
        settings: How frames are measured.
        reference: Class shares to compare with.
        alarms: Compares readings with limits.
        log: Receives the events.
        history: Class shares over time; None if no plot is requested.
        rules: Rules about zones, judged on every frame.
        pictures: Makes the pictures of alarms; None if nobody receives them.
        view: Shows every frame; None if nobody can look.
        clock: Monotonic clock in seconds, to measure silence.
    """

    def __init__(
        self,
        predictor: SwappablePredictor,
        current: Predictor,
        previous: Predictor | None,
        shadow: Shadow | None,
        settings: WatchSettings,
        reference: Reference,
        alarms: Alarms,
        log: EventLog,
        history: History | None,
        rules: Sequence[Rule] = (),
        pictures: Pictures | None = None,
        view: LiveView | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._predictor, self._shadow, self._settings = predictor, shadow, settings
        self._reference, self._alarms, self._log, self._history = reference, alarms, log, history
        self._rules, self._pictures, self._view = {rule.text: rule for rule in rules}, pictures, view
        self._coverage: list[Reading] = []
        self._clock, self._heard, self._busy = clock, clock(), False
        self._frames = self._compared = self._promotions = 0
        self.time = 0.0
        """Time of the last frame in the source, in seconds."""
        self._watch(current, previous)

    def _watch(self, current: Predictor, previous: Predictor | None) -> None:
        """Start to measure a model."""
        window, min_share = self._settings.window, self._settings.min_share
        self._current, self._previous = current, previous
        self._agreement: AgreementMeter | None = None
        if previous is not None:
            self._agreement = AgreementMeter(match_classes(previous.classes, current.classes), window, min_share)
        self._flicker = FlickerMeter(current.classes, window, min_share, self._settings.still)
        self._drift = DriftMeter(current.classes, self._reference, window, min_share)
        self._readings: list[Reading] = []

    def write(self, seen: SegmentedFrame) -> None:
        """See `Sink.write`."""
        self._busy = True
        try:
            self._measure(seen)
        finally:
            self._heard, self._busy = self._clock(), False

    def _measure(self, seen: SegmentedFrame) -> None:
        maker = self._predictor.maker()
        mask, self.time = seen.found.mask, seen.frame.time
        parts = shares(mask, len(maker.classes))
        if self._history is not None:
            self._history.add(self.time, maker.classes, parts)
        if self._view is not None:
            self._view.publish(seen, maker.classes)
        self._check_rules(seen, maker)
        if maker is not self._current:
            return  # it was queued when the model was replaced
        self._drift.add(self.time, parts)
        self._flicker.add(self.time, seen.frame.pixels, mask)
        if self._frames % self._settings.every == 0:
            self._compare(seen)
        self._frames += 1

    def write_sound(self, sound: Sound) -> None:
        """See `Sink.write_sound`."""

    def _check_rules(self, seen: SegmentedFrame, maker: Predictor) -> None:
        self._coverage = coverage(tuple(self._rules.values()), maker.classes, seen.found.mask)
        self._log_changes(self._alarms.judge(self._coverage, self.time), seen, maker)

    def _compare(self, seen: SegmentedFrame) -> None:
        if self._previous is not None and self._agreement is not None:
            previous = self._previous.segment(seen.frame.picture)
            self._agreement.add(self.time, previous.mask, seen.found.mask)
            self._compared += 1
        meters = (self._agreement, self._drift, self._flicker)
        self._readings = [reading for meter in meters if meter is not None for reading in meter.readings()]
        self._log_changes(self._alarms.judge(self._readings), seen, self._current)
        if self._shadow is not None and self._shadow.compare(seen.frame, seen.found.mask):
            self._promote(self._shadow.predictor)

    def _promote(self, new: Predictor) -> None:
        """Watch the new step from now on, compared with the one that it replaced."""
        self._log_changes(self._alarms.drop())
        self._mark("promoted")
        self._promotions += 1
        self._reference.restart()
        self._predictor.replace(new)
        if self._view is not None:
            self._view.backend = new.backend
        if self._previous is not None:
            self._previous.backend.close()
        self._watch(new, self._current)

    def check_silence(self) -> None:
        """Judge how long no frame has arrived. Call it often, from any thread, for live sources.

        Processing a frame does not count as silence however long it takes, because others may be queued behind it.
        """
        quiet = 0.0 if self._busy else self._clock() - self._heard
        self._log_changes(self._alarms.judge([Reading(Measure.SILENCE, "", quiet)]))

    def _log_changes(
        self, changes: list[Change], seen: SegmentedFrame | None = None, maker: Predictor | None = None
    ) -> None:
        """Log alarms; `seen` is the frame that caused them, if any, and `maker` the model that segmented it."""
        picture = None
        if changes and seen is not None and maker is not None and self._pictures is not None:
            picture = self._pictures.jpeg(seen.frame.pixels, seen.found, maker.classes)
        for change in changes:
            facts = {
                "measure": change.measure,
                "class": change.name,
                "value": None if change.value is None else round(change.value, 6),
                "threshold": change.limit,
            }
            if (rule := self._rules.get(change.name)) is not None:
                facts |= {"class": rule.name, "zone": rule.zone.name, "rule": rule.text}
            kind = "raised" if change.raised else "cleared"
            self._log.add(Event(kind, self.time, change.text, facts, snapshot=picture))
            if change.raised:
                self._mark("alarm")

    def _mark(self, text: str) -> None:
        if self._history is not None:
            self._history.mark(self.time, text)

    def status(self) -> WatchStatus:
        """Current status; may be called from any thread."""
        shadow = self._shadow
        trial = shadow.trial if shadow is not None and shadow.alive else None
        return WatchStatus(
            step=self._current.backend.metadata.step,
            sha256=self._current.backend.sha256,
            frames=self._frames,
            compared=self._compared,
            readings=(*self._readings, *self._coverage),
            active=self._alarms.active,
            raised=self._alarms.raised,
            shadow_frames=0 if shadow is None else shadow.compared,
            shadow_round=0 if trial is None else trial.frames,
            shadow_agreement={} if trial is None else trial.agreement(),
            promotions=self._promotions,
        )

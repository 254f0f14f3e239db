"""Runs the watched models on a source, raises alarms and writes the receipt."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rcil.core.errors import ConfigError, RcilError
from rcil.core.files import working_in
from rcil.core.log import Notify
from rcil.model.class_match import match_classes
from rcil_serve.live.pictures import Pictures
from rcil_serve.live.server import ViewOptions, serving
from rcil_serve.live.view import LiveView
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.runtime.zones import Zone
from rcil_serve.stream.frames import OutputError, Stages
from rcil_serve.stream.options import StreamOptions
from rcil_serve.stream.output_checks import check_no_overwrite
from rcil_serve.stream.outputs.receipt import Receipt, Status, describe_model
from rcil_serve.stream.pipeline import run_pipeline
from rcil_serve.stream.shutdown import brief_message
from rcil_serve.stream.sources import Source
from rcil_serve.watch.alarms import Alarms, Limits
from rcil_serve.watch.events import Event, EventLog
from rcil_serve.watch.meters import Measure
from rcil_serve.watch.metrics import HOST, WatchCollector, metrics_server
from rcil_serve.watch.promotion import Promotion
from rcil_serve.watch.rules import Rule, check_classes
from rcil_serve.watch.shadow import Shadow, rejection_reason, shadow_failed
from rcil_serve.watch.shares import Baseline, History, Reference, read_baseline, write_baseline
from rcil_serve.watch.swappable_predictor import SwappablePredictor
from rcil_serve.watch.trial import TrialRule
from rcil_serve.watch.watcher import Watcher, WatchSettings
from rcil_serve.watch.webhook import Webhook, WebhookOptions


@dataclass(frozen=True)
class WatchRequest(StreamOptions):
    """What `rcil-serve watch` is asked to do."""

    source: str
    model: Path
    receipt: Path
    previous: Path | None = None
    shadow: Path | None = None
    settings: WatchSettings = field(default_factory=WatchSettings)
    limits: Limits = field(default_factory=Limits)
    rule: TrialRule = field(default_factory=TrialRule)
    promotion: Promotion = field(default_factory=Promotion)
    baseline_seconds: float = 60.0
    baseline: Path | None = None
    """Baseline file to compare with, instead of the first seconds."""
    save_baseline: Path | None = None
    events: Path | None = None
    timeline: Path | None = None
    metrics_port: int | None = None
    zones: tuple[Zone, ...] = ()
    rules: tuple[Rule, ...] = ()
    webhook: WebhookOptions | None = None
    """Receiver of the events."""
    view: ViewOptions | None = None
    """Where the live view is served."""

    def __post_init__(self) -> None:
        if self.baseline_seconds <= 0:
            raise ConfigError(f"the baseline is {self.baseline_seconds:g} s long", "Choose a longer --baseline.")
        if self.shadow is None:
            if self.promotion.link is not None or self.promotion.command:
                raise ConfigError("there is no model to promote", "Name the new step with --shadow.")
            return
        if not self.shadow.exists():
            raise ConfigError(f"{self.shadow} does not exist", "Check the path of --shadow.")
        self.promotion.check(self.shadow)

    def outputs(self) -> dict[str, Path]:
        """Files to write, by name."""
        named = {"events": self.events, "timeline": self.timeline, "baseline": self.save_baseline}
        return {name: path for name, path in named.items() if path is not None}

    def as_document(self) -> dict[str, Any]:
        """The options as JSON-ready values, without the command, which may contain a password."""
        return {
            **asdict(self.settings),
            "min_agreement": self.limits.min_agreement,
            "max_drift": _finite(self.limits.max_drift),
            "max_flicker": _finite(self.limits.max_flicker),
            "quiet_after": _finite(self.limits.max_silence),
            "patience": self.limits.patience,
            "baseline": self.baseline_seconds if self.baseline is None else str(self.baseline),
            "promote_after": self.rule.frames,
            "promote_agreement": self.rule.agreement,
            "promote_needs_new": self.rule.needs_new,
            "promote_link": None if self.promotion.link is None else str(self.promotion.link),
            "zones": {zone.name: zone.corners for zone in self.zones},
            "rules": [rule.text for rule in self.rules],
            "webhook": None if self.webhook is None else self.webhook.receiver,
            **super().as_document(),
        }


def _finite(value: float) -> float | None:
    """Return None for infinity, which JSON cannot represent."""
    return value if value < float("inf") else None


@dataclass(frozen=True)
class Models:
    """The models of a run."""

    current: Predictor
    previous: Predictor | None
    shadow: Predictor | None


def run_watch(
    request: WatchRequest,
    on_event: Callable[[Event], None] = lambda event: None,
    on_metrics_started: Callable[[str], None] = lambda address: None,
    notify: Notify = lambda text: None,
) -> dict[str, Any]:
    """Watch a source until it ends.

    Once models and source are open, the receipt records how the run ended, even after an error.

    Args:
        request: The request.
        on_event: Called with every event, from several threads but one at a time.
        on_metrics_started: Called with the address of the metrics, if they are served.
        notify: Called with one line for each notice.

    Returns:
        The receipt.
    """
    models = [path for path in (request.model, request.previous, request.shadow) if path is not None]
    check_no_overwrite(request.source, models, {**request.outputs(), "receipt": request.receipt})
    with contextlib.ExitStack() as stack:
        webhook = None
        if request.webhook is not None:
            stack.enter_context(working_in(request.webhook.outbox))
            webhook = stack.enter_context(contextlib.closing(Webhook(request.webhook, notify=notify)))
        shown = _ShownEvents()
        keepers = [shown.add] if webhook is None else [webhook.add, shown.add]
        log = stack.enter_context(contextlib.closing(EventLog(request.events, on_event, keepers)))
        known = None if request.baseline is None else read_baseline(request.baseline).shares
        opened = _open_models(request, log, stack)
        source = stack.enter_context(contextlib.closing(request.open_source(request.source, with_sound=False)))
        stack.enter_context(working_in(request.receipt))
        reference = Reference(request.baseline_seconds, known)
        run = stack.enter_context(contextlib.closing(_Run(request, source, opened, reference, log)))
        if request.metrics_port is not None:
            collector = WatchCollector(run.watcher.status, source.counts, webhook)
            port = stack.enter_context(metrics_server(request.metrics_port, collector))
            on_metrics_started(f"http://{HOST}:{port}/metrics")
        if request.view is not None and run.view is not None:
            shown.view = run.view
            stack.enter_context(serving(run.view, request.view, notify))
        return run.run()


class _ShownEvents:
    """Passes events on to a live view, once there is one."""

    view: LiveView | None = None

    def add(self, event: Event) -> None:
        if self.view is not None:
            self.view.add_event(event.kind, event.at.isoformat(timespec="seconds"), event.time, event.text)


def _open_models(request: WatchRequest, log: EventLog, stack: contextlib.ExitStack) -> Models:
    def opened(path: Path) -> Predictor:
        backend = stack.enter_context(contextlib.closing(request.open_backend(path)))
        return Predictor(backend, request.layout)

    current = opened(request.model)
    check_classes(request.rules, current.classes)
    previous = None if request.previous is None else opened(request.previous)
    if previous is not None:
        match_classes(previous.classes, current.classes)
    shadow = None
    if request.shadow is not None:
        try:
            shadow = opened(request.shadow)
            if reason := rejection_reason(current, shadow):
                shadow.backend.close()
                raise RcilError(reason)
        except Exception as error:  # a failing new step must not disturb the current one
            shadow = None
            log.add(shadow_failed(request.shadow, error))
    return Models(current, previous, shadow)


class _Run:
    """One run, from the open source to the final receipt."""

    def __init__(
        self, request: WatchRequest, source: Source, models: Models, reference: Reference, log: EventLog
    ) -> None:
        self._request, self._source, self._models = request, source, models
        self._reference, self._log = reference, log
        self._stages = Stages()
        later = models.shadow.classes if models.shadow else ()
        self._history = History(models.current.classes, later, source.counts) if request.timeline else None
        self._predictor, self._shadow = SwappablePredictor(models.current), None
        if models.shadow is not None and request.shadow is not None:
            self._shadow = Shadow(request.shadow, models.shadow, models.current, request.rule, request.promotion, log)
        pictures = Pictures(request.zones)
        self.view: LiveView | None = None
        if request.view is not None:
            self.view = LiveView(source, models.current.backend, pictures, self._standing, watching=True)
        self.watcher = Watcher(
            self._predictor,
            models.current,
            models.previous,
            self._shadow,
            request.settings,
            reference,
            Alarms(request.limits, request.rules),
            log,
            self._history,
            request.rules,
            None if request.webhook is None else pictures,
            self.view,
        )
        self._receipt = Receipt(
            request.receipt,
            models.current.backend,
            source,
            request.source,
            request.as_document() | _described(models),
            self._stages,
            request.outputs(),
            extra=lambda: {"watch": self.watcher.status().as_document()},
        )

    def run(self) -> dict[str, Any]:
        """See `run_watch`."""
        try:
            self._receipt.write("running")
            self._log.add(_began(self._source, self._models))
            finished = run_pipeline(self._source, self._predictor, self.watcher, self._stages, self._tick)
            self._receipt.check_frames()
            self._finish()
            status: Status = "done" if finished else "interrupted"
            self._log.add(self._ended(status))
        except BaseException as error:
            with contextlib.suppress(RcilError, OSError):  # the disk may be full, or standard output closed
                self._log.add(self._ended("failed", error))
            raise self._receipt.failed(error) from error
        return self._receipt.write(status)

    def close(self) -> None:
        """Stop the threads of this run."""
        if self._shadow is not None:
            self._shadow.close()

    def _finish(self) -> None:
        request, reference = self._request, self._reference
        if request.timeline is not None and self._history is not None:
            self._history.draw(request.timeline, self._source.info.name)
        if request.save_baseline is not None:
            if not reference.frames:
                raise OutputError(
                    "no frames are left for a baseline after the promotion", "Save a baseline without --shadow."
                )
            baseline = Baseline(
                source=self._source.info.name,
                seconds=reference.length,
                frames=reference.frames,
                shares=reference.gathered,
            )
            write_baseline(request.save_baseline, baseline)

    def _standing(self) -> list[str]:
        """The alarms that stand, as texts."""
        active = sorted(self.watcher.status().active)
        return [name if key is Measure.COVERAGE else f"{key} of {name}".removesuffix(" of ") for key, name in active]

    def _tick(self) -> None:
        if self._source.info.live:
            self.watcher.check_silence()
        self._receipt.tick()

    def _ended(self, status: Status, error: BaseException | None = None) -> Event:
        now = self.watcher.status()
        why = None if error is None else brief_message(error)
        raised = sum(now.raised.values())
        text = f"{status}: {now.frames} frames, {raised} alarms{f'; {why}' if why else ''}"
        return Event("ended", self.watcher.time, text, {"status": status, "error": why, **now.as_document()})


def _described(models: Models) -> dict[str, Any]:
    """Descriptions of the previous and the shadow model, for the receipt."""
    others = {"previous": models.previous, "shadow": models.shadow}
    return {name: None if model is None else describe_model(model.backend) for name, model in others.items()}


def _began(source: Source, models: Models) -> Event:
    current, previous = models.current, models.previous
    old = () if previous is None else match_classes(previous.classes, current.classes).names
    against = "" if previous is None else f" against step {previous.backend.metadata.step} on {', '.join(old)}"
    text = f"watching {source.info.name}: step {current.backend.metadata.step}{against}"
    if current.scale != 1:
        text += f", images at scale {current.scale:g}"
    if models.shadow is not None:
        text += f"; step {models.shadow.backend.metadata.step} is being tested"
    facts = {"source": source.info.name, "model": describe_model(current.backend), "old_classes": list(old)}
    return Event("began", 0.0, text, facts | _described(models))

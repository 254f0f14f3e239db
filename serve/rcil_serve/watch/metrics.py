"""Prometheus metrics of a watch; each run has its own registry."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rcil.core.errors import ConfigError
from rcil_serve.stream.frames import Counts
from rcil_serve.watch.meters import Measure
from rcil_serve.watch.watcher import WatchStatus
from rcil_serve.watch.webhook import Webhook

HOST = "127.0.0.1"
HELP = {
    Measure.AGREEMENT: "IoU of an old class between the previous step and the watched one.",
    Measure.DRIFT: "Relative change of a class's share against the reference.",
    Measure.FLICKER: "Share of a class that flickers where the image is still.",
    Measure.COVERAGE: "Share of a zone that a class covers, by rule.",
}


class WatchCollector:
    """Reads the status at each scrape, so no labels of a former model remain.

    Args:
        status: Returns the current status.
        counts: Frame counts of the source.
        webhook: Delivers events; None if there is no receiver.
    """

    def __init__(self, status: Callable[[], WatchStatus], counts: Counts, webhook: Webhook | None = None) -> None:
        self._status, self._counts, self._webhook = status, counts, webhook

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client's `Collector`."""
        now = self._status()
        yield from _measures(now)
        yield from _alarms(now)
        for name, text, value in (
            ("frames", "Frames that were measured.", now.frames),
            ("compared_frames", "Frames that the previous step also processed.", now.compared),
            ("shadow_frames", "Frames that the new step also processed.", now.shadow_frames),
            ("dropped_frames", "Frames of a live source that were dropped.", self._counts.dropped),
            ("reconnects", "Reconnections of a live source.", self._counts.reconnects),
            ("promotions", "New steps that were promoted.", now.promotions),
        ):
            yield CounterMetricFamily(f"rcil_watch_{name}", text, value=value)
        yield GaugeMetricFamily("rcil_watch_model_step", "Continual step of the watched model.", now.step)
        if self._webhook is not None:
            delivered, waiting = self._webhook.delivered, self._webhook.waiting
            yield CounterMetricFamily("rcil_watch_events_delivered", "Events that the receiver accepted.", delivered)
            yield GaugeMetricFamily("rcil_watch_events_waiting", "Events that wait for the receiver.", waiting)


def _measures(now: WatchStatus) -> Iterator[Metric]:
    families = {
        measure: GaugeMetricFamily(
            f"rcil_watch_{measure}", text, labels=["rule" if measure is Measure.COVERAGE else "class"]
        )
        for measure, text in HELP.items()
    }
    for reading in now.readings:
        if reading.value is not None and reading.measure in families:
            families[reading.measure].add_metric([reading.name], reading.value)
    yield from families.values()
    shadow = GaugeMetricFamily(
        "rcil_watch_shadow_agreement", "IoU of an old class between the watched step and the new one.", labels=["class"]
    )
    for name, value in now.shadow_agreement.items():
        shadow.add_metric([name], value)
    yield shadow


def _alarms(now: WatchStatus) -> Iterator[Metric]:
    labels = ["measure", "class"]
    active = GaugeMetricFamily("rcil_watch_alarm", "1 while an alarm is active.", labels=labels)
    raised = CounterMetricFamily("rcil_watch_alarms", "Number of times an alarm was raised.", labels=labels)
    keys = {(reading.measure, reading.name) for reading in now.readings} | now.active | set(now.raised)
    for key in sorted(keys):
        active.add_metric([key[0].value, key[1]], float(key in now.active))
        raised.add_metric([key[0].value, key[1]], float(now.raised.get(key, 0)))
    yield active
    yield raised


@contextlib.contextmanager
def metrics_server(port: int, collector: WatchCollector) -> Iterator[int]:
    """Serve metrics on the loopback interface during the block; yields the port, a free one if `port` is 0."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(port, HOST, registry)
    except OSError as error:
        raise ConfigError(
            f"cannot serve metrics at {HOST}:{port}: {error.strerror}", "Choose another --metrics-port."
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

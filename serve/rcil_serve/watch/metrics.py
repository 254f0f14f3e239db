"""What Prometheus reads from a watch; every watch has a registry of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rcil.core.errors import ConfigError
from rcil_serve.stream.frames import Counts
from rcil_serve.watch.measures.meters import Measure
from rcil_serve.watch.status import Standing

HOST = "127.0.0.1"
HELP = {
    Measure.AGREEMENT: "IoU of an old class between the previous step and the watched one.",
    Measure.DRIFT: "Relative change of a class's share against the reference.",
    Measure.FLICKER: "Share of a class that comes and goes where the picture stands still.",
}


class WatchCollector:
    """Reads the standing when asked, so that no label of a former model stays behind.

    Args:
        standing: Gives the present one.
        counts: Of the source.
    """

    def __init__(self, standing: Callable[[], Standing], counts: Counts) -> None:
        self._standing, self._counts = standing, counts

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client's `Collector`."""
        now = self._standing()
        yield from _measures(now)
        yield from _alarms(now)
        for name, text, value in (
            ("frames", "Frames that were measured.", now.frames),
            ("compared_frames", "Frames that the previous step saw too.", now.compared),
            ("shadow_frames", "Frames that the new step saw too.", now.shadow_frames),
            ("dropped_frames", "Frames of a live source that were overtaken.", self._counts.dropped),
            ("reconnects", "Times that a live source came back.", self._counts.reconnects),
            ("promotions", "New steps that took over.", now.promotions),
        ):
            yield CounterMetricFamily(f"rcil_watch_{name}", text, value=value)
        yield GaugeMetricFamily("rcil_watch_model_step", "Continual step of the model that is watched.", now.step)


def _measures(now: Standing) -> Iterator[Metric]:
    families = {
        measure: GaugeMetricFamily(f"rcil_watch_{measure}", text, labels=["class"]) for measure, text in HELP.items()
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


def _alarms(now: Standing) -> Iterator[Metric]:
    labels = ["measure", "class"]
    active = GaugeMetricFamily("rcil_watch_alarm", "1 while an alarm stands.", labels=labels)
    raised = CounterMetricFamily("rcil_watch_alarms", "Alarms that were raised.", labels=labels)
    keys = {(reading.measure, reading.name) for reading in now.readings} | now.active | set(now.raised)
    for key in sorted(keys):
        active.add_metric([key[0].value, key[1]], float(key in now.active))
        raised.add_metric([key[0].value, key[1]], float(now.raised.get(key, 0)))
    yield active
    yield raised


@contextlib.contextmanager
def metrics_server(port: int, collector: WatchCollector) -> Iterator[int]:
    """Serve metrics on this machine while the block runs; gives the port, which is a free one for 0."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(port, HOST, registry)
    except OSError as error:
        raise ConfigError(
            f"metrics cannot be served at {HOST}:{port}: {error.strerror}", "Choose another --metrics-port."
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

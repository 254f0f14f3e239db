"""Prometheus metrics at `/metrics`; each application has its own registry."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rcil_serve.http.batching import BatchingBackend
from rcil_serve.http.models import Model, Models
from rcil_serve.http.workers import Workers

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
AVERAGED_IMAGES = 100
"""Number of images over which class shares are averaged."""


class Metrics:
    """Counts requests, durations and reloads, and reads the models at each scrape."""

    def __init__(self, models: Models, workers: Workers) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "rcil_requests", "Requests by route and status.", ("route", "status"), registry=self.registry
        )
        self._stages = Histogram(
            "rcil_stage_seconds",
            "Duration of answered requests by stage.",
            ("stage",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._reloads = Counter("rcil_reloads", "Reloads by result.", ("result",), registry=self.registry)
        for result in ("done", "refused", "failed", "untrusted"):
            self._reloads.labels(result)
        Gauge("rcil_queue_length", "Requests that are read, waiting or running.", registry=self.registry).set_function(
            lambda: workers.in_use
        )
        Gauge("rcil_queue_places", "Limit of concurrent requests.", registry=self.registry).set(workers.capacity)
        ProcessCollector(registry=self.registry)
        self.registry.register(_ModelCollector(models))
        self._shares = _ShareCollector()
        self.registry.register(self._shares)

    def request(self, route: str, status: int) -> None:
        """Count a response."""
        self._requests.labels(route, str(status)).inc()

    def stages(self, seconds: Mapping[str, float]) -> None:
        """Record the durations of a request by stage."""
        for stage, value in seconds.items():
            self._stages.labels(stage).observe(value)

    def reload(self, result: str) -> None:
        """Count a reload: `done`, `refused`, `failed`, or `untrusted` if the signature does not verify."""
        self._reloads.labels(result).inc()

    def shares(self, model: Model, shares: NDArray[np.float64]) -> None:
        """Record the share of the pixels of one image that each class row covers."""
        self._shares.add(model, shares)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class _ModelCollector:
    """Reads the current model at each scrape, so no labels of a former model remain."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        model = self._models.current
        labels = {"step": model.version, "sha256": model.backend.sha256, "device": model.backend.device}
        info = GaugeMetricFamily("rcil_model_info", "The current model.", labels=list(labels))
        info.add_metric(list(labels.values()), 1)
        yield info
        yield GaugeMetricFamily("rcil_model_step", "Continual step of the current model.", value=model.step)
        if isinstance(model.backend, BatchingBackend):
            yield CounterMetricFamily("rcil_batches", "Batches that the current model ran.", model.backend.runs)
            yield CounterMetricFamily("rcil_batched_images", "Images in these batches.", model.backend.images)


class _ShareCollector:
    """Mean share of every class over the last images; restarts with a new model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sha256 = ""
        self._names: list[str] = []
        self._last: deque[NDArray[np.float64]] = deque(maxlen=AVERAGED_IMAGES)

    def add(self, model: Model, shares: NDArray[np.float64]) -> None:
        with self._lock:
            if model.backend.sha256 != self._sha256:
                self._sha256 = model.backend.sha256
                self._names = [c.name for c in model.classes]
                self._last.clear()
            self._last.append(shares)

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "rcil_class_share", f"Mean share of pixels in the last {AVERAGED_IMAGES} images.", labels=["class"]
        )
        with self._lock:
            means = np.mean(self._last, axis=0) if self._last else ()
            for name, share in zip(self._names, means, strict=True) if len(means) else ():
                family.add_metric([name], float(share))
        yield family

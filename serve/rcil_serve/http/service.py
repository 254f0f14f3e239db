"""The state that all routes share, and how a request is processed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from rcil.core.images import Image
from rcil_serve.http.metrics import Metrics
from rcil_serve.http.models import Model, Models
from rcil_serve.http.options import HttpOptions
from rcil_serve.http.protocol.body import Body, decompressed, read_body
from rcil_serve.http.reload import Reloader
from rcil_serve.http.workers import Workers
from rcil_serve.runtime.backends import Mask
from rcil_serve.runtime.painter import shares


class Stopwatch:
    """Measures the stages of a request."""

    def __init__(self) -> None:
        self.start = self._last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """Add the time since the last lap to `stage`."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now

    @property
    def passed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    def header(self) -> str:
        """Value of the `Server-Timing` header, which browsers display."""
        return ", ".join(f"{stage};dur={1000 * seconds:.2f}" for stage, seconds in self.seconds.items())


@dataclass(frozen=True)
class Service:
    """The components of one server."""

    options: HttpOptions
    models: Models
    workers: Workers
    metrics: Metrics
    reloader: Reloader

    async def answer(self, request: Request, work: Callable[[Body, Stopwatch], Response]) -> Response:
        """Read the body, wait for a worker and run the work, all within the limits.

        Args:
            request: The request; its body was not read yet.
            work: Creates the response from the body, in a worker thread, and records its stages.
        """
        watch, limits = Stopwatch(), self.options
        encoding = request.headers.get("content-encoding", "")
        with self.workers.slot() as slot:
            body = await read_body(request, limits.max_bytes, limits.timeout)
            watch.lap("read")

            def run() -> Response:
                watch.lap("wait")
                return work(decompressed(body, encoding, limits.max_bytes), watch)

            response = await slot.run(run, limits.timeout - watch.passed)
        self.metrics.stages(watch.seconds)
        response.headers["Server-Timing"] = watch.header()
        return response

    def record(self, model: Model, image: Image | None, masks: list[Mask]) -> None:
        """Record a result for the metrics, and its image for the comparison at the next reload.

        Args:
            model: The model that was used.
            image: RGB [H, W, 3]; None if only its normalised form is known.
            masks: Class rows [H, W].
        """
        if image is not None:
            self.models.last_image = image
        if model is self.models.current:
            for mask in masks:
                self.metrics.shares(model, shares(mask, len(model.classes)))


def _service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(_service_of)]
"""Type of the route parameter that receives the service."""

"""What the routes share: the models, the workers and the way of a request through them."""

from __future__ import annotations

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
from rcil_serve.http.protocol.body import Body, read_body, unpacked
from rcil_serve.http.reload import Reloader
from rcil_serve.http.stopwatch import Stopwatch
from rcil_serve.http.workers import Workers
from rcil_serve.runtime.backends.protocol import Mask
from rcil_serve.runtime.painter import shares


@dataclass(frozen=True)
class Service:
    """The parts of one server."""

    options: HttpOptions
    models: Models
    workers: Workers
    metrics: Metrics
    reloader: Reloader

    async def answer(self, request: Request, work: Callable[[Body, Stopwatch], Response]) -> Response:
        """Read the body, wait for a worker and let it do the work, all within the limits.

        Args:
            request: Whose body is not read yet.
            work: Makes the answer of the body; runs in a worker's thread, and ends the stages it goes through.
        """
        watch, limits = Stopwatch(), self.options
        encoding = request.headers.get("content-encoding", "")
        with self.workers.place() as place:
            body = await read_body(request, limits.max_bytes, limits.timeout_s)
            watch.lap("read")

            def run() -> Response:
                watch.lap("wait")
                return work(unpacked(body, encoding, limits.max_bytes), watch)

            response = await place.run(run, limits.timeout_s - watch.passed)
        self.metrics.stages(watch.seconds)
        response.headers["Server-Timing"] = watch.header()
        return response

    def note(self, model: Model, image: Image | None, masks: list[Mask]) -> None:
        """Remember what was seen: for the metrics, and to compare models on at a reload.

        Args:
            model: That saw it.
            image: RGB [H, W, 3]; None where only its normalised form is known.
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
"""A parameter of routes."""

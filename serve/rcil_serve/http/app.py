"""The FastAPI application with its routes, middleware and error handlers."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from rcil.core.errors import RcilError
from rcil_serve.http.batching import BatchingBackend, batched
from rcil_serve.http.metrics import Metrics
from rcil_serve.http.middleware import AccessLog, BodyDrain, TokenCheck
from rcil_serve.http.models import Model, Models
from rcil_serve.http.options import HttpOptions
from rcil_serve.http.protocol.answers import RefusalError, message_with_hint
from rcil_serve.http.reload import Opener, Reloader, open_model
from rcil_serve.http.routes import page, segment, v2
from rcil_serve.http.service import Service
from rcil_serve.http.workers import Workers
from rcil_serve.runtime.backends import Backend, open_backend

log = logging.getLogger(__name__)
PUBLIC = frozenset({"/v2/health/live", "/v2/health/ready", *page.PARTS})
"""Paths that need no token."""
MAX_WORKERS = 16
"""Limit of the default number of workers, because each may hold a request in memory."""


def make_app(options: HttpOptions, opener: Opener | None = None) -> FastAPI:
    """Load the models and create the application. A model that cannot be served raises an `RcilError`.

    Args:
        options: The models to serve, and how.
        opener: Loads a model file; `open_backend` by default.
    """
    opener = opener or functools.partial(
        open_backend, device=options.device, threads=options.threads, trust=options.trust
    )
    opened, scale = opener, options.scale

    def opener_with_batching(path: Path) -> Backend:
        return batched(opened(path), options.max_batch)

    models = Models(
        open_model(options.model, opener_with_batching, scale),
        None if options.previous is None else open_model(options.previous, opener_with_batching, scale),
    )
    for line in models.current.predictor.notices:
        log.info("%s", line)
    workers = Workers(options.workers or default_workers(models.current), options.queue)
    metrics = Metrics(models, workers)
    service = Service(
        options, models, workers, metrics, Reloader(options.model, opener_with_batching, models, metrics, scale)
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        workers.close()
        models.close()

    app = FastAPI(
        title="RCIL",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        separate_input_output_schemas=False,
        lifespan=lifespan,
    )
    app.state.service = service
    for routes in (v2, segment, page):
        app.include_router(routes.router)
    for kind in (RcilError, HTTPException, RequestValidationError, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _explain)
    app.add_middleware(TokenCheck, token=options.token, public=PUBLIC)
    app.add_middleware(BodyDrain, limit=options.max_bytes)
    app.add_middleware(AccessLog, metrics=metrics)
    return app


def default_workers(model: Model) -> int:
    """Enough to decode one request while a full batch is in the model."""
    largest = model.backend.max_batch if isinstance(model.backend, BatchingBackend) else 1
    return min(MAX_WORKERS, largest + 1)


async def _explain(_: Request, error: Exception) -> JSONResponse:
    """Answer every error with `{"error": message}`. Details of unexpected errors go to the log only."""
    match error:
        case RefusalError():
            return JSONResponse({"error": message_with_hint(error)}, error.status, error.headers)
        case RcilError():
            log.error("%s", message_with_hint(error))
            return JSONResponse({"error": message_with_hint(error)}, 500)
        case HTTPException():
            return JSONResponse({"error": error.detail}, error.status_code, error.headers)
        case RequestValidationError():
            first = error.errors()[0]
            return JSONResponse({"error": f"{'.'.join(map(str, first['loc']))}: {first['msg']}"}, 400)
        case ClientDisconnect():
            return JSONResponse({"error": "the client disconnected"}, 499)
        case _:
            return JSONResponse({"error": "internal server error; see the server's log"}, 500)

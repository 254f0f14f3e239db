"""The web application of a live view: the page, its numbers, single pictures and an MJPEG stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from typing import Annotated

from fastapi import FastAPI, Query
from starlette.responses import JSONResponse, Response, StreamingResponse

from rcil_serve.http.middleware import TokenCheck
from rcil_serve.http.routes.page import HEADERS
from rcil_serve.live.view import LiveView, Shown

LOOK_S = 0.02
"""Seconds between two looks for a new frame."""
HOLD_S = 10.0
"""Time after which a request for the next picture is answered without one."""
MAX_RATE = 15.0
"""Pictures per second and viewer; drawing more would take time from the model."""
BOUNDARY = "frame"
PARTS = {
    "/": ("rcil_serve.live", "live.html", "text/html"),
    "/live.css": ("rcil_serve.live", "live.css", "text/css"),
    "/live.js": ("rcil_serve.live", "live.js", "text/javascript"),
    "/page.css": ("rcil_serve.http", "page.css", "text/css"),
    "/api.js": ("rcil_serve.http", "api.js", "text/javascript"),
    "/favicon.ico": ("rcil_serve.http", "icon.svg", "image/svg+xml"),
}
"""Files of the page by path; they contain no secrets and need no token. Some are those of `rcil-serve http`."""
NO_STORE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def make_view_app(view: LiveView, token: str | None = None) -> FastAPI:
    """Create the application; with a token, pictures and numbers need it."""
    app = FastAPI(title="RCIL", docs_url=None, redoc_url=None, openapi_url=None)
    for path, (package, name, kind) in PARTS.items():
        app.add_api_route(path, _part(files(package).joinpath("page", name).read_bytes(), kind), name=name)

    @app.get("/state")
    async def state() -> JSONResponse:
        """Class areas, alarms, events and rates."""
        return JSONResponse(await asyncio.to_thread(view.state), headers=NO_STORE)

    @app.get("/frame.jpg")
    async def frame(after: Annotated[int, Query(ge=0)] = 0) -> Response:
        """The newest picture, as soon as there is one after the frame `after`; 204 if none comes in time."""
        shown = await _next(view, after, HOLD_S)
        if shown is None:
            return Response(status_code=204, headers=NO_STORE)
        content = await asyncio.to_thread(view.jpeg, shown)
        return Response(content, media_type="image/jpeg", headers=NO_STORE | {"X-Rcil-Frame": str(shown.number)})

    @app.get("/stream.mjpg")
    async def stream() -> StreamingResponse:
        """All pictures, for players and other pages."""
        kind = f"multipart/x-mixed-replace; boundary={BOUNDARY}"
        return StreamingResponse(_parts(view), media_type=kind, headers=NO_STORE)

    app.add_middleware(TokenCheck, token=token, public=frozenset(PARTS))
    return app


def _part(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    """A route for one file of the page."""

    async def part() -> Response:
        return Response(content, media_type=kind, headers=HEADERS | {"X-Content-Type-Options": "nosniff"})

    return part


async def _next(view: LiveView, after: int, seconds: float) -> Shown | None:
    """Wait for a frame after the frame `after`. A viewer of an earlier run, whose numbers are higher, gets one too."""
    until = time.monotonic() + seconds
    while not view.closed and time.monotonic() < until:
        if (shown := view.newest) is not None and shown.number != after:
            return shown
        await asyncio.sleep(LOOK_S)
    return None


async def _parts(view: LiveView) -> AsyncIterator[bytes]:
    """Parts of the MJPEG stream. Frames that a slow viewer cannot take are skipped."""
    last, begun = 0, 0.0
    while not view.closed:
        await asyncio.sleep(max(0.0, begun + 1 / MAX_RATE - time.monotonic()))
        begun = time.monotonic()
        shown = await _next(view, last, HOLD_S)
        if shown is not None:
            last, content = shown.number, await asyncio.to_thread(view.jpeg, shown)
            head = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(content)}\r\n\r\n"
            yield head.encode() + content + b"\r\n"

"""Routes of the web page, its data and the metrics."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from rcil_serve.http.protocol.answers import ClassTables, plain, refusals
from rcil_serve.http.reload import SAMPLE
from rcil_serve.http.service import ServiceOf

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "media-src blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content security policy: the browser loads nothing from other sites."""
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
PARTS = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/api.js": ("api.js", "text/javascript"),
    "/draw.js": ("draw.js", "text/javascript"),
    "/legend.js": ("legend.js", "text/javascript"),
    "/favicon.ico": ("icon.svg", "image/svg+xml"),
}
"""Files of the page by path; they contain no secrets and need no token."""
router = APIRouter()


def _add(path: str, name: str, kind: str) -> None:
    content = files("rcil_serve.http").joinpath("page", name).read_bytes()

    @router.get(path, name=name, response_class=Response, responses=plain(kind))
    async def part() -> Response:
        return Response(content, media_type=kind, headers=HEADERS)


for _path, (_name, _kind) in PARTS.items():
    _add(_path, _name, _kind)


@router.get("/classes", response_model=ClassTables, responses=refusals(401))
async def classes(service: ServiceOf) -> JSONResponse:
    """The class tables of both models."""
    current, previous = service.models.current, service.models.previous
    return JSONResponse({"current": current.describe(), "previous": None if previous is None else previous.describe()})


@router.get("/sample.jpg", response_class=Response, responses=plain("image/jpeg") | refusals(401))
def sample() -> Response:
    """A sample image to try the page with."""
    return Response(SAMPLE, media_type="image/jpeg")


@router.get("/metrics", response_class=Response, responses=plain("text/plain") | refusals(401))
async def metrics(service: ServiceOf) -> Response:
    """Metrics for Prometheus."""
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

"""Middleware for all routes: access log, metrics, token check, and draining of refused bodies."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rcil_serve.http.metrics import Metrics
from rcil_serve.http.protocol.answers import RefusalError, message_with_hint

DRAIN_S = 5.0
"""Time limit for draining the body of a refused request."""
LATE = 408
"""Status of a request that timed out; its body is not drained."""
OWN_SITES = ("none", "same-origin")
"""`Sec-Fetch-Site` of requests by the user or the own page; `same-site` may be another port or subdomain."""
log = logging.getLogger("rcil_serve.http.access")


class AccessLog:
    """Logs and counts each request, without queries and headers, which may contain secrets."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, then log it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).append("X-Content-Type-Options", "nosniff")
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            client = scope["client"][0] if scope["client"] else "-"
            milliseconds = 1000 * (time.perf_counter() - start)
            log.info("%s %s %s %d %.1f ms", client, scope["method"], quote(scope["path"]), status, milliseconds)
            self._metrics.request(getattr(scope.get("route"), "path", "other"), status)


class BodyDrain:
    """Reads the rest of a refused request body, up to a limit, before answering.

    A client that is still sending when the connection closes sees a broken connection instead of the response. A client
    that sends `Expect: 100-continue` waits for the response first, so nothing is drained.
    """

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, and delay an error response until the body was read."""
        if scope["type"] != "http" or "expect" in Headers(scope=scope):
            await self._app(scope, receive, send)
            return
        more = True

        async def counted() -> Message:
            nonlocal more
            message = await receive()
            more = message["type"] == "http.request" and message.get("more_body", False)
            return message

        async def discard() -> None:
            left = self._limit
            while more and left > 0:
                left -= len((await counted()).get("body", b""))

        async def patient(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400 and message["status"] != LATE:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(DRAIN_S):
                        await discard()
            await send(message)

        await self._app(scope, counted, patient)


class TokenCheck:
    """Rejects requests without the token, except to public paths, and requests from pages of other sites."""

    def __init__(self, app: ASGIApp, token: str | None, public: frozenset[str]) -> None:
        self._app, self._public = app, public
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, or answer it with 401 or 403."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            answer = JSONResponse({"error": message_with_hint(refusal)}, refusal.status, refusal.headers)
            await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> RefusalError | None:
        headers = Headers(scope=scope)
        if scope["method"] != "GET" and _is_foreign(headers):
            return RefusalError(403, "pages of other sites may not use this server")
        if self._token is None or scope["path"] in self._public:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token):
            return None
        return RefusalError(401, "the token is missing or wrong", "Send the header `Authorization: Bearer TOKEN`.")


def _is_foreign(headers: Headers) -> bool:
    """Whether the request comes from a page of another site: by `Sec-Fetch-Site`, or by `Origin` without it."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site not in OWN_SITES
    return origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower()

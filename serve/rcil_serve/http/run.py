"""Runs the server process: address, signals, log, and timeouts for clients that send or read too slowly."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from rcil.core.errors import ConfigError, RcilError
from rcil.core.log import is_quiet
from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions
from rcil_serve.http.protocol.answers import message_with_hint
from rcil_serve.http.service import Service

RELOAD_WAIT_S = 600.0
"""Seconds that a reload by signal waits for a reload in progress."""
MAX_CONNECTIONS = 500
"""Limit of connections. It bounds the responses that slow readers hold in memory."""
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 21\r\n\r\ntoo many connections\n"
)
"""Response to a connection beyond the limit, if every other one is busy."""
HEADER_S = 10.0
"""Time limit for the request line and headers; the body has the time limit of the request."""
ANSWER_S = 60.0
"""Time limit for the client to read a complete response."""
log = logging.getLogger(__name__)


def serve(options: HttpOptions) -> None:
    """Serve until SIGINT or SIGTERM. SIGHUP reloads the model; during startup the reload is deferred."""
    level = logging.WARNING if is_quiet() else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    early = threading.Event()
    signal.signal(signal.SIGHUP, lambda number, frame: early.set())
    app = make_app(options)
    with listen(options.host, options.port) as listener:
        host, port = listener.getsockname()[:2]
        log.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)
        if options.open_to_all:
            log.warning("%s is reachable from other machines and requires no token", options.host)
        asyncio.run(_serve(app, listener, options, early))


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror or error}", "Choose another --host or --port."
        ) from error


def make_server(app: FastAPI, timeout_s: float) -> uvicorn.Server:
    """Create a uvicorn server without access log and banner; at shutdown, requests have `timeout_s` to finish."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        http=TimeoutProtocol,
        timeout_graceful_shutdown=max(1, round(timeout_s)),
    )
    return uvicorn.Server(config)


async def _serve(app: FastAPI, listener: socket.socket, options: HttpOptions, early: threading.Event) -> None:
    """Serve; `early` is set if SIGHUP arrived before the models were loaded."""
    loop = asyncio.get_running_loop()
    service: Service = app.state.service

    def reload() -> None:
        loop.run_in_executor(None, _reload, service)

    loop.add_signal_handler(signal.SIGHUP, reload)
    if early.is_set():
        reload()
    await make_server(app, options.timeout).serve(sockets=[listener])


def _reload(service: Service) -> None:
    """Reload after SIGHUP. There is no client to answer, so failures are logged."""
    try:
        service.reloader.reload(wait_s=RELOAD_WAIT_S)
    except RcilError as error:
        log.error("reload: %s", message_with_hint(error))
    except Exception:
        log.exception("the reload failed; the old model keeps serving")


class TimeoutProtocol(H11Protocol):
    """Closes a connection if the headers do not arrive, or the response is not read, in time.

    Uvicorn itself has no such timeouts. Between requests, its limit for idle connections applies. Beyond
    `MAX_CONNECTIONS`, a new connection replaces the one that has been idle for longest; if all are busy, only the new
    one is refused. Uvicorn's own limit refuses every request while there are too many connections.
    """

    _header_timer: asyncio.TimerHandle | None = None
    _response_timer: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Make room for this connection or refuse it, and start to wait for the first header."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        others = [one for one in self.connections if isinstance(one, TimeoutProtocol) and one.is_open and one != self]
        if len(others) >= MAX_CONNECTIONS:
            idle = [one for one in others if one.is_idle]
            if not idle:
                self.transport.write(FULL)
                self.transport.close()
                return
            min(idle, key=lambda one: one._idle_since).transport.abort()
        self._await_header()

    @property
    def is_open(self) -> bool:
        """Whether the connection is neither closed nor being closed."""
        return self.transport is not None and not self.transport.is_closing()

    @property
    def is_idle(self) -> bool:
        """Whether there is neither a request in progress nor a response that the client has not read."""
        return (self.cycle is None or self.cycle.response_complete) and not self.transport.get_write_buffer_size()

    def data_received(self, data: bytes) -> None:
        """Stop waiting if the header is complete; otherwise wait on."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._await_header()
        else:
            _cancel(self._header_timer)

    def on_response_complete(self) -> None:
        """Start to wait for the client if part of the response is still in the transport's buffer."""
        super().on_response_complete()
        self._idle_since = self.loop.time()
        _cancel(self._response_timer)
        if self.transport.get_write_buffer_size():
            self._response_timer = self.loop.call_later(ANSWER_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers."""
        _cancel(self._header_timer)
        _cancel(self._response_timer)
        super().connection_lost(exc)

    def _give_up(self) -> None:
        """Discard the rest of the response, because closing would wait for the client to read it."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _await_header(self) -> None:
        if self._header_timer is None or self._header_timer.cancelled():
            self._header_timer = self.loop.call_later(HEADER_S, self.transport.close)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()

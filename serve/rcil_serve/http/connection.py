"""Timeouts for clients that send headers, or read responses, too slowly."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_S = 10.0
"""Time limit for the request line and headers; the body has the time limit of the request."""
ANSWER_S = 60.0
"""Time limit for the client to read a complete response."""


class TimeoutProtocol(H11Protocol):
    """Closes a connection if the headers do not arrive, or the response is not read, in time.

    Uvicorn itself has no such timeouts. Between requests, its limit for idle connections applies.
    """

    _deadline: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start to wait for the first header."""
        super().connection_made(transport)
        self._await_header()

    def data_received(self, data: bytes) -> None:
        """Stop waiting if the header is complete; otherwise wait on."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._await_header()
        else:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Start to wait for the client if part of the response is still in the transport's buffer."""
        super().on_response_complete()
        self._stop_taking()
        if self.transport.get_write_buffer_size():
            self._taking = self.loop.call_later(ANSWER_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers."""
        self._stop_waiting()
        self._stop_taking()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        """Discard the rest of the response, because closing would wait for the client to read it."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _await_header(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _stop_taking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

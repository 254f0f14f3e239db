"""Connections whose client does not get to the point."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_S = 10.0
"""For a request's first line and headers; its body has the time of the whole request."""
ANSWER_S = 60.0
"""For the client to take a finished answer."""


class TimeoutProtocol(H11Protocol):
    """Ends a connection on which no whole header arrives in time, or whose client does not take its answer.

    Uvicorn alone would keep both forever. Between two requests its own limit for idle connections holds.
    """

    _deadline: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """The first header is awaited."""
        super().connection_made(transport)
        self._await_header()

    def data_received(self, data: bytes) -> None:
        """Either a header has come to its end, or the wait for it goes on, or begins."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._await_header()
        else:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """The answer is made; what the network does not take yet waits in the transport."""
        super().on_response_complete()
        self._stop_taking()
        if self.transport.get_write_buffer_size():
            self._taking = self.loop.call_later(ANSWER_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._stop_waiting()
        self._stop_taking()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        """Closing would wait for the client to read the rest, so the rest is thrown away."""
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

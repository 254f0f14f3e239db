"""Connections whose client does not get to the point."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_S = 10.0
"""For a request's first line and headers; its body has the time of the whole request."""


class PromptProtocol(H11Protocol):
    """Closes a connection on which no whole header arrives in time; uvicorn alone would keep it forever.

    Between two requests uvicorn's own limit for idle connections holds.
    """

    _deadline: asyncio.TimerHandle | None = None

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

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_header(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

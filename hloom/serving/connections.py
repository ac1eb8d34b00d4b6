"""HTTP connections with limits: how many there are, and how long a request's header may take.

uvicorn bounds the header's bytes (h11) and the time between requests, not the time of a header: a client that sends
a byte now and then would keep its connection for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["ABORT", "limited"]

ABORT = "hloom.abort"  # the entry of an ASGI scope's state that ends its connection
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def limited(connections: int, header_seconds: float) -> type[H11Protocol]:
    """uvicorn's protocol with a limit on connections, and a deadline for the header of each request, counted from its
    first byte."""

    class Limited(H11Protocol):
        app_state: dict[str, Any]
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            self.app_state = {**self.app_state, ABORT: transport.abort}
            full = len(self.connections) >= connections
            super().connection_made(transport)
            if full:
                transport.write(_FULL)
                transport.close()
            else:
                self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._forget()

        def _watch(self) -> None:
            """Starts the deadline of a header, or cancels it once the header is complete."""
            if self.conn.their_state is not h11.IDLE:
                self._forget()
            elif self._timer is None:
                self._timer = self.loop.call_later(header_seconds, self._late)

        def _forget(self) -> None:
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()

        def _late(self) -> None:
            self._timer = None
            if not self.transport.is_closing() and self.conn.their_state is h11.IDLE:
                self.transport.write(_LATE)
                self.transport.abort() if self.transport.get_write_buffer_size() else self.transport.close()

    return Limited

"""What a request has to have, and what it may cost: keys, bytes and seconds, over HTTP and gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import grpc
from grpc import aio

PUBLIC = ("/v2/health/live", "/v2/health/ready")  # of HTTP, without a key: load balancers ask them
DRAINED = 8  # times the limit, of a body that is too large


class Limits:
    """ASGI middleware: 401 without the key, 413 beyond `max_body` bytes of a body, 504 after `timeout` seconds."""

    def __init__(self, app: Callable, key: str | None, max_body: int, timeout: float):
        self.app, self.max_body, self.timeout = app, max_body, timeout
        self.expected = None if key is None else f"Bearer {key}".encode()

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self.expected is not None and scope["path"] not in PUBLIC:
            if not hmac.compare_digest(headers.get(b"authorization", b""), self.expected):
                await _refuse(send, 401, "the key is missing or wrong: Authorization: Bearer KEY")
                return
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.max_body:
            await self._too_large(receive, send)
            return
        state = _Request(receive, send, self.max_body)
        try:
            await asyncio.wait_for(self.app(scope, state.receive, state.send), self.timeout)
        except TimeoutError:
            if not state.begun:
                await _refuse(send, 504, f"the request took more than {self.timeout:g} s")
        except _TooLargeError:
            pass
        if state.too_large and not state.begun:
            await self._too_large(receive, send)

    async def _too_large(self, receive: Callable, send: Callable) -> None:
        """Answers after what still comes of the body, which nobody keeps: a client that is sending would not read an
        answer, but find the connection closed. Of a body that is much too large only a part is waited for."""
        left = DRAINED * self.max_body
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.timeout):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        break
        await _refuse(send, 413, f"a body has at most {self.max_body} bytes")


class _TooLargeError(Exception):
    """A body without a length grew beyond the limit."""


class _Request:
    """Counts what is received, and knows whether an answer has begun."""

    def __init__(self, receive: Callable, send: Callable, most: int):
        self._receive, self._send, self._most = receive, send, most
        self._bytes = 0
        self.begun = self.too_large = False

    async def receive(self) -> dict:
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._most:
            self.too_large = True
            raise _TooLargeError
        return message

    async def send(self, message: dict) -> None:
        if not self.too_large:  # the framework's own answer to the error says less than ours
            self.begun = True
            await self._send(message)


async def _refuse(send: Callable, status: int, error: str) -> None:
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class KeyInterceptor(aio.ServerInterceptor):
    """gRPC calls need the metadata `authorization: Bearer KEY`."""

    def __init__(self, key: str):
        self._expected = f"Bearer {key}"

        async def refuse(request: Any, context: Any) -> None:
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED, "the key is missing or wrong: authorization: Bearer KEY"
            )

        self._refusal = grpc.unary_unary_rpc_method_handler(refuse)

    async def intercept_service(self, continuation: Callable, details: grpc.HandlerCallDetails) -> Any:
        given = str(dict(details.invocation_metadata or ()).get("authorization", ""))
        if hmac.compare_digest(given.encode(), self._expected.encode()):
            return await continuation(details)
        return self._refusal

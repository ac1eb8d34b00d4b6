"""Requirements and limits of requests: keys, origins, bytes and seconds, over HTTP and gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import grpc
from grpc import aio

from hloom.ir.records import record
from hloom.serving.connections import ABORT

PUBLIC = ("/v2/health/live", "/v2/health/ready")  # of HTTP, without a key: load balancers ask them
MANAGEMENT = "/v2/repository"  # of HTTP: the paths that list, load and unload models
# The gRPC methods for clients; all others list, load and unload models.
USE = frozenset(
    f"/inference.GRPCInferenceService/{name}"
    for name in "ServerLive ServerReady ServerMetadata ModelReady ModelMetadata ModelInfer ModelStreamInfer".split()
)
DRAINED = 8  # times the limit, of a body that is too large
_OFF = "the routes that list, load and unload models are off: hloom serve --management"


@record(frozen=True)
class Access:
    """Access rules. key: required for use; None: open to all. management: whether models may be loaded and unloaded at
    all; management_key: the key for that; host: the host name accepted in requests, in addition to addresses."""

    key: str | None = None
    management: bool = False
    management_key: str | None = None
    host: str = "127.0.0.1"

    def allows(self, given: bytes, management: bool) -> bool:
        """Whether the value of `authorization` is that of the key."""
        key = self.management_key if management else self.key
        return key is None or hmac.compare_digest(given, f"Bearer {key}".encode())


class Limits:
    """ASGI middleware: 401 without the key, 403 for management that is off or requested by another site, 413 beyond
    `max_body` bytes of a body, 415 for encodings, 504 after `timeout` seconds."""

    def __init__(self, app: Callable, access: Access, max_body: int, timeout: float):
        self.app, self.access, self.max_body, self.timeout = app, access, max_body, timeout

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        management = scope["path"].startswith(MANAGEMENT)
        if management and (refusal := self._refusal(headers)) is not None:
            await _refuse(send, 403, refusal)
            return
        if scope["path"] not in PUBLIC and not self.access.allows(headers.get(b"authorization", b""), management):
            which = "the key for management" if management else "the key"
            await _refuse(send, 401, f"{which} is missing or wrong: Authorization: Bearer KEY")
            return
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.max_body:
            await self._too_large(receive, send)
            return
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding not in (b"identity", b"gzip"):
            await _refuse(send, 415, f"the encoding {encoding.decode('latin-1')!r}: send gzip, or none")
            return
        if encoding == b"gzip":  # MLServer would allocate whatever size the client states
            scope = {**scope, "headers": [(k, v) for k, v in scope["headers"] if k != b"content-encoding"]}
        state = _Request(receive, send, self.max_body, encoding == b"gzip")
        try:
            await asyncio.wait_for(self.app(scope, state.receive, state.send), self.timeout)
        except TimeoutError:
            if not state.begun:
                await _refuse(send, 504, f"the request took more than {self.timeout:g} s")
            elif (abort := scope.get("state", {}).get(ABORT)) is not None:
                abort()  # the client does not read the answer
        except (_TooLargeError, zlib.error):
            pass
        if state.damaged and not state.begun:
            await _refuse(send, 400, "the body is not gzip")
        elif state.too_large and not state.begun:
            await self._too_large(receive, send)

    def _refusal(self, headers: dict[bytes, bytes]) -> str | None:
        """Why a request for management is refused, whatever its key; None if it is not. A page of another site can
        send requests to this server with the user's browser, also by a name that it gave this machine's address."""
        if not self.access.management:
            return _OFF
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_own(host):
            return f"the host {host!r} is not this server's: ask it by its address"
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            return "the request comes from another site"
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and urlsplit(origin).netloc != host:
            return f"the request comes from {origin!r}, another site"
        return None

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in ("localhost", self.access.host.lower()):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    async def _too_large(self, receive: Callable, send: Callable) -> None:
        """Drains and discards the rest of the body before answering: a client that is still sending would not read the
        answer, but find the connection closed. Of a body that is much too large only a part is read."""
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
    """Counts received bytes, decompresses them, and tracks whether an answer has begun."""

    def __init__(self, receive: Callable, send: Callable, most: int, compressed: bool):
        self._receive, self._send, self._most = receive, send, most
        self._bytes = 0
        self._expander = zlib.decompressobj(31) if compressed else None
        self.begun = self.too_large = self.damaged = False

    async def receive(self) -> dict:
        message = await self._receive()
        if self._expander is not None and message["type"] == "http.request":
            message = {**message, "body": self._expanded(message)}
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._most:
            self.too_large = True
            raise _TooLargeError
        return message

    def _expanded(self, message: dict) -> bytes:
        assert self._expander is not None
        try:
            made = self._expander.decompress(message.get("body", b""), self._most - self._bytes + 1)
            if not message.get("more_body", False) and len(made) <= self._most - self._bytes and not self._expander.eof:
                raise zlib.error("it is cut off")
        except zlib.error:
            self.damaged = True
            raise
        return made

    async def send(self, message: dict) -> None:
        if not self.too_large and not self.damaged:  # the framework's own error response is less specific than ours
            self.begun = True
            await self._send(message)


async def _refuse(send: Callable, status: int, error: str) -> None:
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class AccessInterceptor(aio.ServerInterceptor):
    """gRPC calls need the metadata `authorization: Bearer KEY`; management methods are off by default."""

    def __init__(self, access: Access):
        self._access = access
        self._unauthenticated = _refusal(
            grpc.StatusCode.UNAUTHENTICATED, "the key is missing or wrong: authorization: Bearer KEY"
        )
        self._off = _refusal(grpc.StatusCode.PERMISSION_DENIED, _OFF)

    async def intercept_service(self, continuation: Callable, details: grpc.HandlerCallDetails) -> Any:
        management = details.method not in USE
        if management and not self._access.management:
            return self._off
        given = str(dict(details.invocation_metadata or ()).get("authorization", ""))
        if not self._access.allows(given.encode(errors="replace"), management):
            return self._unauthenticated
        return await continuation(details)


def _refusal(code: grpc.StatusCode, text: str) -> grpc.RpcMethodHandler:
    async def refuse(request: Any, context: Any) -> None:
        await context.abort(code, text)

    return grpc.unary_unary_rpc_method_handler(refuse)

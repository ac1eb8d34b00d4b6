"""Messages between the processes of a cluster over TCP: a JSON header and the bytes of arrays, no executable content.

A connection begins with a challenge in both directions (HMAC-SHA-256 over fresh nonces, compared in constant time), so
that neither side talks to a peer without the cluster's key. The key itself is never sent. Without TLS the messages
after that are not encrypted.

A message is a frame: 4 bytes with the header's length, the header (UTF-8 JSON), and the bytes of each array that the
header's "arrays" announce, as [dtype, shape]. Lengths are checked before memory is allocated. Until both sides have
shown the key, messages are short, have no arrays, and all of them together have one deadline.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import math
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hloom.cluster.spec import Tls, split_address
from hloom.errors import DistributedError, HloomError
from hloom.ir.types import DTYPES, HLO_NAME

VERSION = 1  # of the protocol
MAGIC = b"HLOOM-CLUSTER\n"
HANDSHAKE_SECONDS = 10.0
MAX_HELLO = 4096
MAX_HEADER = 64 << 20
MAX_ARRAYS = 1 << 16
MAX_BYTES = 1 << 36
_LENGTH = struct.Struct("!I")


class PeerLost(DistributedError):
    """The connection to another process of the cluster ended, or could not be made."""


class Timeout(DistributedError):
    """Another process of the cluster did not answer within the time limit."""


class _VersionError(DistributedError):
    """The other side speaks another version of the protocol."""


class _WrongKeyError(DistributedError):
    """The other side does not have the key."""


class MalformedError(DistributedError):
    """The received bytes are not a message of the protocol."""


def remaining(deadline: float) -> float:
    """The seconds until a time (time.monotonic()). Raises TimeoutError once it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is over")
    return left


def _parsed(data: bytes) -> Any:
    """A header. Raises ValueError, RecursionError for invalid JSON, including infinity, NaN, and strings that are not
    valid Unicode, which Python's own reader accepts."""
    found = json.loads(data.decode("utf-8"), parse_constant=_no_number, parse_float=_finite)
    if b"\\u" in data:  # halves of pairs come by escapes only
        json.dumps(found, ensure_ascii=False).encode()
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"the number {text}")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]}")
    return number


def lost(peer: str, error: BaseException | str) -> PeerLost:
    return PeerLost(
        f"a message from {peer}", f"the connection ended: {error}", "look at the log of that process; it may have died"
    )


class Stream:
    """One connection. Not for use from several threads at a time."""

    def __init__(self, connection: socket.socket, peer: str):
        self._socket, self.peer = connection, peer
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, header: dict, arrays: Sequence[np.ndarray] = (), timeout: float | None = None) -> None:
        """Raises PeerLost, Timeout."""
        found = [np.asarray(array, order="C") for array in arrays]
        if found:
            header = {**header, "arrays": [[HLO_NAME[a.dtype], list(a.shape)] for a in found]}
        # An error's text may contain invalid Unicode, such as names of files.
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode(errors="replace")
        parts: list = [_LENGTH.pack(len(text)) + text]
        parts += [a.reshape(-1).view(np.uint8).data for a in found if a.nbytes]
        try:
            self._socket.settimeout(timeout)
            if isinstance(self._socket, ssl.SSLSocket):  # it has no sendmsg
                for part in parts:
                    self._socket.sendall(part)
            else:
                _send_all(self._socket, parts)
        except TimeoutError as error:
            raise self._late(timeout) from error
        except (OSError, ssl.SSLError) as error:
            raise lost(self.peer, error) from error

    def receive(self, timeout: float | None = None) -> tuple[dict, list[np.ndarray]]:
        """The header and the arrays of the next message. timeout: seconds without a byte. Raises PeerLost, Timeout;
        MalformedError for anything else than a message."""
        with self._received(timeout):
            self._socket.settimeout(timeout)
            header = self._header(MAX_HEADER, None)
            return header, [self._array(entry) for entry in self._announced(header)]

    def hello(self, deadline: float) -> dict:
        """The next message of a peer that has not shown the key: short, without arrays, and there at a time
        (time.monotonic()). Raises as `receive`."""
        with self._received(max(deadline - time.monotonic(), 0.0)):
            header = self._header(MAX_HELLO, deadline)
            if "arrays" in header:
                raise self._malformed("arrays before the key")
            return header

    def _header(self, limit: int, deadline: float | None) -> dict:
        (length,) = _LENGTH.unpack(self._bytes(_LENGTH.size, deadline))
        if length > limit:
            raise self._malformed(f"a header of {length} bytes, of at most {limit}")
        header = _parsed(self._bytes(length, deadline))
        if not isinstance(header, dict):
            raise self._malformed("a header that is not a JSON object")
        return header

    @contextlib.contextmanager
    def _received(self, timeout: float | None) -> Iterator[None]:
        """Turns failures of messages into errors of hloom."""
        try:
            yield
        except TimeoutError as error:
            raise self._late(timeout) from error
        except (OSError, ssl.SSLError) as error:
            raise lost(self.peer, error) from error
        except (ValueError, RecursionError, MemoryError) as error:
            if isinstance(error, HloomError):
                raise
            raise self._malformed(str(error) or type(error).__name__) from error

    def _announced(self, header: dict) -> list[tuple[np.dtype, tuple[int, ...]]]:
        entries = header.pop("arrays", [])
        if not isinstance(entries, list) or len(entries) > MAX_ARRAYS:
            raise self._malformed("a list of arrays that is too long, or none")
        found, total = [], 0
        for entry in entries:
            try:
                name, shape = entry
                dtype, dims = DTYPES[name], tuple(shape)
            except (KeyError, TypeError, ValueError):
                raise self._malformed(f"an array of {entry!r:.80}") from None
            if len(dims) > 64 or any(type(d) is not int or d < 0 for d in dims):
                raise self._malformed(f"an array of {entry!r:.80}")
            total += math.prod(dims) * dtype.itemsize
            if total > MAX_BYTES:
                raise self._malformed(f"arrays of more than {MAX_BYTES} bytes")
            found.append((dtype, dims))
        return found

    def _array(self, entry: tuple[np.dtype, tuple[int, ...]]) -> np.ndarray:
        dtype, dims = entry
        made = np.empty(dims, dtype)
        if made.nbytes:
            self._into(made.reshape(-1).view(np.uint8).data)
        return made

    def _bytes(self, count: int, deadline: float | None = None) -> bytes:
        data = bytearray(count)
        self._into(memoryview(data), deadline)
        return bytes(data)

    def _into(self, view: memoryview, deadline: float | None = None) -> None:
        while view:
            if deadline is not None:
                self._socket.settimeout(remaining(deadline))
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError("the other side closed it")
            view = view[count:]

    def _malformed(self, found: str) -> DistributedError:
        return MalformedError(
            f"a message of {self.peer}", found, "use the same version of hloom in all processes of the cluster"
        )

    def _late(self, timeout: float | None) -> Timeout:
        return Timeout(
            f"an answer of {self.peer}",
            f"nothing came for {timeout:g} s" if timeout is not None else "nothing came",
            "inspect that process (py-spy dump --pid), or set hl.config.distributed_timeout",
        )

    def close(self) -> None:
        self._socket.close()

    def shut_down(self) -> None:
        """Ends it also for a thread that waits in it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is closed already
            return


def _send_all(connection: socket.socket, parts: list) -> None:
    waiting = [memoryview(part) for part in parts]
    while waiting:
        sent = connection.sendmsg(waiting[:64])
        while waiting and sent >= len(waiting[0]):
            sent -= len(waiting.pop(0))
        if sent:
            waiting[0] = waiting[0][sent:]


# --- the beginning of a connection --------------------------------------------------------------------------------


def _proof(key: bytes, side: str, first: str, second: str) -> str:
    return hmac.new(key, f"{VERSION}:{side}:{first}:{second}".encode(), hashlib.sha256).hexdigest()


def connect(address: str, key: bytes, tls: Tls | None, peer: str, timeout: float = HANDSHAKE_SECONDS) -> Stream:
    """A connection to a server, after both sides have proved that they have the key.

    Raises PeerLost if nothing listens there; DistributedError for a wrong key, another version, or a different kind of
    server; Timeout.
    """
    host, port = split_address(address)
    deadline = time.monotonic() + timeout
    try:
        raw = socket.create_connection((host, port), timeout)
    except OSError as error:
        raise PeerLost(
            f"a connection to {peer} at {address}",
            str(error.strerror or error),
            "start that task, or check the address in the ClusterSpec",
        ) from error
    try:
        if tls is not None:
            context = ssl.create_default_context(cafile=tls.authority)
            raw = context.wrap_socket(raw, server_hostname=host)
        return _greet(raw, key, peer, address, deadline)
    except ssl.SSLError as error:
        raw.close()
        raise DistributedError(
            f"an encrypted connection to {peer} at {address}",
            str(error.reason or error),
            "check tls= of the ClusterSpec, on both sides",
        ) from error
    except TimeoutError as error:
        raw.close()
        raise Timeout(
            f"a connection to {peer} at {address}",
            f"it did not greet within {timeout:g} s",
            "check what listens at that port, and whether it expects TLS",
        ) from error
    except OSError as error:
        raw.close()
        raise lost(peer, error) from error
    except BaseException:
        raw.close()
        raise


def _greet(raw: socket.socket, key: bytes, peer: str, address: str, deadline: float) -> Stream:
    begin = b""
    while len(begin) < len(MAGIC):
        raw.settimeout(remaining(deadline))
        more = raw.recv(len(MAGIC) - len(begin))
        if not more:
            break
        begin += more
    if begin != MAGIC:
        # A server without free slots closes connections immediately, and may have some later.
        kind = DistributedError if begin else PeerLost
        raise kind(
            f"a server of hloom at {address}",
            f"the server there answers with {begin[:16]!r}" if begin else "it closed the connection",
            "check the address in the ClusterSpec, and tls= on both sides",
        )
    stream = Stream(raw, peer)
    hello = stream.hello(deadline)
    _check_version(hello, f"{peer} at {address}")
    theirs, mine = str(hello.get("nonce")), secrets.token_hex(32)
    proof = _proof(key, "client", theirs, mine)
    stream.send({"version": VERSION, "nonce": mine, "proof": proof}, timeout=remaining(deadline))
    answer = stream.hello(deadline)
    wanted = _proof(key, "server", theirs, mine)
    if not hmac.compare_digest(str(answer.get("proof", "")).encode(), wanted.encode()):
        raise DistributedError(
            f"a connection to {peer} at {address}",
            str(answer.get("error", "it does not have the key of this cluster")),
            "use the same key on both sides: ClusterSpec(jobs, key=...), or the file hl.config.cluster_key_file",
        )
    return stream


def _check_version(hello: dict, who: str) -> None:
    if hello.get("version") != VERSION:
        raise _VersionError(
            f"version {VERSION} of the cluster's protocol",
            f"{who} speaks version {hello.get('version')!r}",
            "install the same version of hloom in all processes of the cluster",
        )


def accept(connection: socket.socket, key: bytes, deadline: float) -> Stream:
    """The server's side of `connect`, over at a time (time.monotonic()). Raises DistributedError, OSError for rejected
    peers, which are notified if possible; the caller closes the connection."""
    connection.settimeout(remaining(deadline))
    host, port = connection.getpeername()[:2]
    stream = Stream(connection, f"the client at {host}:{port}")
    connection.sendall(MAGIC)
    mine = secrets.token_hex(32)
    stream.send({"version": VERSION, "nonce": mine}, timeout=remaining(deadline))
    try:
        hello = stream.hello(deadline)
        _check_version(hello, stream.peer)
        theirs = str(hello.get("nonce"))
        wanted = _proof(key, "client", mine, theirs)
        if len(theirs) != len(mine) or not hmac.compare_digest(str(hello.get("proof", "")).encode(), wanted.encode()):
            raise _WrongKeyError(f"a connection of {stream.peer}", "its key is wrong", "use this cluster's key")
    except (MalformedError, _VersionError, _WrongKeyError) as error:
        told = {
            _VersionError: f"this server speaks version {VERSION}",
            _WrongKeyError: "the key is not that of this server",
        }.get(type(error), error.found)
        with contextlib.suppress(OSError, DistributedError):
            stream.send({"error": told}, timeout=remaining(deadline))
        raise
    stream.send({"proof": _proof(key, "server", mine, theirs)}, timeout=remaining(deadline))
    return stream


def server_context(tls: Tls) -> ssl.SSLContext:
    """The TLS context of the server side. Raises DistributedError for files that cannot be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.private_key)
    except (OSError, ssl.SSLError) as error:
        raise DistributedError(
            f"the certificate {tls.certificate} with the key {tls.private_key}", str(error), "pass PEM files"
        ) from error
    return context


def error_header(error: BaseException) -> dict[str, Any]:
    """An error as a message."""
    if isinstance(error, HloomError):
        where = str(error.source) if error.source else ""
        return {
            "error": type(error).__name__, "asked": error.asked, "found": error.found, "repair": error.repair,
            "where": where,
        }  # fmt: skip
    return {"error": "DistributedError", "asked": "", "found": f"{type(error).__name__}: {error}", "repair": ""}


__all__ = [
    "VERSION",
    "MalformedError",
    "PeerLost",
    "Stream",
    "Timeout",
    "accept",
    "connect",
    "error_header",
    "server_context",
]

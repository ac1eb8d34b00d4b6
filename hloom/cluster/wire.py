"""Messages between the processes of a cluster over TCP: a JSON header and the bytes of arrays, nothing that runs.

A connection begins with a challenge in both directions (HMAC-SHA-256 over fresh random numbers, compared in constant
time), so that neither side talks to a peer without the cluster's key. The key itself is never sent. Without TLS the
messages after that are not encrypted.

A message is a frame: 4 bytes with the header's length, the header (UTF-8 JSON), and the bytes of each array that the
header's "arrays" announce, as [dtype, shape]. Lengths are checked before memory is allocated.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import secrets
import socket
import ssl
import struct
from collections.abc import Sequence
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
        text = json.dumps(header, separators=(",", ":")).encode()
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

    def receive(self, timeout: float | None = None, *, limit: int = MAX_HEADER) -> tuple[dict, list[np.ndarray]]:
        """The header and the arrays of the next message. Raises PeerLost, Timeout; DistributedError for what is no
        message."""
        try:
            self._socket.settimeout(timeout)
            (length,) = _LENGTH.unpack(self._bytes(_LENGTH.size))
            if length > limit:
                raise self._malformed(f"a header of {length} bytes, of at most {limit}")
            header = json.loads(self._bytes(length))
            if not isinstance(header, dict):
                raise self._malformed("a header that is no JSON object")
            return header, [self._array(entry) for entry in self._announced(header)]
        except TimeoutError as error:
            raise self._late(timeout) from error
        except (OSError, ssl.SSLError) as error:
            raise lost(self.peer, error) from error
        except ValueError as error:
            if isinstance(error, HloomError):
                raise
            raise self._malformed(str(error)) from error

    def _announced(self, header: dict) -> list[tuple[np.dtype, tuple[int, ...]]]:
        entries = header.pop("arrays", [])
        if not isinstance(entries, list) or len(entries) > MAX_ARRAYS:
            raise self._malformed("a list of arrays that is too long, or none")
        found, total = [], 0
        for entry in entries:
            try:
                name, shape = entry
                dtype, dims = DTYPES[name], tuple(map(int, shape))
            except (KeyError, TypeError, ValueError):
                raise self._malformed(f"an array of {entry!r:.80}") from None
            if len(dims) > 64 or any(d < 0 for d in dims):
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

    def _bytes(self, count: int) -> bytes:
        data = bytearray(count)
        self._into(memoryview(data))
        return bytes(data)

    def _into(self, view: memoryview) -> None:
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError("the other side closed it")
            view = view[count:]

    def _malformed(self, found: str) -> DistributedError:
        return DistributedError(
            f"a message of {self.peer}", found, "use the same version of hloom in all processes of the cluster"
        )

    def _late(self, timeout: float | None) -> Timeout:
        return Timeout(
            f"an answer of {self.peer}",
            f"nothing came for {timeout:g} s" if timeout is not None else "nothing came",
            "look at what that process does (py-spy dump --pid), or set hl.config.distributed_timeout",
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
    """A connection to a server, after both sides have shown that they have the key.

    Raises PeerLost where nobody listens there; DistributedError for a wrong key, another version, or a server of
    something else; Timeout.
    """
    host, port = split_address(address)
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
        raw.settimeout(timeout)
        return _greet(raw, key, peer, address, timeout)
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


def _greet(raw: socket.socket, key: bytes, peer: str, address: str, timeout: float) -> Stream:
    begin = b""
    while len(begin) < len(MAGIC) and (more := raw.recv(len(MAGIC) - len(begin))):
        begin += more
    if begin != MAGIC:
        raise DistributedError(
            f"a server of hloom at {address}",
            f"what listens there begins with {begin[:16]!r}" if begin else "it closed the connection",
            "check the address in the ClusterSpec, and tls= on both sides",
        )
    stream = Stream(raw, peer)
    hello, _ = stream.receive(timeout, limit=MAX_HELLO)
    _check_version(hello, f"{peer} at {address}")
    theirs, mine = str(hello.get("nonce")), secrets.token_hex(32)
    stream.send({"version": VERSION, "nonce": mine, "proof": _proof(key, "client", theirs, mine)}, timeout=timeout)
    answer, _ = stream.receive(timeout, limit=MAX_HELLO)
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
        raise DistributedError(
            f"version {VERSION} of the cluster's protocol",
            f"{who} speaks version {hello.get('version')!r}",
            "install the same version of hloom in all processes of the cluster",
        )


def accept(raw: socket.socket, key: bytes, context: ssl.SSLContext | None) -> Stream:
    """The server's side of `connect`. Raises DistributedError, OSError for who may not come in."""
    raw.settimeout(HANDSHAKE_SECONDS)
    if context is not None:
        raw = context.wrap_socket(raw, server_side=True)
    host, port = raw.getpeername()[:2]
    stream = Stream(raw, f"the client at {host}:{port}")
    raw.sendall(MAGIC)
    mine = secrets.token_hex(32)
    stream.send({"version": VERSION, "nonce": mine}, timeout=HANDSHAKE_SECONDS)
    hello, _ = stream.receive(HANDSHAKE_SECONDS, limit=MAX_HELLO)
    try:
        _check_version(hello, stream.peer)
    except DistributedError as error:
        stream.send({"error": f"this server speaks version {VERSION}"}, timeout=HANDSHAKE_SECONDS)
        raise error
    theirs = str(hello.get("nonce"))
    wanted = _proof(key, "client", mine, theirs)
    if len(theirs) != 64 or not hmac.compare_digest(str(hello.get("proof", "")).encode(), wanted.encode()):
        stream.send({"error": "the key is not that of this server"}, timeout=HANDSHAKE_SECONDS)
        raise DistributedError(f"a connection of {stream.peer}", "its key is wrong", "use this cluster's key")
    stream.send({"proof": _proof(key, "server", mine, theirs)}, timeout=HANDSHAKE_SECONDS)
    return stream


def server_context(tls: Tls) -> ssl.SSLContext:
    """What the server's side of TLS needs. Raises DistributedError for files that cannot be read."""
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


__all__ = ["VERSION", "PeerLost", "Stream", "Timeout", "accept", "connect", "error_header", "server_context"]

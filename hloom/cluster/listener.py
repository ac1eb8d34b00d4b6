"""The listener of a server: it accepts connections as long as the server lives, whatever clients do.

Until a peer has proved that it has the key it gets few resources, all of them bounded: `PENDING` connections at a time,
a thread each, `HANDSHAKE_SECONDS` for everything up to the key, and messages of `wire.MAX_HELLO` bytes without arrays.
When all slots are taken, the connection that has waited longest is dropped: peers with the key need only milliseconds.
When the process has no descriptors left, a reserved one is used to take connections off the queue.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from hloom.cluster.peers import say
from hloom.cluster.wire import HANDSHAKE_SECONDS, PeerLost, Stream, accept
from hloom.errors import HloomError

__all__ = ["PENDING", "Listener"]

PENDING = 64  # connections before authentication
PAUSE = 0.05  # seconds after an accept that failed
QUIET = 10.0  # seconds between lines about refused connections


class Listener:
    """Accepts connections at a socket. serve: called with each authenticated stream, in a separate thread; it closes
    the stream. name: of the task. most: maximal number of authenticated connections."""

    def __init__(
        self, listening: socket.socket, key: bytes, context: ssl.SSLContext | None, name: str,
        serve: Callable[[Stream], None], most: int,
    ):  # fmt: skip
        self._socket, self._key, self._context, self._name, self._serve = listening, key, context, name, serve
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._pending: OrderedDict[int, socket.socket] = OrderedDict()  # by number, the oldest first
        self._places = threading.Semaphore(PENDING)
        self._most, self._served, self._count = most, 0, 0
        self._said, self._unsaid = 0.0, 0
        self._reserve: int | None = _reserve()
        threading.Thread(target=self._accept, name=f"hloom server {name}", daemon=True).start()

    def stop(self) -> None:
        """Ends the listening; connections that are not authenticated are closed."""
        self._ended.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            for one in self._pending.values():
                _shut_down(one)
            reserve, self._reserve = self._reserve, None
        if reserve is not None:
            os.close(reserve)

    # --- accepting ---

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                raw, _ = self._socket.accept()
            except OSError as error:
                self._failed(error)
                continue
            try:
                self._begin(raw)
            except Exception as error:  # for example, no thread can be started; the next connection may succeed
                raw.close()
                self._refused(f"{type(error).__name__}: {error}")
                time.sleep(PAUSE)

    def _failed(self, error: OSError) -> None:
        """Recovers when no connection could be accepted; the listener never stops."""
        if self._ended.is_set():
            return
        self._refused(f"no connection could be accepted: {error.strerror or error}")
        full, reserve = error.errno in (errno.EMFILE, errno.ENFILE), None
        with self._lock:
            if full:
                reserve, self._reserve = self._reserve, None
            if self._pending:
                _shut_down(next(iter(self._pending.values())))
        if reserve is not None:  # its descriptor takes the next connection off the queue, which may retry
            os.close(reserve)
            timeout = self._socket.gettimeout()
            try:
                self._socket.settimeout(0)
                self._socket.accept()[0].close()
            except OSError:
                pass
            finally:
                with contextlib.suppress(OSError):
                    self._socket.settimeout(timeout)
        self._ended.wait(PAUSE)
        with self._lock:
            if self._reserve is None and not self._ended.is_set():
                self._reserve = _reserve()

    def _begin(self, raw: socket.socket) -> None:
        """Starts a connection's thread; the one that has waited longest makes room where there is none."""
        if not self._places.acquire(blocking=False):
            with self._lock:
                if self._pending:
                    _shut_down(self._pending.popitem(last=False)[1])
            if not self._places.acquire(timeout=1.0):  # that thread ends as soon as it runs
                raw.close()
                self._refused("too many connections that show no key")
                return
        with self._lock:
            number, self._count = self._count, self._count + 1
            self._pending[number] = raw
        try:
            threading.Thread(target=self._run, args=(raw, number), daemon=True).start()
        except RuntimeError:
            self._settle(number)
            raise

    # --- a connection ---

    def _run(self, raw: socket.socket, number: int) -> None:
        try:
            try:
                stream = self._greeted(raw, number)
            finally:
                self._settle(number)
        except PeerLost:  # port scans and health checks connect and leave
            return
        except HloomError as error:
            self._refused(error.found)
            return
        except Exception as error:  # input from an unauthenticated peer causes no more than this line
            self._refused(f"{type(error).__name__}: {error}")
            return
        with self._lock:
            full = self._served >= self._most
            self._served += not full
        if full:
            self._refused(f"there are {self._most} connections")
            stream.close()
            return
        try:
            self._serve(stream)
        finally:
            with self._lock:
                self._served -= 1

    def _greeted(self, raw: socket.socket, number: int) -> Stream:
        """The stream of a peer that has the key; otherwise the connection is closed."""
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        connection = raw
        try:
            if self._context is not None:
                raw.settimeout(HANDSHAKE_SECONDS)
                connection = self._context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
                with self._lock:
                    if number in self._pending:
                        self._pending[number] = connection
                    else:  # it has made room for others in the meantime
                        _shut_down(connection)
                connection.do_handshake()
            return accept(connection, self._key, deadline)
        except BaseException:
            connection.close()
            raise

    def _settle(self, number: int) -> None:
        with self._lock:
            self._pending.pop(number, None)
        self._places.release()

    def _refused(self, found: str) -> None:
        """Says why a connection was refused; of many, how many there were."""
        with self._lock:
            now = time.monotonic()
            if self._said and now - self._said < QUIET:
                self._unsaid += 1
                return
            more = f" ({self._unsaid} more were refused)" if self._unsaid else ""
            self._said, self._unsaid = now, 0
        say(f"{self._name} refused a connection: {found}{more}")


def _reserve() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return None


def _shut_down(connection: socket.socket) -> None:
    """Ends a connection for the thread that waits in it, which closes it."""
    with contextlib.suppress(OSError, ValueError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)

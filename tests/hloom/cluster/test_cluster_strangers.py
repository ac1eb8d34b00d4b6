"""Who does not have the key: bounded in time, memory, threads and connections, and never the end of the listening."""

import errno
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from hloom.cluster import ClusterSpec, Server, connect, free_addresses, listener, wire
from hloom.errors import DistributedError

pytestmark = pytest.mark.quick
KEY = b"a key of the tests, 32 bytes....."
# As texts of headers: Python's json would not write some of them.
MALFORMED = {
    "deep": "[" * 4000,
    "deep object": '{"a":' * 800,
    "infinity": '{"version": 1, "nonce": Infinity}',
    "nan": '{"version": NaN}',
    "large float": '{"version": 1e999, "nonce": "0"}',
    "large integer": '{"version": ' + "9" * 4000 + "}",
    "lone surrogate": '{"version": 1, "nonce": "' + "\\ud800" * 64 + '", "proof": "\\udfff"}',
    "no unicode": b'{"version": 1, "nonce": "\xed\xa0\x80\xff"}',
    "utf-16": '{"version": 1}'.encode("utf-16"),
    "no object": "[1, 2]",
    "no json": "{version",
    "empty": "",
    "other types": '{"version": 1, "nonce": {"a": []}, "proof": ["x"]}',
    "no nonce": '{"version": 1}',
    "no ascii": '{"version": 1, "nonce": "' + "ü" * 64 + '", "proof": "ü"}',
    "another version": '{"version": [1]}',
    "arrays": '{"version": 1, "arrays": [["f32", [4294967296]], ["f64", [536870912]]]}',
}
KEYED = {name: text for name, text in MALFORMED.items() if name != "arrays"} | {
    "infinite sizes": '{"arrays": [["f32", [1e999]]]}',
    "sizes of text": '{"arrays": [["f32", ["3"]]]}',
    "fractions": '{"arrays": [["f32", [1.5]]]}',
    "truth": '{"arrays": [["f32", [true]]]}',
    "too large": '{"arrays": [["f32", [0, 9223372036854775808]]]}',
}


def frame(text) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("!I", len(data)) + data


@pytest.fixture
def server(monkeypatch):
    """A server in whose threads nothing is raised that is not handled."""
    unhandled = []
    monkeypatch.setattr(threading, "excepthook", lambda found: unhandled.append(found.exc_value))
    with Server(ClusterSpec({"local": free_addresses(1)}, key=KEY), "local", 0) as made:
        yield made
    assert unhandled == []


def knock(server) -> socket.socket:
    host, port = server.address.split(":")
    return socket.create_connection((host, int(port)), 10)


def read(raw) -> bytes:
    """What comes until the other side closes."""
    found = b""
    try:
        while more := raw.recv(65536):
            found += more
    except ConnectionResetError:  # what it did not read
        pass
    return found


def waited(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_hello_is_answered_and_the_connection_closed(server, text):
    with knock(server) as raw:
        raw.sendall(frame(text))
        began = time.monotonic()
        found = read(raw)
        assert time.monotonic() - began < 5
    assert found.startswith(wire.MAGIC) and b'"error":' in found
    waited(lambda: not server._listener._pending)
    with connect(server) as link:
        assert link.status()["task"] == "/job:local/task:0"


@pytest.mark.parametrize("text", KEYED.values(), ids=KEYED)
def test_who_has_the_key_gets_an_error_for_what_is_no_message(server, text):
    stream = wire.connect(server.address, KEY, None, "the server")
    stream._socket.sendall(frame(text))
    answer, _ = stream.receive(5)
    assert "error" in answer
    stream.close()
    waited(lambda: not server._streams)
    with connect(server) as link:
        assert link.status()["task"] == "/job:local/task:0"


def test_no_memory_is_taken_before_the_key(server):
    """A hello that announces 64 GiB, and then sends: the connection is closed instead of reading it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with knock(server) as raw:
        raw.sendall(frame(MALFORMED["arrays"]))
        with pytest.raises(OSError):
            for _ in range(500):
                raw.sendall(bytes(1 << 20))
                time.sleep(0.001)
    with knock(server) as raw:  # and a header of 4 GiB
        raw.sendall(struct.pack("!I", 0xFFFFFFFF))
        assert b"of at most 4096" in read(raw)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_one_deadline_for_everything_before_the_key(server, monkeypatch):
    """However many bytes come: half a hello, byte by byte."""
    monkeypatch.setattr(listener, "HANDSHAKE_SECONDS", 1.0)
    hello, began = frame('{"version": 1' + " " * 4000), time.monotonic()
    with knock(server) as raw:
        raw.settimeout(0.1)
        found = b""
        with pytest.raises(OSError):  # closed
            for byte in hello:
                raw.sendall(bytes([byte]))
                try:
                    more = raw.recv(1000)
                    if not more:
                        raise ConnectionResetError
                    found += more
                except TimeoutError:
                    pass
        assert 0.8 < time.monotonic() - began < 5
        assert found.startswith(wire.MAGIC)


def test_the_one_who_has_waited_longest_makes_room(server):
    """More connections than places, which say nothing: who has the key comes in, and there are few threads."""
    before, silent = threading.active_count(), [knock(server) for _ in range(listener.PENDING + 40)]
    try:
        began = time.monotonic()
        with connect(server) as link:
            assert link.status()["task"] == "/job:local/task:0"
            assert time.monotonic() - began < wire.HANDSHAKE_SECONDS / 2
            assert threading.active_count() - before <= listener.PENDING + 4
        silent[0].settimeout(5)
        read(silent[0])  # it was closed
        assert len(server._listener._pending) <= listener.PENDING
    finally:
        for one in silent:
            one.close()
    waited(lambda: threading.active_count() <= before)


def test_connections_with_the_key_are_counted_too(monkeypatch, capfd):
    with Server(ClusterSpec({"local": free_addresses(1)}, key=KEY), "local", 0) as server:
        server._listener._most = 3
        streams = [wire.connect(server.address, KEY, None, "the server") for _ in range(3)]
        more = wire.connect(server.address, KEY, None, "the server")
        with pytest.raises(DistributedError):
            more.send({"op": "status"})
            more.receive(5)
        for one in [*streams, more]:
            one.close()
        waited(lambda: server._listener._served == 0)
        with connect(server) as link:
            assert link.status()["task"] == "/job:local/task:0"
    assert "there are 3 connections" in capfd.readouterr().err


class _Failing:
    """A socket whose accept fails some times first."""

    def __init__(self, real, errors):
        self._real, self._errors = real, list(errors)

    def accept(self):
        if self._errors:
            raise OSError(self._errors[0], os.strerror(self._errors.pop(0)))
        return self._real.accept()

    def __getattr__(self, name):
        return getattr(self._real, name)


def test_accepting_never_ends(server, monkeypatch, capfd):
    errors = [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED, errno.ENOBUFS, errno.ENOMEM, errno.EPERM, errno.EPROTO]
    monkeypatch.setattr(listener, "PAUSE", 0.001)
    server._listener._socket = _Failing(server._listener._socket, errors)
    knock(server).close()  # the one that the real socket is waiting for
    with connect(server, timeout=5) as link:
        assert link.status()["task"] == "/job:local/task:0"
    assert not server._listener._socket._errors
    monkeypatch.setattr(threading.Thread, "start", lambda self: (_ for _ in ()).throw(RuntimeError("can't start")))
    with knock(server) as raw:
        assert read(raw) == b""
    monkeypatch.undo()
    with connect(server, timeout=5) as link:
        assert link.status()["task"] == "/job:local/task:0"
    assert "no connection could be accepted" in capfd.readouterr().err


PROGRAM = """
import resource, sys, time
from hloom.cluster import ClusterSpec, Server
server = Server(ClusterSpec({"local": [sys.argv[1]]}, key=b"a key of the tests, 32 bytes....."), "local", 0)
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
print("ready", flush=True)
server.join()
"""


def test_a_server_without_descriptors_left(capfd):
    (address,) = free_addresses(1)
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, address], stdout=subprocess.PIPE, text=True)
    host, port = address.split(":")
    silent = []
    try:
        assert process.stdout.readline() == "ready\n"
        for _ in range(80):
            silent.append(socket.create_connection((host, int(port)), 10))
        time.sleep(0.3)
        spec = ClusterSpec({"local": [address]}, key=KEY)
        for one in silent[:60]:
            one.close()
        began = time.monotonic()
        with connect(spec, timeout=20) as link:
            assert link.status()["task"] == "/job:local/task:0"
        assert time.monotonic() - began < 15 and process.poll() is None
    finally:
        for one in silent:
            one.close()
        process.kill()
        process.wait()
        process.stdout.close()
    assert "Too many open files" in capfd.readouterr().err


def test_errors_with_text_that_is_no_unicode_arrive(server):
    """A name of a file, for one."""
    a, b = socket.socketpair()
    first, second = (wire.Stream.__new__(wire.Stream) for _ in range(2))
    for stream, raw in ((first, a), (second, b)):
        stream._socket, stream.peer = raw, "the other"
    first.send(wire.error_header(DistributedError("reading x\udcff", "\ud800 😀", "é")))
    answer, _ = second.receive(5)
    assert answer["asked"] == "reading x?" and answer["found"] == "? 😀" and answer["repair"] == "é"
    with pytest.raises(ValueError):
        first.send({"timeout": float("nan")})
    first.send({"x": 1}, [np.zeros((0, 1 << 40), np.float32)])
    assert second.receive(5)[1][0].shape == (0, 1 << 40)
    a.sendall(frame(json.dumps({"arrays": [["f32", [0, 1 << 63]]]})))
    with pytest.raises(DistributedError):
        second.receive(5)
    first.close()
    second.close()

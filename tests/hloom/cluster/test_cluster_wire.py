"""Clusters: addresses and keys, and who may come in."""

import json
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import hloom as hl
from hloom.cluster import ClusterSpec, Server, Tls, connect, free_addresses, spec, wire
from hloom.cluster.programs import part_handle
from hloom.commands import main
from hloom.errors import ArgumentError, DeviceError, DistributedError, MissingFileError

pytestmark = pytest.mark.quick
KEY = b"a key of the tests, 32 bytes....."


@pytest.fixture
def server():
    with Server(ClusterSpec({"local": free_addresses(1)}, key=KEY), "local", 0) as made:
        yield made


# --- which tasks there are ---


def test_the_tasks_of_a_cluster():
    cluster = ClusterSpec({"worker": ["a:1", "b:2"], "ps": {3: "c:4"}}, key=KEY)
    assert [str(task) for task in cluster.tasks] == ["/job:worker/task:0", "/job:worker/task:1", "/job:ps/task:3"]
    assert cluster.address(spec.parse_task("/job:ps/task:3/cpu:0")) == "c:4"
    assert cluster.num_tasks("worker") == 2 and ClusterSpec(cluster) == cluster
    assert cluster.as_dict() == {"worker": {0: "a:1", 1: "b:2"}, "ps": {3: "c:4"}}


@pytest.mark.parametrize(
    ("jobs", "says"),
    [
        ({}, "mapping of jobs"),
        ({"worker": []}, "no tasks"),
        ({"worker": ["host"]}, "host:port"),
        ({"worker": ["host:99999"]}, "host:port"),
        ({"a job": ["a:1"]}, "letters, digits"),
        ({"worker": ["a:1"], "ps": ["a:1"]}, "that of /job:worker/task:0 too"),
    ],
)
def test_malformed_clusters(jobs, says):
    with pytest.raises(ArgumentError, match=says):
        ClusterSpec(jobs)


def test_unknown_jobs_and_tasks_name_the_nearest():
    cluster = ClusterSpec({"worker": ["a:1"], "ps": ["b:1"]})
    with pytest.raises(DistributedError, match="did you mean 'worker'"):
        cluster.num_tasks("wroker")
    with pytest.raises(DistributedError, match="has the tasks 0"):
        cluster.address(spec.Task("ps", 4))


def test_short_keys_are_refused():
    with pytest.raises(ArgumentError, match="at least 16 bytes"):
        ClusterSpec({"a": ["b:1"]}, key=b"short")


def test_the_key_file_is_made_once_for_its_owner_only(tmp_path):
    path = tmp_path / "folder" / "key"
    keys: list[bytes] = []
    threads = [threading.Thread(target=lambda: keys.append(spec.key_of_file(str(path), make=True))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(keys)) == 1 and len(keys[0]) == 32 and len(keys) == 4
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(DistributedError, match="other users may read it"):
        spec.key_of_file(str(path))
    path.write_text("no key")
    path.chmod(0o600)
    with pytest.raises(DistributedError, match="not a hexadecimal text"):
        spec.key_of_file(str(path))


def test_a_key_file_that_is_named_and_missing_is_an_error(tmp_path):
    """A file in its place would let nobody in."""
    path = tmp_path / "copied_key"
    with hl.config(cluster_key_file=str(path)):
        with pytest.raises(MissingFileError) as caught:
            Server({"local": free_addresses(1)})
        assert str(path) in caught.value.asked and "hloom cluster key" in caught.value.repair
        assert caught.value.source.file == __file__ and not path.exists()
        assert main(["cluster", "key"]) == 0
        made = path.read_text()
        assert ClusterSpec({"a": ["b:1"]}).key == bytes.fromhex(made.strip()) and path.stat().st_mode & 0o777 == 0o600
        assert main(["cluster", "key", str(path)]) == 0 and path.read_text() == made
    path.chmod(0o644)
    assert main(["cluster", "key", str(path)]) == 2


def test_a_port_in_use(server):
    with pytest.raises(DistributedError, match=r"(?s)at 127\.0\.0\.1.*in use.*another port"):
        Server(server.spec, "local", 0)


# --- who may come in ---


def test_a_wrong_key_is_refused_and_says_so(server, capfd):
    with pytest.raises(DistributedError, match="key is not that of this server"):
        connect(server.target, key=b"another key of 16 bytes", timeout=2)
    said, end = capfd.readouterr().err, time.monotonic() + 10
    while "refused a connection: its key is wrong" not in said and time.monotonic() < end:
        time.sleep(0.01)  # the server's thread says it after the client has its answer
        said += capfd.readouterr().err
    assert "refused a connection: its key is wrong" in said


def test_a_server_without_the_key_is_refused():
    """The client, too, wants to see that the other side has the key, before it sends anything of use."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pretend():
            raw, _ = listener.accept()
            stream = wire.Stream(raw, "client")
            raw.sendall(wire.MAGIC)
            stream.send({"version": wire.VERSION, "nonce": "0" * 64})
            stream.receive(5)
            stream.send({"proof": "0" * 64})
            raw.close()

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(DistributedError, match="does not have the key"):
            wire.connect(f"127.0.0.1:{listener.getsockname()[1]}", KEY, None, "the other")
        thread.join()


def _answering(data: bytes):
    listener = socket.create_server(("127.0.0.1", 0))

    def answer():
        raw, _ = listener.accept()
        raw.sendall(data)
        raw.close()
        listener.close()

    threading.Thread(target=answer).start()
    return f"127.0.0.1:{listener.getsockname()[1]}"


def _frame(header) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("!I", len(text)) + text


def test_an_old_peer_is_named_with_its_version():
    address = _answering(wire.MAGIC + _frame({"version": 0, "nonce": "0"}))
    with pytest.raises(DistributedError, match="speaks version 0"):
        wire.connect(address, KEY, None, "/job:ps/task:0")


def test_another_service_at_the_port():
    address = _answering(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(DistributedError, match="answers with b'HTTP"):
        wire.connect(address, KEY, None, "/job:ps/task:0")


def test_who_listens_and_says_nothing_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(DistributedError, match="did not greet within 0.2 s"):
            wire.connect(f"127.0.0.1:{listener.getsockname()[1]}", KEY, None, "/job:ps/task:0", timeout=0.2)


def _received(data: bytes):
    """What a stream makes of bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        a = socket.create_connection(listener.getsockname())
        b, _ = listener.accept()
    a.sendall(data)
    try:
        return wire.Stream(b, "the other").receive(1)
    finally:
        a.close()
        b.close()


@pytest.mark.parametrize(
    "arrays", [[["f32", [1 << 40]]], [["f32", [-1]]], [["object", [1]]], [["f32", "no"]], "no", [["f32", [1] * 65]]]
)
def test_messages_are_checked_before_memory_is_allocated(arrays):
    with pytest.raises(DistributedError, match="an array|a list of arrays|more than"):
        _received(_frame({"arrays": arrays}))


@pytest.mark.parametrize("data", [struct.pack("!I", 1 << 31), _frame([1]), struct.pack("!I", 3) + b"{no"])
def test_a_header_that_is_too_long_or_no_json(data):
    with pytest.raises(DistributedError, match="a message of the other"):
        _received(data)


def test_arrays_of_all_kinds_arrive_as_they_were():
    sent = [
        np.float32(3),
        np.zeros((0, 3)),
        np.arange(6).reshape(2, 3).T,
        np.array([True]),
        np.ones(2, hl.numpy.bfloat16),
    ]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        a = wire.Stream(socket.create_connection(listener.getsockname()), "b")
        b = wire.Stream(listener.accept()[0], "a")
    a.send({"op": "x"}, [np.asarray(x) for x in sent])
    header, found = b.receive(1)
    assert header == {"op": "x"}
    for x, y in zip(sent, found, strict=True):
        assert np.asarray(x).shape == y.shape and np.asarray(x).dtype == y.dtype and np.array_equal(x, y)
    a.close()
    b.close()


def test_unknown_operations_and_errors_come_back(server):
    with connect(server) as link:
        peer = link.peers[server.task]
        with pytest.raises(DistributedError, match="'fly'"):
            peer.request({"op": "fly"})
        with pytest.raises(DistributedError, match="its text and its handle differ"):
            peer.request({"op": "program", "handle": "0", "channels": {}}, [np.zeros(3, np.uint8)])
        text = np.frombuffer(b"HloomModule nonsense", np.uint8)
        with pytest.raises(hl.errors.ParseError):
            peer.request({"op": "program", "handle": part_handle(text.tobytes(), {}), "channels": {}}, [text])
        assert link.status()["task"] == "/job:local/task:0"


def test_a_server_of_another_task(server):
    other = ClusterSpec({"ps": [server.address]}, key=KEY)
    with pytest.raises(DistributedError, match="that server is /job:local/task:0"):
        connect(other, timeout=1)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on PATH to make a certificate")
def test_over_tls(tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
        f"-addext subjectAltName=DNS:localhost -keyout {key} -out {certificate}"
    )
    subprocess.run(made.split(), check=True, capture_output=True)
    port = free_addresses(1)[0].rpartition(":")[2]
    tls = Tls(str(certificate), str(key), str(certificate))
    cluster = ClusterSpec({"local": [f"localhost:{port}"]}, key=KEY, tls=tls)
    x = np.arange(300000, dtype=np.float32)
    with Server(cluster, "local", 0), connect(cluster), hl.device("/job:local/task:0"):
        assert np.array_equal(hl.jit(lambda x: x + 1)(x), x + 1)
        with pytest.raises(DistributedError, match="whether it expects TLS|tls= on both sides|closed"):
            wire.connect(f"localhost:{port}", KEY, None, "without TLS", timeout=1)
    with pytest.raises(DistributedError, match="certificate"):
        Server(ClusterSpec(cluster, tls=Tls("absent", "absent", "absent")), "local", 0)


# --- names of devices ---


def test_names_of_tasks_are_devices_while_connected(server):
    with connect(server) as link:
        assert str(link.device) == "/job:local/task:0/cpu:0"
        with hl.device("/job:local/task:0") as device:
            assert device == link.device
        with pytest.raises(DeviceError, match=r"(?s)/job:local/task:0.*did you mean /job:local/task:0/cpu:0"):
            hl.device("/job:locla/task:1")
    server.stop()  # in this process it makes the names known as well
    with pytest.raises(DeviceError):
        hl.device("/job:local/task:0")


def test_a_killed_server_is_an_error_not_a_wait(tmp_path):
    (address,) = free_addresses(1)
    program = tmp_path / "serve.py"
    program.write_text(
        f"import hloom as hl\nhl.cluster.Server(hl.cluster.ClusterSpec({{'a': ['{address}']}}, key={KEY!r})).join()\n"
    )
    process = subprocess.Popen([sys.executable, str(program)])
    try:
        with connect(ClusterSpec({"a": [address]}, key=KEY), timeout=30):
            x = hl.device_put(np.ones(3, np.float32), "/job:a/task:0")
            f = hl.jit(lambda x: x + 1)
            assert np.asarray(f(x)).tolist() == [2, 2, 2]
            process.kill()
            process.wait()
            with pytest.raises(DistributedError, match="connection"):
                f(x)
            with pytest.raises(DistributedError), hl.config(distributed_timeout=0.3):
                f(x)
            process = subprocess.Popen([sys.executable, str(program)])
            with hl.device("/job:a/task:0"):  # the program is sent again
                assert np.asarray(f(np.zeros(3, np.float32))).tolist() == [1, 1, 1]
            with pytest.raises(DistributedError, match="was restarted"):
                f(x)
    finally:
        process.kill()
        process.wait()

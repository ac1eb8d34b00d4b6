"""Programs over the tasks of a cluster: parts, sends between servers, arrays that stay where they are."""

import contextlib
import gc
import threading
import time

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.cluster import ClusterSpec, Server, connect, free_addresses
from hloom.cluster.rendezvous import Channel, Rendezvous
from hloom.errors import DeviceError, DistributedError

pytestmark = pytest.mark.quick
KEY = b"a key of the tests, 32 bytes....."
ONE, TWO = "/job:local/task:0", "/job:local/task:1/cpu:0"


@pytest.fixture(scope="module")
def servers():
    cluster = ClusterSpec({"local": free_addresses(2)}, key=KEY)
    with Server(cluster, "local", 0) as a, Server(cluster, "local", 1) as b:
        yield a, b


@pytest.fixture
def link(servers):
    with connect(servers[0]) as made:
        yield made


def layered(x, w):
    with hl.device(ONE):
        h = hnp.tanh(x @ w)
    with hl.device(TWO):
        return hnp.sum(h**2), h * 2


X, W = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8), np.full((8, 3), 0.1, np.float32)


def test_parts_run_where_the_user_says(link):
    total, doubled = hl.jit(layered)(X, W)
    assert str(total.device) == "/job:local/task:1/cpu:0" == str(doubled.device)
    h = np.tanh(X @ W)
    np.testing.assert_allclose(np.asarray(doubled), 2 * h, rtol=1e-5)
    np.testing.assert_allclose(float(total), np.sum(h**2), rtol=1e-5)


def test_cut_edges_are_sends_and_receives(link):
    compiled = hl.jit(layered).lower(X, W).compile()
    text = compiled.as_text()
    first, _, second = text.partition("// /job:local/task:1\n")
    assert first.count(" send(") == 1 and second.count(" recv(") == 1
    assert "tanh" in first and "tanh" not in second
    assert compiled.cost_analysis()["bytes sent"] == 4 * 3 * 4


def test_derivatives_run_where_their_operations_do(link, capfd):
    with hl.config(log_device_placement=True):
        gradient = hl.jit(hl.grad(lambda x, w: layered(x, w)[0], argnums=1))(X, W)
    lines = capfd.readouterr().err.splitlines()
    assert any(line.startswith("hloom: h: (tanh) /job:local/task:0/cpu:0 at ") for line in lines)
    assert any(line.startswith("hloom: device /job:local/task:0/cpu:0: name: ") for line in lines)
    assert str(gradient.device) == "/job:local/task:0/cpu:0"
    h = np.tanh(X @ W)
    np.testing.assert_allclose(np.asarray(gradient), X.T @ (2 * h * (1 - h * h)), rtol=1e-4, atol=1e-6)


def test_arrays_stay_with_their_task(link):
    s = hl.device_put(np.zeros(4, np.float32), ONE)
    w = hl.device_put(np.full(4, 2, np.float32), ONE)

    @hl.jit(donate_argnums=2)
    def step(w, x, s):
        with hl.device(TWO):
            product = w * x + 1
        with hl.device(ONE):
            return s + product

    before = link.status()["runs"]
    for _ in range(3):
        s = step(w, np.arange(4, dtype=np.float32), s)
    assert str(s.device) == "/job:local/task:0/cpu:0" and link.status()["runs"] == before + 3
    assert s.tolist() == [3, 9, 15, 21]


def test_arrays_that_nobody_holds_are_freed(link):
    f = hl.jit(lambda x: x + 1)
    x = hl.device_put(np.zeros((300, 1000), np.float32), ONE)
    for _ in range(5):
        x = f(x)
    del x
    gc.collect()
    f(hl.device_put(np.zeros(3, np.float32), ONE))
    assert link.status()["bytes"] < 10_000


def test_what_a_client_kept_is_freed_when_it_leaves(servers):
    with connect(servers[1]) as link:
        kept = hl.device_put(np.zeros(100_000, np.float32), TWO)
        assert link.status()["bytes"] >= kept.nbytes
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with connect(servers[1]) as link:
            if link.status()["bytes"] == 0:
                return
        time.sleep(0.05)
    pytest.fail("the array is still there")


def test_a_client_stays_while_one_of_its_connections_does(servers):
    """Threads that find a task lost attach again at the same time: the end of one lease must not end the client."""
    with connect(servers[0]) as link:
        peer = link.peers[servers[0].task]
        held = hl.device_put(np.arange(3, dtype=np.float32), ONE)
        peer.attach()  # closes the first lease, whose end the server may see later
        time.sleep(0.2)
        assert np.asarray(held).tolist() == [0, 1, 2]
        assert np.asarray(hl.jit(lambda v: v + 1)(held)).tolist() == [1, 2, 3]
        held = None
    deadline = time.monotonic() + 10
    while servers[0].status()["bytes"] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not servers[0].status()["bytes"], "with its last connection the client is forgotten"


def test_eager_work_on_arrays_of_a_task(link):
    x = hl.device_put(np.arange(3, dtype=np.float32), TWO)
    assert (x + 1).tolist() == [1, 2, 3] and hl.jit(lambda x: x * 2)(x + 1).tolist() == [2, 4, 6]
    assert np.asarray(x).tolist() == [0, 1, 2] and float(x[2]) == 2


def test_loops_and_branches_across_tasks(link):
    def body(i, carry):
        with hl.device(ONE):
            carry = carry + hnp.float32(i)
        with hl.device(TWO):
            return carry * 2

    loop = lambda x: hl.lax.fori_loop(0, 20, body, x)  # noqa: E731
    wanted = np.float32(1)
    for i in range(20):
        wanted = (wanted + np.float32(i)) * 2
    assert float(hl.jit(loop)(np.float32(1))) == wanted

    def until(x):
        def more(c):
            with hl.device(TWO):
                return hnp.sum(c) < 100

        def grow(c):
            with hl.device(ONE):
                return c * 1.5 + 1

        return hl.lax.while_loop(more, grow, x)

    found, wanted = hl.jit(until)(np.ones(3, np.float32)), np.ones(3, np.float32)
    while wanted.sum() < 100:
        wanted = wanted * np.float32(1.5) + 1
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6)

    def choose(p, x):
        def yes(x):
            with hl.device(ONE):
                y = x + 1
            with hl.device(TWO):
                return y * 3

        def no(x):
            with hl.device(TWO):
                return x - 1

        return hl.lax.cond(p, yes, no, x)

    chosen = hl.jit(choose)
    assert float(chosen(True, np.float32(2))) == 9 and float(chosen(False, np.float32(2))) == 1


def test_each_part_is_sent_once(link, servers):
    f = hl.jit(lambda x: x * 3 - 1)
    with hl.device(TWO):
        f(np.ones(5, np.float32))
        before = link.status(servers[1].task)["programs"]
        for _ in range(4):
            f(np.ones(5, np.float32))
    assert link.status(servers[1].task)["programs"] == before


def test_a_value_has_readers_on_several_tasks():
    """The part that sends has the same text for each reader: it is known by its channels as well."""
    cluster = ClusterSpec({"worker": free_addresses(3)}, key=KEY)

    def reader(task):
        def read(w):
            with hl.device(f"/job:worker/task:{task}"):
                return hnp.tanh(w)

        return hl.jit(read)

    with hl.config(distributed_timeout=10), contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(cluster, "worker", k)) for k in range(3)]
        stack.enter_context(connect(servers[0]))
        w = hl.device_put(np.ones(3, np.float32), "/job:worker/task:0")
        for task in (1, 2, 1, 2):
            np.testing.assert_allclose(reader(task)(w), np.tanh(np.ones(3)), rtol=1e-6)


def test_an_error_on_one_task_ends_the_others(link, servers):
    def failing(x):
        with hl.device(ONE):
            y = hl.lax.fori_loop(0, 3, lambda i, c: c + 1, x)
        with hl.device("/job:local/task:1/cpu:7"):
            return y * 2

    started = time.monotonic()
    with pytest.raises(DeviceError, match=r"cpu:7.*\n.*on /job:local/task:1"):
        hl.jit(failing)(np.ones(3, np.float32))
    assert time.monotonic() - started < 20
    assert float(hl.jit(layered)(X, W)[0]) > 0  # the servers go on


def test_calls_from_several_threads(link):
    f = hl.jit(layered)
    wanted = float(f(X, W)[0])
    found: list[float] = []
    threads = [threading.Thread(target=lambda: found.extend(float(f(X, W)[0]) for _ in range(5))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [wanted] * 20


def test_a_wait_ends_and_names_whom_it_was_for():
    meeting = Rendezvous()
    with pytest.raises(DistributedError, match=r"(?s)channel 3 from /job:ps/task:0.*nothing came for 0.1 s"):
        meeting.take(Channel("run", 3, "me"), "/job:ps/task:0", 0.1)
    threading.Timer(0.1, lambda: meeting.end("run", "division failed")).start()
    with pytest.raises(DistributedError, match="division failed"):
        meeting.take(Channel("run", 3, "me"), "/job:ps/task:0", 10)
    meeting.put(Channel("run", 3, "me"), np.zeros(1), 1)  # too late: dropped
    with pytest.raises(DistributedError, match="division failed"):
        meeting.take(Channel("run", 4, "me"), "/job:ps/task:0", 10)  # asked too late: it does not wait
    assert not meeting._runs and not meeting.waits()


def test_a_sender_waits_for_a_slow_receiver():
    meeting = Rendezvous()
    for step in range(2):
        meeting.put(Channel("run", 1, "me", step), np.full(1, step), 1)
    with pytest.raises(DistributedError, match="room for a value"):
        meeting.put(Channel("run", 1, "me", 2), np.zeros(1), 0.05)
    assert meeting.take(Channel("run", 1, "me", 0), "x", 1) == 0
    meeting.put(Channel("run", 1, "me", 2), np.full(1, 2), 1)
    assert [int(meeting.take(Channel("run", 1, "me", k), "x", 1)[0]) for k in (1, 2)] == [1, 2]

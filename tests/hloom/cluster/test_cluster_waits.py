"""Tasks that are not there yet: who waits says so, and what a process may name before it knows a cluster."""

from __future__ import annotations

import re
import threading
import time

import numpy as np
import pytest

import hloom as hl
from hloom.cluster import ClusterSpec, Server, connect, peers
from hloom.cluster.spec import free_addresses
from hloom.errors import DeviceError, DistributedError
from hloom.sessions import Program, Session, constant, target, variable

KEY = bytes(range(32))


@pytest.fixture
def spec():
    addresses = free_addresses(3)
    return ClusterSpec({"ps": addresses[:2], "worker": addresses[2:]}, key=KEY)


@pytest.fixture
def starting(spec):
    """Starts the servers of tasks after a while; they end with the test."""
    made: list[Server] = []

    def start(*tasks, after=0.4):
        def run():
            time.sleep(after)
            made.extend(Server(spec, job, index) for job, index in tasks)

        threading.Thread(target=run).start()

    yield start
    for server in made:
        server.stop()


def lines(capfd):
    return [line for line in capfd.readouterr().err.splitlines() if "waiting for" in line]


def test_one_line_says_who_is_waited_for_and_until_when(spec, capfd, monkeypatch):
    address = spec.jobs["ps"][0]
    began = time.time()
    with pytest.raises(DistributedError, match="Connection refused"):
        connect(spec, timeout=0.4)
    (line,) = lines(capfd)
    found = re.fullmatch(
        rf"hloom: waiting for /job:ps/task:0 at {address} \(Connection refused\) until (\d\d:\d\d:\d\d)", line
    )
    assert found and found[1] in {time.strftime("%H:%M:%S", time.localtime(began + s)) for s in (0, 0.4, 0.5, 1, 1.5)}
    monkeypatch.setattr(peers, "AGAIN", 0.1)
    with pytest.raises(DistributedError):
        connect(spec, timeout=0.6)
    first, *again = lines(capfd)
    assert again and all(line == first.replace("waiting", "still waiting") for line in again)
    assert not peers.waits_for_tasks()


def test_the_first_task_names_all_that_a_run_waits_for(spec, starting, capfd):
    with Server(spec, "worker", 0) as server, Program("spread") as program:
        made = []
        for k in range(2):
            with hl.device(f"/job:ps/task:{k}"):
                made.append(variable(f"w{k}", np.ones(3, np.float32)))
        total = target("total", made[0] + made[1])
        init = program.initializer()
        with Session(program, server.target, key=KEY) as session:
            starting(("ps", 0), ("ps", 1))
            waits = [None]
            watch = threading.Timer(0.25, lambda: waits.append(server.status()["waits"]))
            watch.start()
            session.run(init)
            watch.join()
            assert np.asarray(session.run(total)).tolist() == [2, 2, 2]
    found = lines(capfd)
    assert len(found) == 1 and all(f"/job:ps/task:{k} at {spec.jobs['ps'][k]} " in found[0] for k in range(2)), found
    assert sorted(w["for"].split()[0] for w in waits[1]) == ["/job:ps/task:0", "/job:ps/task:1"]


def test_devices_are_those_of_the_cluster_after_connect(spec, starting, capfd):
    local = hl.devices()
    starting(("ps", 0), ("ps", 1), ("worker", 0), after=0)
    with connect(spec):
        tasks = [f"/job:{job}/task:{k}/cpu:0" for job, k in (("ps", 0), ("ps", 1), ("worker", 0))]
        kinds = [d for d in hl.devices() if d.kind == "cpu"]
        assert [str(d) for d in kinds] == [*map(str, local[: len(kinds) - 3]), *tasks]
        assert hl.devices("cpu") == kinds and hl.device_count("cpu") == len(kinds)
        assert [str(d) for d in hl.devices("/job:ps/task:1/cpu")] == [tasks[1]]
        assert hl.local_devices() == local
        x = hl.device_put(np.ones(2, np.float32), hl.devices()[-1])
        assert x.device == hl.devices()[-1] and np.asarray(hl.jit(lambda x: x + 1)(x)).tolist() == [2, 2]
        assert hl.make_mesh((1,), ("x",)).devices.ravel().tolist() == local[:1]
        with pytest.raises(DeviceError, match="(?s)'tpu'.*/job:worker/task:0/cpu:0"):
            hl.devices("tpu")
        with pytest.raises(DeviceError, match="(?s)has the tasks /job:ps/task:0.*name the job as well"):
            hl.device("/task:3")
    assert hl.devices() == local


def test_a_server_alone_does_not_wait_to_list_devices(spec):
    local = hl.devices()
    with Server(spec, "worker", 0):
        assert hl.devices() == local


@pytest.mark.parametrize("name", ["/job:worker/task:1", "/job:ps/task:0/cpu:0", "/task:1/cpu:0"])
def test_a_task_is_named_before_the_server_exists(spec, name, monkeypatch):
    job = "ps" if "ps" in name else "worker"
    wanted = rf"(?s)knows no other tasks yet.*hl.cluster.Server\(cluster, '{job}', 0\).*hl.cluster.connect\(cluster\)"
    for use in (hl.device, hl.devices, lambda name: hl.device_put(np.ones(2), name)):
        with pytest.raises(DeviceError, match=wanted):
            use(name)
    with Program() as program, hl.device(name):
        y = constant(1.0) + 1
    with Session(program) as session, pytest.raises(DeviceError, match=wanted):
        session.run(y)
    with hl.config(cluster_task="task.json"), pytest.raises(DeviceError, match=r"server = hl.cluster.Server\(\)"):
        hl.device(name)
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(DeviceError, match=r"hl.distributed.initialize\(\) first"):
        hl.device(name)
    with Server(spec, "worker", 0), hl.device("/job:ps/task:1"):
        pass  # known from now on

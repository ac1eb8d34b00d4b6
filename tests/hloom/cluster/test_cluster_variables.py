"""Variables on parameter servers, shared by the sessions of several workers, each with its own program."""

import contextlib
import threading
import time

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.cluster import ClusterSpec, Server, free_addresses
from hloom.errors import ArgumentError, DistributedError, UninitializedError
from hloom.sessions import (
    MovingAverage,
    Program,
    Session,
    SyncReplicas,
    control_dependencies,
    global_step,
    minimize,
    placeholder,
    replica_device_setter,
    variable,
)

KEY = b"a key of the tests, 32 bytes....."
WORKERS, STEPS = 3, 20


@pytest.fixture
def servers():
    """Those of two parameter servers and three workers, by name: ps0, ps1, worker0 and so on."""
    spec = ClusterSpec({"ps": free_addresses(2), "worker": free_addresses(WORKERS)}, key=KEY)
    with hl.config(distributed_timeout=20), contextlib.ExitStack() as stack:
        yield {f"{t.job}{t.index}": stack.enter_context(Server(spec, t.job, t.index)) for t in spec.tasks}


def values_at(server) -> dict:
    return server._graphs.executor.values


def at(servers, worker: int, program: Program) -> Session:
    return Session(program, servers[f"worker{worker}"].target, key=KEY)


def regression(worker: int, optimizer=None, sync: bool = False):
    """A linear model whose variables go to the parameter servers. (program, its SyncReplicas)"""
    program, optimizer, replicas = Program("regression"), optimizer or hl.optim.sgd(0.1), None
    with program, hl.device(replica_device_setter(2, worker_device=f"/job:worker/task:{worker}")):
        x = placeholder("x", [None, 4])
        w, b = variable("w", hnp.zeros((4, 3))), variable("b", hnp.zeros(3))
        loss = program.target("loss", hnp.mean((x @ w + b - x[:, :3] * 2 - 1) ** 2))
        if sync:
            replicas = SyncReplicas(optimizer, WORKERS)
            replicas.minimize(loss, global_step=global_step())
        else:
            minimize(optimizer, loss, global_step=global_step())
        program.initializer(name="init")
    return program, replicas


def in_threads(work) -> None:
    failures = []

    def one(worker):
        try:
            work(worker)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(worker,)) for worker in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures


def until_initialized(session: Session) -> None:
    deadline = time.monotonic() + 30
    while session.uninitialized():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def train(servers, worker: int, sync: bool) -> None:
    program, replicas = regression(worker, sync=sync)
    with at(servers, worker, program) as session:
        if worker == 0:
            session.run("init")
        until_initialized(session)
        rng = np.random.default_rng(worker)
        for _ in range(STEPS):
            feed = {"x": rng.normal(size=(rng.integers(3, 9), 4)).astype(np.float32)}
            if replicas is None:
                session.run("train", feed)
            else:
                replicas.run(session, "train", feed)


@pytest.mark.parametrize("sync", [False, True])
def test_workers_train_what_the_parameter_servers_have(servers, sync):
    """No update is lost where workers update at the same time, and a synchronous step takes one gradient of each."""
    in_threads(lambda worker: train(servers, worker, sync))
    program, _ = regression(1, sync=sync)
    with at(servers, 1, program) as session:
        assert int(session.run("global_step")) == (STEPS if sync else WORKERS * STEPS)
        assert float(session.run("loss", {"x": np.eye(4, dtype=np.float32)})) < 0.6
        assert session.state()["w"].shape == (4, 3) and not session.uninitialized()
    assert not any(values_at(servers[f"worker{k}"]) for k in range(WORKERS))
    homes = {name: k for k in (0, 1) for name in values_at(servers[f"ps{k}"])}
    assert homes["w"] == homes["global_step"] == 0 and homes["b"] == 1
    assert all(homes[name] == homes[name.split("/")[1]] for name in homes if "/" in name), (
        "slots are with their variable"
    )


def test_synchronous_steps_are_those_of_the_mean_gradient(servers):
    batches = [np.random.default_rng(k).normal(size=(5, 4)).astype(np.float32) for k in range(WORKERS)]

    def work(worker):
        program, replicas = regression(worker, hl.optim.adam(0.05), sync=True)
        with at(servers, worker, program) as session:
            if worker == 0:
                session.run("init")
            until_initialized(session)
            for _ in range(4):
                replicas.run(session, "train", {"x": batches[worker]})

    in_threads(work)
    program, _ = regression(0, hl.optim.adam(0.05))
    with Session(alone := plain(hl.optim.adam(0.05))) as session:  # the mean of losses of equal batches is that of all
        session.run("init")
        for _ in range(4):
            session.run("train", {"x": np.concatenate(batches)})
        want = session.state()
    with at(servers, 0, program) as session:
        for name in ("w", "b"):
            np.testing.assert_allclose(session.run(name), want[name], rtol=1e-4, atol=1e-6)
    assert alone.name == "plain"


def plain(optimizer) -> Program:
    program = Program("plain")
    with program:
        x = placeholder("x", [None, 4])
        w, b = variable("w", hnp.zeros((4, 3))), variable("b", hnp.zeros(3))
        minimize(optimizer, hnp.mean((x @ w + b - x[:, :3] * 2 - 1) ** 2))
        program.initializer(name="init")
    return program


def test_a_worker_that_leaves_takes_no_variable_along(servers):
    program, _ = regression(0, hl.optim.sgd(0.1, momentum=0.9))
    with at(servers, 0, program) as session:
        session.run("init")
        session.run("train", {"x": np.ones((3, 4), np.float32)})
        before = session.state()
    servers["worker0"].stop()
    program, _ = regression(1, hl.optim.sgd(0.1, momentum=0.9))
    with at(servers, 1, program) as session:
        after = session.state()
        assert after.keys() == before.keys() and len(before) == 5
        for name, value in before.items():
            np.testing.assert_array_equal(after[name], value)
        session.restore({"b": np.full(3, 7, np.float32)})
        assert session.run("b").tolist() == [7, 7, 7] == values_at(servers["ps1"])["b"].tolist()
        session.run("train", {"x": np.ones((3, 4), np.float32)})
        assert int(session.run("global_step")) == 2


def test_what_is_read_after_an_update_on_another_server(servers):
    program = Program("order")
    with program, hl.device(replica_device_setter(2)):
        x = placeholder("x", [3])
        a, b = variable("a", hnp.zeros(3)), variable("b", hnp.ones(3))
        step = a.assign_add(x * b)
        with control_dependencies([step]):
            twice = program.target("twice", a * 2)
            averages = MovingAverage(0.5).apply([a, b], name="average")
            swapped = b.assign(a)
        program.group(averages, swapped, name="all")
        program.initializer(name="init")
    with at(servers, 0, program) as session:
        session.run("init")
        found = session.run({"twice": twice, "step": step, "old": b, "": "all"}, {"x": np.arange(3.0)})
        assert found["twice"].tolist() == [0, 2, 4] and found["step"].tolist() == [0, 1, 2]
        assert found["old"].tolist() == [1, 1, 1]
        assert session.run([b, "a/average", "b/average"])[0].tolist() == [0, 1, 2]
        assert session.run("a/average").tolist() == [0, 0.5, 1] and session.run("b/average").tolist() == [1, 1, 1]


def test_a_variable_of_a_worker_is_read_by_others_while_it_changes(servers):
    """A step of its own session overwrites it in place: others read copies."""
    program = Program("own")
    with program, hl.device("/job:worker/task:0"):
        v = variable("v", hnp.zeros(1000))
        grow = v.assign_add(hnp.ones(1000))
        program.initializer(name="init")
    seen = []
    with at(servers, 0, program) as owner, at(servers, 1, program) as reader:
        owner.run("init")
        for _ in range(20):
            owner.run(grow)
            seen.append(np.asarray(reader.run(v)))
    assert [value[0] for value in seen] == list(range(1, 21)) and all((value == value[0]).all() for value in seen)


def test_errors_of_shared_variables(servers):
    program, _ = regression(0)
    with at(servers, 0, program) as session:
        with pytest.raises(UninitializedError, match=r"(?s)variable '[wb]'.*/job:ps/task:[01].*initializer"):
            session.run("loss", {"x": np.ones((2, 4), np.float32)})
        assert sorted(session.uninitialized()) == ["b", "global_step", "w"]
    with pytest.raises(ArgumentError, match="replicas_to_aggregate=0"):
        SyncReplicas(hl.optim.sgd(1.0), 0)
    program, replicas = regression(0, sync=True)
    with at(servers, 0, program) as session:
        session.run("init")
        with pytest.raises(DistributedError, match=r"(?s)step 0 of 3 workers.*within 0.2 s"):
            replicas.run(session, "train", {"x": np.ones((2, 4), np.float32)}, timeout=0.2)

"""Training on parameter servers: synchronous with backup workers, asynchronous, saved and restored; towers."""

import threading
import time

import cluster_training as small
import numpy as np
import pytest

import hloom as hl
from hloom import cluster
from hloom.checkpoints import Manager
from hloom.cluster.parameters import ParameterServers, assigned
from hloom.errors import ArgumentError, DistributedError, ShapeError


def fitted(spec, worker, steps=20, **options):
    return cluster.fit(
        small.state(), small.loss, small.OPTIMIZER, small.batches(worker), cluster=spec, task=worker, steps=steps,
        progress=False, **options,
    )  # fmt: skip


def servers_of(spec, folder=None):
    return [
        cluster.Server(spec, "ps", k, folder=folder and folder / f"ps-{k}") for k in range(spec.num_tasks("ps"))
    ]  # fmt: skip


def on_servers(spec, worker, **options):
    return ParameterServers(
        spec, small.model(), small.OPTIMIZER, worker=worker, workers=spec.num_tasks("worker"), **options
    )


def gradients(value: float):
    return hl.tree.map(lambda x: np.full(x.shape, value, np.float32), small.model())


@pytest.mark.quick
def test_where_variables_go():
    assert assigned([4, 400, 8, 8, 100], 2, "round_robin") == [0, 1, 0, 1, 0]
    assert assigned([4, 400, 8, 8, 100], 2, "bytes") == [1, 0, 1, 1, 1]
    assert assigned([4, 400], 3, lambda sizes, servers: [2, 2]) == [2, 2]
    for how, says in (("by_name", "'round_robin', 'bytes'"), (lambda sizes, servers: [7, 0], "server from 0 to 2")):
        with pytest.raises(ArgumentError, match=says):
            assigned([4, 400], 3, how)


def test_synchronous_training_computes_what_one_place_does():
    spec = small.cluster(2, 2)
    servers = servers_of(spec)
    first, second = small.in_threads(lambda k: fitted(spec, k), 2)
    assert first.step == second.step == 20
    assert small.same_bits(first.state.model, second.state.model)
    for name, value in small.reference(20, 2).items():
        np.testing.assert_allclose(np.asarray(first.state.model[name]), value, rtol=1e-5, atol=1e-6)
    for server in servers:
        server.stop()


def test_backup_workers_are_not_waited_for():
    """Of three workers the first two count; one that never comes does not hold up the others."""
    spec = small.cluster(3, 2)
    servers = servers_of(spec)
    made = [on_servers(spec, k, synchronous=True, required=2) for k in range(3)]
    small.in_threads(lambda k: made[k].start(30), 3)
    for step in range(4):
        small.in_threads(lambda k, step=step: made[k].push(step, gradients(1.0)), 2)
    assert made[0].step() == 4
    before = made[0].pull()
    assert made[2].push(0, gradients(1000.0)) is False  # late: dropped by its step
    assert made[2].late == 1 and small.same_bits(before, made[0].pull())
    # The late one goes on with the others from where they are.
    counted = small.in_threads(lambda k: made[k + 1].push(4, gradients(1.0)), 2)
    assert counted == [True, True] and made[0].step() == 5
    assert servers[0].status()["variables"]["model"]["late"] >= 1
    for one in [*made, *servers]:
        one.leave() if isinstance(one, ParameterServers) else one.stop()


def test_fit_with_a_slow_backup_worker():
    spec = small.cluster(3, 1)
    servers = servers_of(spec)

    def slow(epoch):
        for one in small.batches(2)(epoch):
            time.sleep(0.2)
            yield one

    def one(k):
        data = slow if k == 2 else small.batches(k)
        return cluster.fit(
            small.state(), small.loss, small.OPTIMIZER, data, cluster=spec, task=k, steps=30, backup=1, progress=False
        )

    started = time.monotonic()
    results = small.in_threads(one, 3)
    assert [r.step for r in results] == [30] * 3
    assert time.monotonic() - started < 30 * 0.2
    servers[0].stop()


def test_asynchronous_training_learns_and_counts_each_push():
    spec = small.cluster(3, 2)
    servers = servers_of(spec)
    results = small.in_threads(lambda k: fitted(spec, k, 40, mode="async", assign="bytes"), 3)
    assert all(server.status()["variables"]["model"]["step"] == 3 * 40 for server in servers)
    assert float(small.loss(results[0].state.model, {"x": small.X, "y": small.Y})) < 0.05
    for server in servers:
        server.stop()


@pytest.mark.quick
def test_a_repeated_push_counts_once():
    spec = small.cluster(1, 2)
    servers = servers_of(spec)
    worker = on_servers(spec, 0)
    assert worker.start(30) == 0
    assert worker.push(0, gradients(1.0)) is True
    after = worker.pull()
    assert worker.push(0, gradients(1.0)) is False
    assert small.same_bits(after, worker.pull()) and worker.step() == 1
    again = on_servers(spec, 0)  # the worker is started again: it goes on after what counted
    assert again.start(30) == 1
    for server in servers:
        assert server.status()["variables"]["model"]["repeated"] == 1
        server.stop()


@pytest.mark.quick
def test_bounded_staleness():
    spec = small.cluster(2, 1)
    (server,) = servers_of(spec)
    fast, slow = (on_servers(spec, k, staleness=2) for k in range(2))
    small.in_threads(lambda k: (fast, slow)[k].start(30), 2)
    for step in range(3):
        fast.pull(step)
        fast.push(step, gradients(0.1))
    with (
        pytest.raises(DistributedError, match=r"(?s)step 3.*worker 1 did not arrive"),
        hl.config(distributed_timeout=0.3),
    ):
        fast.pull(3)
    waiting = threading.Thread(target=fast.pull, args=(3,))
    waiting.start()
    time.sleep(0.2)
    assert server.status()["waits"][0]["for"] == "worker 1"  # who waits for whom is visible
    slow.push(0, gradients(0.1))
    waiting.join(10)
    assert not waiting.is_alive()
    slow.leave()  # nobody waits for a worker that has left
    fast.push(3, gradients(0.1))
    fast.pull(9)
    server.stop()


def test_a_restarted_server_goes_on_from_what_it_saved(tmp_path):
    """Asynchronously, what is lost is what was pushed since the last save; the workers go on by themselves."""
    spec = small.cluster(1, 2)
    servers = servers_of(spec, tmp_path)
    worker = on_servers(spec, 0, save_every=5)
    worker.start(30)
    for step in range(5):
        worker.push(step, gradients(0.1))
    assert worker.save() == [5, 5]
    saved = worker.pull()
    for step in range(5, 8):
        worker.push(step, gradients(0.1))
    servers[0].variables._groups.clear()  # a kill: nothing is saved on the way out
    servers[0].stop()
    servers[0] = cluster.Server(spec, "ps", 0, folder=tmp_path / "ps-0")
    found = worker.pull()  # makes its variables again, from the checkpoint
    kept = worker.assigned
    names = ["b", "w"]  # as the tree orders them
    for name, home in zip(names, kept, strict=True):
        same = np.array_equal(np.asarray(found[name]), np.asarray(saved[name]))
        assert same == (home == 0)
    assert [s.status()["variables"]["model"]["step"] for s in servers] == [5, 8]
    # Steps 5 to 7 are pushed again by a restarted worker: server 1 counts them once.
    assert on_servers(spec, 0, save_every=5).start(30) == 5
    assert worker.push(7, gradients(0.1)) is True and servers[1].status()["variables"]["model"]["step"] == 8
    for server in servers:
        server.stop()


@pytest.mark.quick
def test_a_server_and_a_worker_are_restarted_after_the_first_worker_has_ended(tmp_path):
    spec = small.cluster(2, 1)
    (server,) = servers_of(spec, tmp_path)
    first, second = (on_servers(spec, k, save_every=1) for k in range(2))
    small.in_threads(lambda k: (first, second)[k].start(30), 2)
    first.push(0, gradients(0.1))
    second.push(0, gradients(0.1))
    first.save()
    first.leave()
    server.stop()
    server = cluster.Server(spec, "ps", 0, folder=tmp_path / "ps-0")
    again = on_servers(spec, 1, save_every=1)
    assert again.start(10) == 1 and again.push(1, gradients(0.1)) and again.step() == 3
    server.stop()


def test_synchronous_servers_go_on_from_a_step_that_all_have(tmp_path):
    spec = small.cluster(2, 2)
    servers = servers_of(spec)
    undisturbed, _ = small.in_threads(lambda k: fitted(spec, k, 20), 2)
    for server in servers:
        server.stop()
    servers = servers_of(spec, tmp_path)
    small.in_threads(lambda k: fitted(spec, k, 12, checkpoint_every=4), 2)
    for server in servers:
        server.stop()
    newest = max((tmp_path / "ps-1" / "model").glob("step_*"))
    assert newest.name == "step_00000012"
    for path in newest.iterdir():
        path.unlink()
    newest.rmdir()  # one server was killed before it had saved step 12
    servers = servers_of(spec, tmp_path)
    first, _ = small.in_threads(lambda k: fitted(spec, k, 20, checkpoint_every=4), 2)
    assert small.same_bits(first.state.model, undisturbed.state.model)
    for server in servers:
        server.stop()


@pytest.mark.quick
def test_a_save_that_fails_is_reported_and_tried_again(tmp_path, monkeypatch, capfd):
    spec = small.cluster(1, 1)
    (server,) = servers_of(spec, tmp_path)
    worker = on_servers(spec, 0, save_every=2)
    worker.start(30)

    def full(self, *args, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Manager, "save", full)
        for step in range(2):
            worker.push(step, gradients(0.1))  # training goes on
        with pytest.raises(DistributedError, match=r"(?s)No space left.*free space on that disk"):
            worker.save()
    assert "No space left" in server.status()["variables"]["model"]["save_error"]
    assert "the variables were not saved" in capfd.readouterr().err
    assert worker.save() == [2] and server.status()["variables"]["model"]["save_error"] == ""
    server.stop()


@pytest.mark.quick
def test_other_models_and_shapes_are_refused():
    spec = small.cluster(2, 1)
    (server,) = servers_of(spec)
    worker = on_servers(spec, 0)
    worker.start(30)
    other = ParameterServers(spec, {"v": hl.numpy.zeros(3)}, small.OPTIMIZER, worker=0, workers=2)
    with pytest.raises(DistributedError, match="another model or optimizer"):
        other.start(5)
    with pytest.raises(ArgumentError, match=r"is f32\[8,2\]"):
        worker.push(0, {"w": np.zeros((8, 3), np.float32), "b": np.zeros(2, np.float32)})
    with pytest.raises(ArgumentError, match="everything but float arrays out of the model"):
        ParameterServers(spec, {"n": hl.numpy.zeros(3, "s32")}, small.OPTIMIZER, worker=0, workers=2)
    with pytest.raises(DistributedError, match="did you mean 'ps'"):
        ParameterServers(spec, small.model(), small.OPTIMIZER, worker=0, workers=2, job="pss")
    with pytest.raises(ArgumentError, match="backup= that is smaller"):
        on_servers(spec, 0, required=0)
    server.stop()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "asynk"}, "'async'"),
        ({"mode": "async"}, "hloom cluster submit --ps 1"),
        ({"backup": 1}, "add parameter servers"),
        ({"staleness": 2}, "no stale gradients"),
    ],
)
def test_modes_that_do_not_fit(options, says):
    with pytest.raises(ArgumentError, match=says):
        cluster.fit(small.state(), small.loss, small.OPTIMIZER, small.batches(0), steps=1, **options)


# --- towers ---


@pytest.mark.quick
def test_towers_on_tasks_of_a_cluster():
    """In-graph replication: one program, whose towers run on the servers of two tasks."""
    spec = cluster.ClusterSpec({"worker": cluster.free_addresses(2)}, key=small.KEY)
    with cluster.Server(spec, "worker", 0), cluster.Server(spec, "worker", 1), cluster.connect(spec):
        devices = ["/job:worker/task:0", "/job:worker/task:1"]
        found = cluster.fit(
            small.state(), small.loss, small.OPTIMIZER, small.batches(0), mode="towers", devices=devices, steps=10,
            progress=False,
        )  # fmt: skip
        model = hl.tree.map(np.asarray, found.state.model)
    alone = cluster.fit(small.state(), small.loss, small.OPTIMIZER, small.batches(0), steps=10, progress=False)
    for name, value in model.items():
        np.testing.assert_allclose(value, np.asarray(alone.state.model[name]), rtol=1e-4, atol=1e-6)


@pytest.mark.quick
def test_batches_that_towers_cannot_divide():
    with pytest.raises(ShapeError, match="multiple of 3"):
        cluster.fit(
            small.state(), small.loss, small.OPTIMIZER, small.batches(0), mode="towers", devices=["cpu:0"] * 3,
            steps=1, progress=False,
        )  # fmt: skip

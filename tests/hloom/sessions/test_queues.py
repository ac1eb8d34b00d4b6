"""Queues, coordinators and their threads; datasets as inputs; local servers."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import errors, optim
from hloom.sessions import (
    Coordinator,
    FIFOQueue,
    LocalServer,
    PaddingFIFOQueue,
    Program,
    QueueRunner,
    Session,
    ShuffleQueue,
    batch,
    from_dataset,
    minimize,
    placeholder,
    shuffle_batch,
    start_queue_runners,
    variable,
)

pytestmark = pytest.mark.quick


def test_first_in_first_out_through_a_program():
    program = Program("fifo")
    with program:
        queue = FIFOQueue(10, ["float32", "int32"], [(2,), ()])
        x, n = placeholder("x", [2]), placeholder("n", [], "int32")
        put = queue.enqueue([x * 2, n])
        many = queue.enqueue_many([placeholder("xs", [None, 2]), placeholder("ns", [None], "int32")])
        value, number = queue.dequeue()
        total = hnp.sum(value) + number
        rest = queue.dequeue_up_to(8)
    with Session(program) as session:
        session.run(put, {"x": np.ones(2, np.float32), "n": 5})
        session.run(many, {"xs": np.arange(6, dtype=np.float32).reshape(3, 2), "ns": np.arange(3, dtype=np.int32)})
        assert queue.size() == 4
        assert [float(v) for v in session.run([total, number])] == [9.0, 5.0]  # one element for both
        queue.close()
        values, numbers = session.run(rest)
        assert values.tolist() == [[0, 1], [2, 3], [4, 5]] and numbers.tolist() == [0, 1, 2]
        with pytest.raises(errors.OutOfRangeError, match="it is closed and has 0"):
            session.run(value)
        with pytest.raises(errors.SessionError, match="the queue is closed"):
            session.run(put, {"x": np.ones(2, np.float32), "n": 5})


def test_wrong_elements():
    with Program("wrong"):
        queue = FIFOQueue(2, ["float32"], [(3,)])
    with pytest.raises(errors.ShapeError, match="which has shape"):
        queue.put([np.zeros(4)])
    with pytest.raises(errors.ArgumentError, match="2 parts"):
        queue.put([np.zeros(3), 1])
    with pytest.raises(errors.ArgumentError, match="min_after_dequeue=5"):
        ShuffleQueue(5, 5, ["float32"], [()], program=queue.program)


def test_batches_are_padded():
    program = Program("padding")
    with program:
        queue = PaddingFIFOQueue(10, ["int32", "float32"], [(None,), (None, 2)])
        tokens, features = queue.dequeue_many(3)
        lengths = hnp.sum(tokens != 0, axis=1)
    with Session(program) as session:
        for n in (1, 3, 2, 4, 2, 2):
            queue.put([np.arange(1, n + 1), np.ones((n, 2))])
        assert session.run(lengths).tolist() == [1, 3, 2]
        tokens, features = session.run([tokens, features])
        assert tokens.tolist() == [[1, 2, 3, 4], [1, 2, 0, 0], [1, 2, 0, 0]] and features.shape == (3, 4, 2)


def test_shuffled_batches_from_files_train(tmp_path):
    rng = np.random.default_rng(0)
    rows = [{"x": r.astype(np.float32), "n": np.int32(k)} for k, r in enumerate(rng.random((200, 4)))]
    program = Program("training")
    with program:
        example = from_dataset(hl.data.sequence(rows))
        x, n = shuffle_batch([example["x"] * 1, example["n"]], 20, 100, 50, threads=1, seed=0)
        w = variable("w", hnp.zeros(4))
        cost = hnp.mean((x @ w - 1) ** 2)
        train = minimize(optim.sgd(0.3), cost)
    costs, seen = [], []
    with Session(program) as session, Coordinator() as coordinator:
        session.run(program.initializer())
        threads = start_queue_runners(session, coordinator)
        while not coordinator.should_stop():
            value, numbers, _ = session.run([cost, n, train])
            costs.append(float(value))
            seen += numbers.tolist()
    assert len(costs) == 10 and costs[-1] < costs[0] and not any(t.is_alive() for t in threads)
    assert sorted(seen) == list(range(200)) and seen[:20] != list(range(20))
    assert max(seen[:20]) < 130  # of what fits into the queue, not of the whole


def test_smaller_last_batches():
    program = Program("batches")
    with program:
        number = from_dataset([np.int32(k) for k in range(7)])
        found = batch([number], 3, allow_smaller_final_batch=True)
    with Session(program) as session, Coordinator() as coordinator:
        start_queue_runners(session, coordinator)
        batches = []
        while not coordinator.should_stop():
            batches.append(session.run(found).tolist())
    assert batches == [[0, 1, 2], [3, 4, 5], [6]]


def test_what_a_thread_raises_stops_all():
    program = Program("failing")
    with program:
        queue = FIFOQueue(1, ["float32"], [(2,)])
        x = from_dataset([np.zeros(2, np.float32), np.zeros(3, np.float32)])
        QueueRunner(queue, [queue.enqueue(x)])
        value = queue.dequeue()
    begun = time.monotonic()
    with pytest.raises(errors.FeedError, match="which is f32"):
        with Session(program) as session, Coordinator() as coordinator:
            start_queue_runners(session, coordinator)
            while not coordinator.should_stop():
                session.run(value)
    assert time.monotonic() - begun < 30


def test_a_waiting_thread_is_stopped():
    program = Program("waiting")
    with program:
        queue = FIFOQueue(1, ["float32"], [()])
        QueueRunner(queue, [queue.enqueue(hnp.ones(()))])
    with Session(program) as session, Coordinator() as coordinator:
        (thread,) = start_queue_runners(session, coordinator)
        while not queue.size():
            time.sleep(0.01)
    assert not thread.is_alive()
    coordinator = Coordinator()
    end = threading.Event()
    coordinator.start(lambda: end.wait(10) and None)
    coordinator.request_stop()
    with pytest.raises(errors.SessionError, match="it still runs"):
        coordinator.join(timeout=0.05)
    end.set()


def test_sessions_of_a_server_share_variables():
    program = Program("shared")
    with program:
        n = variable("n", hnp.zeros((), "int32"))
        add = n.assign_add(1)
    with LocalServer.create_local_server() as server:
        with Session(program, server.target) as first:
            first.run(program.initializer())
            first.run(add)
        with Session(Program.from_text(program.to_text()), server.target) as second:
            second.run("n/assign_add")
            assert int(second.run("n")) == 2
        last = Session(program, server.target)
    with pytest.raises(errors.SessionError, match="the server has stopped"):
        last.run("n")
    with pytest.raises(errors.SessionError, match="it has stopped"):
        Session(program, server.target)
    with pytest.raises(errors.SessionError, match="local://"):
        Session(program, "nowhere://1")

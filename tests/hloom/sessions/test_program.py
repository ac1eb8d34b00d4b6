"""Programs and sessions: names, partial runs, feeds, updates and their order, optimizers, bad input."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import errors, optim
from hloom.sessions import (
    MovingAverage,
    Program,
    Session,
    control_dependencies,
    global_step,
    gradients,
    group,
    minimize,
    placeholder,
    target,
    variable,
)

pytestmark = pytest.mark.quick
RNG = np.random.default_rng(0)
X, Y = RNG.random((100, 32), np.float32), RNG.random((100, 8), np.float32)


def mlp(optimizer=None) -> Program:
    program = Program("mlp")
    with program:
        x, y = placeholder("x", [None, 32]), placeholder("y", [None, 8])
        one, two = hl.random.split(hl.random.key(0))
        w1 = variable("w1", 0.1 * hl.random.truncated_normal(one, -2, 2, (32, 16)))
        b1 = variable("b1", hnp.zeros(16))
        w2 = variable("w2", 0.1 * hl.random.truncated_normal(two, -2, 2, (16, 8)))
        hidden = hnp.tanh(x @ w1 + b1)
        out = hnp.tanh(hidden @ w2)
        cost = hnp.mean(hnp.square(y - out))
        if optimizer is not None:
            minimize(optimizer, cost, global_step=global_step())
    return program


def by_hand(values, x, y):
    return np.mean((y - np.tanh(np.tanh(x @ values["w1"] + values["b1"]) @ values["w2"])) ** 2)


def test_fetches_have_the_names_of_the_users_variables():
    program = mlp()
    assert {"x", "y", "w1", "b1", "w2", "hidden", "out", "cost", "w1/initial_value"} <= set(program.names())
    with Session(program) as session:
        session.run(program.initializer())
        values = {k: np.asarray(v) for k, v in session.state().items()}
        found = session.run({"a": ["cost", ("out:0",)], "b": program["hidden"]}, {"x": X, program["y"]: Y})
        np.testing.assert_allclose(found["a"][0], by_hand(values, X, Y), rtol=1e-5)
        assert found["a"][1][0].shape == (100, 8) and found["b"].shape == (100, 16)


def test_unknown_sizes_are_those_of_each_call():
    program = mlp()
    assert program["x"].dims == (None, 32) and program["hidden"].dims == (None, 16)
    with Session(program) as session:
        session.run(program.initializer())
        values = {k: np.asarray(v) for k, v in session.state().items()}
        for n in (1, 2, 7, 100):
            found = session.run("cost", {"x": X[:n], "y": Y[:n]})
            np.testing.assert_allclose(found, by_hand(values, X[:n], Y[:n]), rtol=1e-5)


def test_sizes_with_names_and_what_is_computed_from_them():
    program = Program("sizes")
    with program:
        a, b = placeholder("a", ["rows", "columns"]), placeholder("b", ["columns"])
        both = hnp.concatenate([a.reshape(-1), b])
        names = {
            "both": both,
            "half": both[::2] + 0,
            "spread": hnp.std(a, axis=0) + b / a.shape[1],
            "sums": hnp.cumsum(hnp.ones(a.shape[0])),
            "padded": hnp.pad(b, (1, 2)),
            "weighted": hnp.sum(a) * (0.25 / a.shape[0]),
            "root": hnp.sum(a) / a.shape[0] ** 0.5,
            "largest": hnp.argmax(a, axis=0),
        }
    with Session(program) as session:
        for rows, columns in ((3, 5), (1, 1), (8, 2)):
            x, y = RNG.random((rows, columns), np.float32), RNG.random(columns, np.float32)
            found = session.run(names, {"a": x, "b": y})
            both = np.concatenate([x.reshape(-1), y])
            expected = {
                "both": both, "half": both[::2], "spread": x.std(0) + y / columns, "sums": np.arange(1, rows + 1),
                "padded": np.pad(y, (1, 2)), "weighted": x.sum() * 0.25 / rows, "root": x.sum() / rows**0.5,
                "largest": x.argmax(0),
            }  # fmt: skip
            for name in names:
                np.testing.assert_allclose(found[name], expected[name], rtol=2e-5, err_msg=name)


def test_only_what_is_fetched_runs():
    program = Program("partial")
    calls = []
    with program:
        x = placeholder("x", [3])
        y = x * 2
        hl.io_callback(lambda v: calls.append(v) or np.float32(0), hl.ShapeDtypeStruct((), "float32"), y)
        z = target("z", y + 1)
    with Session(program) as session:
        assert session.run(z, {"x": np.ones(3, np.float32)}).tolist() == [3, 3, 3] and not calls
        # A feed in the middle: what leads to it is not needed, the placeholder neither.
        assert session.run("z", {y: np.zeros(3, np.float32)}).tolist() == [1, 1, 1]


def test_a_run_in_parts_computes_nothing_twice():
    program, calls = Program("parts"), []
    with program:
        x, reward = placeholder("x", [3]), placeholder("reward", [])
        w = variable("w", hnp.zeros(3))
        scores = hl.io_callback(lambda v: calls.append(1) or v * 2, hl.ShapeDtypeStruct((3,), "float32"), x)
        program.target("scores", scores)
        train = w.assign_add(scores * reward)
    with Session(program) as session:
        session.run(program.initializer())
        part = session.partial_run()
        assert part.run("scores", {"x": np.ones(3, np.float32)}).tolist() == [2, 2, 2]
        assert part.run([train], {"reward": 0.5})[0].tolist() == [1, 1, 1] and len(calls) == 1
        with pytest.raises(errors.FetchError, match="has run in an earlier part"):
            part.run(train)
        with pytest.raises(errors.FeedError, match="it has a value already"):
            part.run(w, {"x": np.ones(3, np.float32)})
        step = session.make_callable([train, "w"], ["x", "reward"])
        new, old = step(np.ones(3, np.float32), 1.0)
        assert old.tolist() == [1, 1, 1] and new.tolist() == [3, 3, 3]


def test_updates_count_in_the_order_in_which_they_were_made():
    program = Program("counter")
    with program:
        n = variable("n", hnp.zeros((), "int32"))
        add, more = n.assign_add(1), n.assign_add(10)
        before = n * 1
        with control_dependencies([add]):
            after = n * 1
        both = group(add, more)
        with control_dependencies([both]):
            last = n.read_value()
        start = n.assign(100)
    with Session(program) as session:
        session.run(program.initializer())
        assert session.run([add, before])[0] == 1
        assert session.run(n) == 1
        assert [int(v) for v in session.run([before, after])] == [1, 2]
        assert int(session.run(last)) == 13 and int(session.run(n)) == 13
        assert session.run(both) is None and int(session.run("n")) == 24
        assert int(session.run(start)) == 100 and int(session.run("n/assign_add")) == 101


def test_rows_are_updated():
    program = Program("rows")
    with program:
        table = variable("table", hnp.zeros((4, 2)))
        rows, values = placeholder("rows", [None], "int32"), placeholder("values", [None, 2])
        put, add = table.scatter_update(rows, values), table.scatter_add(rows, values)
    with Session(program) as session:
        session.run(program.initializer())
        feed = {"rows": np.array([1, 3], np.int32), "values": np.array([[1, 2], [3, 4]], np.float32)}
        session.run(put, feed)
        assert session.run(add, feed).tolist() == [[0, 0], [2, 4], [0, 0], [6, 8]]


def test_what_was_fetched_stays_as_it_was():
    program = Program("held")
    with program:
        w = variable("w", hnp.zeros(1000))
        step = w.assign_add(hnp.ones(1000))
    with Session(program) as session:
        session.run(program.initializer())
        held, new = session.run(w), session.run(step)
        for _ in range(5):
            session.run(step)
        assert float(held.sum()) == 0 and float(new.sum()) == 1000 and float(session.run(w).sum()) == 6000


def test_gradients_read_the_nodes_that_are_there():
    program = mlp()
    before = [i.opcode for i in program.instructions]
    found = gradients(program["cost"], [program["w1"], program["hidden"], program["x"]])
    after = [i.opcode for i in program.instructions]
    assert after.count("tanh") == before.count("tanh") and after.count("dot") == before.count("dot") + 3
    with Session(program) as session:
        session.run(program.initializer())
        values = {k: np.asarray(v) for k, v in session.state().items()}
        w1, hidden, x = session.run(found, {"x": X, "y": Y})

        def cost(w1, x):
            return hnp.mean((Y - hnp.tanh(hnp.tanh(x @ w1 + values["b1"]) @ values["w2"])) ** 2)

        expected = hl.grad(cost, (0, 1))(values["w1"], X)
        np.testing.assert_allclose(w1, expected[0], rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(x, expected[1], rtol=1e-4, atol=1e-7)
        assert hidden.shape == (100, 16)


@pytest.mark.parametrize("optimizer", [optim.adam(1e-2), optim.sgd(0.1, momentum=0.9)], ids=["adam", "momentum"])
def test_steps_are_those_of_the_optimizer(optimizer):
    program = mlp(optimizer)

    def cost(w, x, y):
        return hnp.mean(hnp.square(y - hnp.tanh(hnp.tanh(x @ w["w1"] + w["b1"]) @ w["w2"])))

    @hl.jit
    def step(w, state):
        updates, state = optimizer.update(hl.grad(cost)(w, X, Y), state, w)
        return optim.apply_updates(w, updates), state

    with Session(program) as session:
        session.run(program.initializer())
        w = {k: hnp.asarray(np.array(session.state()[k])) for k in ("w1", "b1", "w2")}
        state = optimizer.init(w)
        for _ in range(10):
            session.run("train", {"x": X, "y": Y})
            w, state = step(w, state)
        for name, value in w.items():
            np.testing.assert_allclose(session.run(name), value, rtol=1e-4, atol=1e-6)
        assert int(session.run("global_step")) == 10


def test_averages_follow_the_variables():
    program = mlp(optim.sgd(0.1))
    averages = MovingAverage(0.5)
    with program, control_dependencies([program["train"]]):
        target("all", averages.apply([program["w2"]]))
    with Session(program) as session:
        session.run(program.initializer())
        expected = np.array(session.run("w2"))
        for _ in range(3):
            session.run("all", {"x": X, "y": Y})
            expected = 0.5 * expected + 0.5 * np.asarray(session.run("w2"))
        np.testing.assert_allclose(session.run(averages.average(program["w2"])), expected, rtol=1e-5)


def test_scopes_texts_and_collections():
    program = Program("scopes")
    with program:
        for k in range(2):
            with hl.named_scope(f"GPU_{k}"):
                w = variable("w", hnp.full(3, float(k)))
                loss = hnp.sum(w * w)
                program.add_to_collection("losses", loss)
        greeting = program.constant("Hello, hloom!", "greeting")
    assert [v.name for v in program.get_collection("losses", "GPU_1")] == ["GPU_1/loss"]
    assert [v.name for v in program.get_collection("trainable_variables")] == ["GPU_0/w", "GPU_1/w"]
    with Session(program) as session:
        session.run(program.initializer())
        assert session.run([greeting, "GPU_1/loss", "GPU_0/w"])[:2] == ["Hello, hloom!", 3.0]


def raised(kind, session, *args) -> str:
    with pytest.raises(kind) as found:
        session.run(*args)
    assert found.value.repair and "test_program.py" in str(found.value)
    return str(found.value)


def test_bad_input():
    program = mlp(optim.sgd(0.1))
    session = Session(program)
    assert "'w1', 'b1', 'w2'" in raised(errors.UninitializedError, session, "cost", {"x": X, "y": Y})
    session.run(program.initializer())
    assert "did you mean 'cost'" in raised(errors.FetchError, session, "cots")
    assert "did you mean 'x'" in raised(errors.FeedError, session, "cost", {"xx": X})
    assert "it is not fed" in raised(errors.FeedError, session, "cost", {"x": X})
    assert "it is not fed" in raised(errors.FeedError, session, "x")
    assert "f32[?,32]" in raised(errors.FeedError, session, "out", {"x": X[:, :5]})
    assert "of this rank" in raised(errors.FeedError, session, "out", {"x": X[0]})
    assert "astype('float32')" in raised(errors.FeedError, session, "out", {"x": X.astype(np.complex64)})
    assert "3 here and 100 in 'x'" in raised(errors.FeedError, session, "cost", {"x": X, "y": Y[:3]})
    assert "it is fed twice" in raised(errors.FeedError, session, "out", {"x": X, program["x"]: X})
    assert "is not a tensor" in raised(errors.FeedError, session, "out", {"train": X})
    assert "int 3" in raised(errors.FetchError, session, 3)
    assert "belongs to" in raised(errors.FetchError, session, mlp()["cost"])
    with pytest.raises(errors.ArgumentError, match="names are unique"):
        program.placeholder("x", [3])
    with pytest.raises(errors.ShapeError, match="it is f32"):
        program["w1"].assign(hnp.zeros(3))
    with pytest.raises(errors.FeedError, match="restore the checkpoint of this program"):
        session.restore({"w1": np.zeros((3, 3), np.float32)})
    with pytest.raises(errors.LeakedTracerError, match="outside of the program"):
        hl.jit(lambda a: a + program["cost"])(1.0)
    with pytest.raises(errors.TracerError, match="call it within the program"):
        hl.grad(lambda a: a * program["cost"])(1.0)
    session.close()
    assert "the session is closed" in raised(errors.SessionError, session, "w1")

"""Runs of graphs with unknown sizes: one program for all sizes that are fed, but the first two."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from open_sessions import check, compilations
from silence import no_warnings

import hloom as hl
import hloom.numpy as hnp
from hloom import errors, lax, optim
from hloom.backends.cpu.backend import CpuBackend
from hloom.sessions import (
    Program,
    Session,
    assign,
    assign_add,
    control_dependencies,
    gradients,
    minimize,
    placeholder,
    summaries,
    variable,
)

pytestmark = pytest.mark.quick
RNG = np.random.default_rng(0)
SIZES = [int(n) for n in np.linspace(130, 250, 20)]


def rows(n: int, columns: int = 4) -> np.ndarray:
    return RNG.random((n, columns), np.float32)


def training() -> Program:
    program = Program("training")
    with program:
        x, y = placeholder("x", [None, 32]), placeholder("y", [None, 8])
        one, two = hl.random.split(hl.random.key(0))
        w1, b1 = variable("w1", 0.1 * hl.random.normal(one, (32, 16))), variable("b1", hnp.zeros(16))
        w2 = variable("w2", 0.1 * hl.random.normal(two, (16, 8)))
        cost = hnp.mean((y - hnp.tanh(hnp.tanh(x @ w1 + b1) @ w2)) ** 2)
        program.target("slope", gradients(cost, [w1])[0])
        minimize(optim.adam(1e-2), cost, name="train")
        program.initializer(name="init")
    return program


def same(program: Program, fetches, feeds: list[dict], rtol: float = 1e-5) -> list[str]:
    """Compares the runs of one session with those of a session for each feed. Returns what the first one compiled."""
    with Session(program) as session, compilations() as made:
        session.run(program.initializer())
        made.clear()
        compiled = []
        for feed in feeds:
            with Session(program) as other:
                other.restore(session.state())
                wanted = hl.tree.leaves([other.run(fetches, feed), other.state()])
            made.clear()
            found = hl.tree.leaves([session.run(fetches, feed), session.state()])
            compiled += made
            for one, right in zip(found, wanted, strict=True):
                assert one.shape == right.shape and one.dtype == right.dtype
                np.testing.assert_allclose(one, right, rtol=rtol, atol=1e-6)
    return compiled


def test_random_graphs_compute_what_those_of_each_size_do():
    runs, compiled, _ = map(sum, zip(*[check(seed) for seed in range(8)], strict=True))
    assert runs == 96 and compiled < runs // 2


def test_training_over_twenty_batch_sizes_is_compiled_three_times():
    feeds = [{"x": rows(n, 32), "y": rows(n, 8)} for n in SIZES]
    assert len(same(training(), ["cost", "train", "slope"], feeds)) <= 3


def test_the_first_sizes_have_programs_of_their_own():
    program = Program("first")
    with program:
        program.target("y", placeholder("x", [None, 4]).sum(0))
    with Session(program) as session, compilations() as made:
        for n, programs in ((5, 1), (5, 1), (6, 2), (5, 2), (7, 3), (8, 3), (6, 3)):
            session.run("y", {"x": rows(n)})
            assert len(made) == programs


def test_sizes_of_zero_and_one():
    program = Program("small")
    n, m = hl.Dim("n", min=0), hl.Dim("m", min=0)
    with program:
        x, y = placeholder("x", [n, 4]), placeholder("y", [m, 4])
        total = variable("total", hnp.zeros(4))
        assign_add(total, x.sum(0)).name  # noqa: B018
        program.target("all", [hnp.concatenate([x, y]) * 2, x @ y.T][0] + total)
        program.target("product", x @ y.T)
    feeds = [{"x": rows(a), "y": rows(b)} for a in (3, 0, 1, 2) for b in (1, 5, 0)]
    same(program, ["all", "product"], feeds)


def test_updates_order_loops_and_host_operations():
    program = Program("updates")
    seen: list = []
    with program:
        x = placeholder("x", ["rows", 4])
        total, steps = variable("total", hnp.zeros(4)), variable("steps", 0)
        added = assign_add(total, x.sum(0))
        with control_dependencies([added, assign_add(steps, 1)]):
            program.target("after", total / steps.astype("float32") + x[-1])
        halves = lax.while_loop(lambda s: s[0] < x.shape[0], lambda s: (s[0] + 1, s[1] * 0.5 + x[s[0]]), (0, x[0]))[1]
        program.target("halves", halves)
        program.target("each", hl.scan(lambda c, row: (c + row, c), hnp.zeros(4), x)[1])
        with control_dependencies([added]):
            program.target("reset", assign(steps, x.shape[0] * 1))
        program.host_operation("note", [x * 2], lambda value: seen.append(value.shape))
    feeds = [{"x": rows(n)} for n in (3, 9, 1, 9, 20, 33)]
    made = same(program, ["after", "halves", "each", "note", "reset"], feeds)
    assert len(made) <= 4 and seen[::2] == [(n, 4) for n in (3, 9, 1, 9, 20, 33)]


def test_summaries(tmp_path):
    program = Program("shown")
    with program:
        x = placeholder("x", [None, 4])
        summaries.scalar("mean", x.mean())
        summaries.histogram("values", x * 2)
    merged = summaries.merge_all(program)
    assert len(same(program, merged, [{"x": rows(n)} for n in (5, 6, 70, 8)])) == 3


def test_a_fed_tensor_tells_the_sizes():
    program = Program("fed")
    with program:
        x = placeholder("x", [None, 4])
        pairs = hnp.concatenate([x, x[1:]])
        program.target("y", pairs * pairs.shape[0] + x.shape[0])
    assert len(same(program, "y", [{"pairs": rows(2 * n - 1)} for n in (4, 5, 9, 30)])) <= 3


def test_a_feed_that_does_not_fit_changes_nothing():
    program = training()
    with Session(program) as session:
        session.run("init")
        for n in (5, 6, 7):
            session.run("train", {"x": rows(n, 32), "y": rows(n, 8)})
        before = {name: np.array(value) for name, value in session.state().items()}
        for feed, found in (
            ({"x": rows(6, 32), "y": rows(7, 8)}, r"its None on axis 0 is 7 here and 6 in 'x'"),
            ({"x": rows(0, 32), "y": rows(0, 8)}, "not empty"),
            ({"x": rows(6, 31), "y": rows(6, 8)}, r"of shape \(6, 31\)"),
        ):  # fmt: skip
            with pytest.raises(errors.FeedError, match=found):
                session.run("train", feed)
        for name, value in session.state().items():
            np.testing.assert_array_equal(value, before[name])


def test_sizes_for_which_an_operation_has_none_are_refused_as_ever():
    program = Program("refused")
    with program:
        x = placeholder("x", [None, 4])
        total = variable("total", hnp.zeros(4))
        program.target("add", assign_add(total, x[1]))
    with Session(program) as session:
        session.run(program.initializer())
        for n in (5, 6, 7):
            session.run("add", {"x": rows(n)})
        before = np.array(session.state()["total"])
        with Session(program) as other, pytest.raises(errors.HloomError) as alone:
            other.restore(session.state())
            other.run("add", {"x": rows(1)})
        with pytest.raises(errors.HloomError) as beside:
            session.run("add", {"x": rows(1)})
        assert str(beside.value) == str(alone.value)
        np.testing.assert_array_equal(session.state()["total"], before)
        session.run("add", {"x": rows(9)})


def test_what_has_no_program_of_open_sizes_is_compiled_for_each(capfd):
    program = Program("lengths")
    with program:
        x = placeholder("x", [None, 4])
        program.target("y", hnp.abs(hnp.fft.fft(x, axis=0)))
    with hl.config(debug=1), no_warnings():
        made = same(program, "y", [{"x": rows(n)} for n in (8, 9, 12, 15, 9)])
    assert len(made) == 5  # one of them finds out
    said = capfd.readouterr().err
    assert said.count("is compiled for the sizes of each run") == 1 and "a separate program" in said
    assert "test_open_runs.py" in said


def test_sizes_of_which_most_need_a_variant_are_compiled_for_each(capfd):
    program, known = Program("sparse"), {k: hl.Dim(f"d{k}", min=0) for k in range(3)}
    with program:
        parts = [placeholder(f"x{k}", [dim, 2]) for k, dim in known.items()]
        program.target("y", sum(part.sum(0) for part in parts))
    sizes = [(9, 9, 9), *[(a, b, c) for a in (0, 1, 5) for b in (0, 1, 6) for c in (0, 1, 7)]]
    with hl.config(debug=1):
        same(program, "y", [{f"x{k}": rows(n, 2) for k, n in enumerate(given)} for given in sizes])
    assert capfd.readouterr().err.count("most sizes need a separate program") == 1


def test_callbacks_are_called_once_for_each_run():
    program, seen = Program("callbacks"), []

    def note(value):
        seen.append(value.shape)
        return np.asarray(value).sum(0)

    with program:
        x = placeholder("x", [None, 4])
        program.target("y", hl.pure_callback(note, hl.ShapeDtypeStruct((4,), "float32"), x) + x.mean(0))
    with Session(program) as session:
        for n in (3, 5, 7, 5, 3):
            value = rows(n)
            found = session.run("y", {"x": value})
            np.testing.assert_allclose(found, value.sum(0) + value.mean(0), rtol=1e-5)
    assert seen == [(n, 4) for n in (3, 5, 7, 5, 3)]


def test_arrays_on_other_devices(monkeypatch):
    program = Program("places")
    with program:
        program.target("y", placeholder("x", [None, 4]) * 2)
    with Session(program) as session, hl.config(num_cpu_devices=2):
        for n in (3, 5, 6):
            assert session.run("y", {"x": rows(n)}).shape == (n, 4)
        second = hl.devices()[1]
        assert session.run("y", {"x": hl.device_put(rows(6), second)}).device == second
        known = CpuBackend.compile_open

        def compile_open(self, module, options):
            if options.device != "cpu:0":
                raise errors.UnsupportedError("open sizes", "no such programs", "none")
            return known(self, module, options)

        monkeypatch.setattr(CpuBackend, "compile_open", compile_open)
        with Session(program) as other:
            for n in (3, 5, 6):
                other.run("y", {"x": rows(n)})
            value = rows(6)
            found = other.run("y", {"x": hl.device_put(value, second)})
            assert found.device == second
            np.testing.assert_array_equal(found, value * 2)
            for n in (3, 5, 6, 7):
                assert other.run("y", {"x": rows(n)}).shape == (n, 4)


def test_parts_on_several_devices_are_compiled_for_each_size():
    program = Program("several")
    with program:
        x = placeholder("x", [None, 4])
        with hl.device("cpu:0"):
            a = x * 2
        with hl.device("cpu:1"):
            program.target("y", a + 1)
    with hl.config(num_cpu_devices=2), Session(program) as session:
        for n in (3, 5, 6, 5):
            value = rows(n)
            np.testing.assert_allclose(session.run("y", {"x": value}), value * 2 + 1)


def test_a_program_that_was_saved_runs_so_too():
    again = Program.from_text(training().to_text())
    feeds = [{"x": rows(n, 32), "y": rows(n, 8)} for n in (140, 150, 160, 170)]
    assert len(same(again, ["cost", "train"], feeds)) <= 3


def test_threads_feed_different_sizes():
    program = Program("threads")
    with program:
        x = placeholder("x", [None, 4])
        program.target("y", hnp.cumsum(x, axis=0) / x.shape[0])
    failed: list = []
    with Session(program) as session:

        def work(seed: int) -> None:
            generator = np.random.default_rng(seed)
            for _ in range(30):
                value = generator.random((int(generator.integers(1, 40)), 4), np.float32)
                found = np.asarray(session.run("y", {"x": value}))
                if not np.allclose(found, np.cumsum(value, 0) / len(value), rtol=1e-4):
                    failed.append(len(value))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


def test_lists_and_other_dtypes():
    program = Program("lists")
    with program:
        program.target("y", placeholder("x", [None]).sum())
    with Session(program) as session, compilations() as made:
        for value in ([1.0], [1.0, 2.0], [1.0, 2.0, 3.0], np.arange(4.0), np.arange(5)):
            np.testing.assert_allclose(session.run("y", {"x": value}), np.sum(value))
    assert len(made) <= 3


def test_settings_that_check(monkeypatch):
    program = training()
    feeds = [{"x": rows(n, 32), "y": rows(n, 8)} for n in (5, 6, 7)]
    for setting in ({"disable_jit": True}, {"debug_nans": True}):
        with hl.config(**setting), Session(program) as session:
            session.run("init")
            costs = [float(session.run(["cost", "train"], feed)[0]) for feed in feeds]
        assert all(np.isfinite(costs))

"""Loops of small bodies are one kernel; others are left to the driver."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.compiler.schedule import fused_loops
from hloom.compiler.schedule.steps import JumpStep


def compiled(function, *args):
    """The plan, after the results were compared with those of the driver's steps."""
    made = hl.jit(function).lower(*args).compile()
    stepped = hl.jit(function, fusion=False)(*args)
    for _ in range(2):
        for got, want in zip(hl.tree.leaves(hl.jit(function)(*args)), hl.tree.leaves(stepped), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return made.executable.plan


def is_whole(plan) -> bool:
    """Whether all loops are kernels. What jumps calls a kernel again that has not come to its end, or runs the loop."""
    whole = any(s.launch.source.name.startswith("whole_") for s in plan.kernels())
    assert whole or any(isinstance(s, JumpStep) for s in plan.steps)
    return whole


@pytest.fixture(params=[None, 1.0, 40.0], ids=["in one call", "one iteration a call", "some iterations a call"])
def batches(request, monkeypatch):
    """Kernels of loops that return to the driver sooner than they would."""
    if request.param is not None:
        monkeypatch.setattr(fused_loops, "BATCH_WORK", request.param)


@pytest.mark.usefixtures("batches")
def test_a_loop_goes_on_where_it_left_its_kernel():
    def step(state):
        x, total, n = state
        x = lax.cond(n % 3 == 0, lambda x: x * 0.5, lambda x: x + 1.0, x)
        inner = lax.fori_loop(0, n % 4, lambda k, v: v * 0.5 + k, x)
        return x, total + inner.sum(), n + 1

    def f(x, limit):
        y = x * 2.0
        x, total, n = lax.while_loop(lambda s: s[2] < limit, step, (y, 0.0, 0))
        return x + y, total, n

    x = np.array([0.3, -1.2, 2.0, 7.0], np.float32)
    for limit in (0, 1, 2, 57):
        plan = compiled(f, x, np.int32(limit))
        assert is_whole(plan)
        (got, total, n), (left, at) = hl.jit(f)(x, np.int32(limit)), (2 * x, np.float32(0))
        for k in range(limit):
            left = left * np.float32(0.5) if k % 3 == 0 else left + np.float32(1)
            inner = left
            for j in range(k % 4):
                inner = inner * np.float32(0.5) + np.float32(j)
            at += inner.sum()
        assert n == limit
        np.testing.assert_allclose(got, left + 2 * x, rtol=1e-6)
        np.testing.assert_allclose(total, at, rtol=1e-5)


@pytest.mark.usefixtures("batches")
def test_loops_within_go_on_where_they_left_the_kernel():
    """Whiles of unknown trip count side by side, one in another, in a branch, in a condition."""

    def collatz(n, limit):
        def step(s):
            return lax.cond(s[0] % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, s[0]), s[1] + 1

        return lax.while_loop(lambda s: (s[0] != 1) & (s[1] < limit), step, (n, 0))[1]

    def halved(x):
        return lax.while_loop(lambda v: hnp.abs(v).max() > 1.0, lambda v: v * 0.5, x)

    def step(state):
        n, total, x = state
        total = total + collatz(n, 50)
        x = lax.cond(n % 3 == 0, halved, lambda x: x + collatz(n, 7), x * 3.0)
        rows = lax.fori_loop(0, n % 3, lambda k, t: t + collatz(n + k, 20) * k, 0)
        return n + 1, total + rows + collatz(total % 9 + 1, 30), halved(x + 1.0)

    def f(x, limit):
        return lax.while_loop(lambda s: collatz(s[0], limit) < limit, step, (1, 0, x))

    x = np.array([3.5, -7.0], np.float32)
    for limit in (1, 10, 25):
        assert is_whole(compiled(f, x, np.int32(limit)))
    assert int(hl.jit(f)(x, np.int32(25))[0]) == 27  # which takes 111 steps

    def scanned(x):
        return lax.scan(lambda c, n: (halved(c + n), collatz(n, 1000)), x, hnp.arange(1, 30))

    assert is_whole(compiled(scanned, x))
    assert hl.jit(scanned)(x)[1].tolist()[5:9] == [8, 16, 3, 19]


@pytest.mark.usefixtures("batches")
def test_what_kernels_keep_between_launches_is_there_when_loops_go_on():
    def f(m, w, limit):
        def step(state):
            n, w = state
            means = (m * w[:, None]).sum(0), (m * m * w[:, None]).sum(0)  # of columns: in parts, then joined
            w = w + means[0][: w.size] - 0.5 * means[1][: w.size]
            return n + 1, lax.while_loop(lambda v: hnp.abs(v).max() > 1.0, lambda v: v * 0.5, w)

        return lax.while_loop(lambda s: s[0] < limit, step, (0, w))

    m = np.linspace(-1.0, 2.0, 8, dtype=np.float32).reshape(2, 4)
    plan = compiled(f, m, np.array([3.0, -5.0], np.float32), np.int32(21))
    assert is_whole(plan)


@pytest.mark.usefixtures("batches")
def test_scans_and_gradients_go_on_where_they_left_their_kernels():
    def step(carry, row):
        carry = hnp.tanh(carry * 0.5 + row)
        return carry, (carry.sum(), carry[::-1])

    x = np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32)
    compiled(lambda x: lax.scan(step, hnp.zeros(3), x), x)
    compiled(hl.grad(lambda x: lax.scan(step, hnp.zeros(3), x)[1][0].sum()), x)
    compiled(lambda x: lax.while_loop(lambda s: (s * s).sum() > 1e-3, lambda s: s * 0.9, x[0]), x)


def test_short_loops_never_leave_their_kernel():
    plan = compiled(lambda x: lax.fori_loop(0, 1000, lambda k, v: v * 0.9 + k, x), np.float32(1.0))
    assert not any(isinstance(s, JumpStep) for s in plan.steps)
    plan = compiled(lambda x, n: lax.fori_loop(0, n, lambda k, v: v * 0.9 + k, x), np.float32(1.0), np.int32(3))
    assert any(isinstance(s, JumpStep) for s in plan.steps)


def test_a_loop_of_scalars_is_one_kernel_that_keeps_nothing_in_memory():
    plan = compiled(lambda x: lax.fori_loop(0, 50, lambda k, v: v * 0.9 + k, x), np.float32(1.0))
    assert is_whole(plan) and len(plan.kernels()) == 1 and plan.arena_bytes == 0
    (step,) = plan.kernels()
    assert "for turn_1 in range(50):" in step.launch.source.text and "scratch" not in step.launch.source.text


def test_loops_and_branches_inside_are_part_of_it():
    def step(k, state):
        x, n = state
        x = lax.cond(k % 3 == 0, lambda x: x * 0.5, lambda x: x + 1.0, x)
        x = lax.switch(k % 4, [lambda x: x, lambda x: -x, lambda x: x * x, lambda x: x - 1.0], x)
        x = lax.while_loop(lambda v: hnp.max(hnp.abs(v)) > 2.0, lambda v: v * 0.4, x)
        return x, n + 1

    plan = compiled(lambda x: lax.fori_loop(0, 23, step, (x, 0)), np.array([0.3, -1.2, 2.0], np.float32))
    assert is_whole(plan)


def test_rows_of_large_arrays_are_read_and_written():
    def step(total, row):
        total = total * 0.5 + row
        return total, (total.sum(), total[::-1])

    x = np.random.default_rng(0).standard_normal((300, 5)).astype(np.float32)
    assert is_whole(compiled(lambda x: lax.scan(step, hnp.zeros(5), x), x))
    assert is_whole(compiled(lambda x: lax.scan(step, hnp.zeros(5), x, reverse=True), x))
    assert is_whole(compiled(hl.grad(lambda x: lax.scan(step, hnp.zeros(5), x)[1][0].sum()), x))


def test_all_element_types():
    for dtype in ("bool", "int8", "uint16", "int32", "float16", "bfloat16", "float32", "complex64"):
        x = np.array([0, 1, 3]).astype(hnp.dtype(dtype))

        def f(x):
            return lax.fori_loop(
                0, 5, lambda k, v: (v[::-1] if v.dtype == bool else v + v[::-1] * (k % 2)).astype(v.dtype), x
            )

        assert is_whole(compiled(f, x)), dtype


def test_a_donated_argument():
    f = hl.jit(lambda x: lax.fori_loop(0, 5, lambda k, v: v * 2.0, x), donate_argnums=0)
    assert float(f(hnp.float32(1.5))) == 48.0 and float(f(hnp.float32(0.5))) == 16.0


def test_loops_that_take_no_step():
    f = hl.jit(lambda n, x: lax.fori_loop(0, n, lambda k, v: v + 1.0, x))
    assert float(f(0, 2.5)) == 2.5 and float(f(3, 2.5)) == 5.5


@pytest.mark.parametrize("size", [20_000])
def test_long_kernels_are_left_to_the_driver(size):
    x = np.ones(size, np.float32)
    assert not is_whole(compiled(lambda x: lax.fori_loop(0, 5, lambda k, v: hnp.tanh(v) + 0.1, x), x))


def test_python_in_a_loop_is_left_to_the_driver():
    def f(x):
        shape = hl.ShapeDtypeStruct((), "f32")
        return lax.fori_loop(0, 3, lambda k, v: hl.pure_callback(lambda v: np.float32(v * 2), shape, v), x)

    assert not is_whole(compiled(f, np.float32(1.5)))


def test_an_inner_loop_may_be_whole_where_the_outer_is_not():
    def step(k, state):
        x, s = state
        return hnp.tanh(x + s), lax.fori_loop(0, 10, lambda j, s: s * 0.5 + 0.1, s)

    x = np.ones(30_000, np.float32)
    plan = compiled(lambda x: lax.fori_loop(0, 4, step, (x, np.float32(1.0))), x)
    assert any(isinstance(s, JumpStep) for s in plan.steps) and is_whole(plan)


def test_what_was_packed_before_all_loops_is_not_made_in_the_inner_one():
    w = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32) * 0.5

    def step(k, state):
        x, h, w = state
        h = lax.fori_loop(0, 3, lambda j, h: h @ w, h)
        return hnp.tanh(x + h[0, 0]), h, w

    def f(x, h, w):
        return lax.fori_loop(0, 4, step, (x, h, w))[:2]

    x, h = np.ones(30_000, np.float32), np.ones((16, 4), np.float32)
    plan = compiled(f, x, h, w)
    assert [s.launch.prepares for s in plan.kernels()].count(True) == 1
    want = h
    for _ in range(12):
        want = want @ w
    np.testing.assert_allclose(hl.jit(f)(x, h, w)[1], want, rtol=1e-4)


@pytest.mark.parametrize("n", [64, 300, 1024, 1100, 5000])
def test_a_state_that_is_an_argument_and_of_no_use_afterwards(n):
    """The copy of the argument stands before the kernel, so what it fills is not on the kernel's stack."""

    def f(x):
        def step(k, state):
            v, count = state
            return v * v * 0.5 + x, count + (v > 1.0)

        return lax.fori_loop(0, 4, step, (x, hnp.zeros(n, np.int32)))[1]

    x = np.random.default_rng(n).uniform(-1.3, 1.3, n).astype(np.float32)
    compiled(f, x)
    v, count = x, np.zeros(n, np.int32)
    for _ in range(4):
        v, count = v * v * np.float32(0.5) + x, count + (v > 1)
    np.testing.assert_array_equal(hl.jit(f)(x), count)


@pytest.mark.parametrize(("extent", "whole"), [(4, False), (1, True)])
def test_a_state_of_many_arrays_is_left_to_the_driver(extent, whole):
    """LLVM's time for one kernel of so many copies grows with their square; copies of numbers are none."""

    def f(x):
        state = tuple(x + k for k in range(2 * fused_loops.COPIES))
        return lax.fori_loop(0, 3, lambda i, s: (*s[1:], s[0] * 0.5), state)

    assert is_whole(compiled(f, np.ones(extent, np.float32))) == whole


# --- loops of indices become loops of the language ---


def recurrence(x):
    return lax.fori_loop(1, x.shape[0], lambda i, x: x.at[i].set(x[i - 1] * x[i] + 0.5), x)


def sweeps(x):
    n, m = x.shape

    def point(i, j, x):
        total = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]
        return x.at[i, j].set(total * 0.25)

    def row(i, x):
        return lax.fori_loop(1, m - 1, lambda j, x: point(i, j, x), x)

    return lax.fori_loop(0, 3, lambda _, x: lax.fori_loop(1, n - 1, row, x), x)


def last_of(x):
    """A state that is used after the loop, and indices that are out of range."""

    def step(i, s):
        x, count, last = s
        return x.at[i + 5].add(x[i - 3]), count + 2, x[count]

    return lax.fori_loop(2, x.shape[0] + 4, step, (x, np.int32(-7), x[0]))


@pytest.mark.parametrize("wide", [False, True], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize("program, shape", [(recurrence, (37,)), (sweeps, (19, 23)), (last_of, (200,))])
def test_indices_that_are_in_range_are_not_clamped(program, shape, wide):
    with hl.enable_x64(wide):
        x = np.random.default_rng(0).random(shape).astype(np.float64 if wide else np.float32)
        plan = compiled(program, x)
        assert is_whole(plan)
        text = "".join(s.launch.source.text for s in plan.kernels() if s.launch.source.name.startswith("whole_"))
        assert "for turn_1" in text
        if program is sweeps:
            assert "turn_2_2 = turn_2 + 1" in text  # four rows side by side
        if program is recurrence:
            assert "max(" not in text

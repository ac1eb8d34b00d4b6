"""`hl.assume`: facts of sizes that a function states while it is traced, and that each call checks."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, ShapeError, UndecidedSizeError


def ones(*dims):
    return np.ones(dims, np.float32)


def pairs(x):
    """Neighbours added, with an order of steps that depends on the size where that is known."""
    half = x.shape[0] // 2
    return x.reshape(half, 2).sum(1) if x.shape[0] % 2 == 0 else x


def test_what_is_assumed_decides_and_each_call_checks_it():
    traces = []

    @hl.jit(dims={"x": ("n",)})
    def f(x):
        traces.append(x.shape)
        hl.assume(x.shape[0] % 2 == 0)
        return pairs(x)

    for n in (2, 4, 6, 100, 4):
        np.testing.assert_array_equal(f(np.arange(n, dtype=np.float32)), np.arange(n).reshape(-1, 2).sum(1))
    for n in (7, 1, 101, 7):
        with pytest.raises(ShapeError, match=r"(?s)'f' called with n = \d+\n.*n % 2 == 0 does not hold.*assumed at.*"
                           r"in f\n.*where: .*test_assumptions.py.*in test_what"):  # fmt: skip
            f(ones(n))
    assert len(traces) == 1
    assert len(f.lower(hl.ShapeDtypeStruct((hl.Dim("n"),), "float32")).module.assumptions) == 1


def test_two_dimensions_and_lowered_programs():
    rows, columns = hl.Dim("rows", 0), hl.Dim("columns")

    @hl.jit
    def f(x, y):
        hl.assume(x.shape[0] <= y.shape[0])
        return y[: x.shape[0]] + x

    compiled = f.lower(hl.ShapeDtypeStruct((rows,), "float32"), hl.ShapeDtypeStruct((columns,), "float32")).compile()
    for one, other in ((3, 3), (0, 1), (1, 1), (2, 9)):
        np.testing.assert_array_equal(compiled(ones(one), ones(other)), 2 * ones(one))
    for _ in range(2):
        with pytest.raises(ShapeError, match=r"(?s)columns = 2, rows = 3|rows = 3, columns = 2"):
            compiled(ones(3), ones(2))


def test_of_fixed_sizes_it_is_checked_at_once():
    f = hl.jit(lambda x: (hl.assume(x.shape[0] % 2 == 0), x.sum())[1])
    assert float(f(ones(4))) == 4
    with pytest.raises(ShapeError, match=r"(?s)does not hold for these sizes.*test_assumptions.py"):
        f(ones(3))


def test_a_jitted_function_within_another_states_facts_of_both():
    @hl.jit
    def even(x):
        hl.assume(x.shape[0] % 2 == 0)
        return x + 1

    # Of three callers, the second and third meet what was traced for the first.
    callers = [hl.jit(lambda x, k=k: pairs(even(x)) + k, dims={"x": ("n",)}) for k in range(3)]
    for k, caller in enumerate(callers):
        np.testing.assert_array_equal(caller(ones(4)), [4 + k] * 2)
        with pytest.raises(ShapeError, match="n % 2 == 0 does not hold"):
            caller(ones(5))


def test_what_one_caller_assumes_decides_nothing_for_another():
    inner = hl.jit(pairs)

    @hl.jit(dims={"x": ("n",)})
    def assuming(x):
        hl.assume(x.shape[0] % 2 == 0)
        return inner(x)

    plain = hl.jit(lambda x: inner(x), dims={"x": ("n",)})
    np.testing.assert_array_equal(assuming(ones(4)), [2, 2])
    with pytest.raises(UndecidedSizeError, match="n % 2"):
        plain(ones(5))


def test_in_loops_and_derivatives():
    @hl.jit(dims={"x": ("n", 3)})
    def f(x):
        def step(total, row):
            hl.assume(x.shape[0] % 4 == 0)
            return total + (row**2).sum(), row

        return hl.grad(lambda y: hl.scan(step, 0.0, y)[0])(x)

    for n in (4, 8):
        np.testing.assert_allclose(f(ones(n, 3)), 2 * ones(n, 3))
    with pytest.raises(ShapeError, match="n % 4 == 0 does not hold"):
        f(ones(6, 3))


def test_a_library_checks_them(tmp_path):
    def f(x):
        hl.assume(x.shape[0] % 2 == 0)
        return x.reshape(x.shape[0] // 2, 2).sum(1)

    library = hl.export(f, hl.ShapeDtypeStruct((hl.Dim("n", 1, 64),), "float32"), folder=tmp_path).load()
    np.testing.assert_array_equal(library.f(ones(6)), [2, 2, 2])
    with pytest.raises(hl.errors.HloomError, match="n % 2 == 0"):
        library.f(ones(5))


def test_what_cannot_be_assumed():
    n = hl.Dim("n")
    shape = hl.ShapeDtypeStruct((n,), "float32")

    def stating(what):
        return hl.jit(lambda x: (hl.assume(what(x)), x)[1]).lower(shape)

    for what in (lambda x: 3, lambda x: hnp.sum(x) > 0, lambda x: "n", lambda x: x.shape[0]):
        with pytest.raises(ArgumentError, match=r"(?s)not a comparison of sizes.*test_assumptions.py"):
            stating(what)
    with pytest.raises(ShapeError, match=r"(?s)for none within their bounds.*test_assumptions.py"):
        stating(lambda x: x.shape[0] < 0)
    with pytest.raises(ArgumentError, match=r"(?s)no argument has the dimension k.*test_assumptions.py"):
        stating(lambda x: hl.Dim("k") == x.shape[0])
    with pytest.raises(ArgumentError, match=r"(?s)no function is traced here.*test_assumptions.py"):
        hl.assume(n % 2 == 0)
    with hl.sessions.Program("p"), pytest.raises(ArgumentError, match=r"(?s)programs of sessions.*test_assumptions.py"):
        x = hl.sessions.placeholder("x", ["n"])
        hl.assume(x._shape.dims[0] % 2 == 0)

"""Functions that Numba compiles as ops (`hl.kernel(function, results=...)`), against Numba's own calls."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading

import numba
import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, DifferentiationError, DTypeError, ExportError, ShapeError, UnsupportedError

X = np.random.default_rng(5).normal(size=(6, 40)).astype(np.float32)


@numba.njit
def runs(x, limit):
    """The places where x jumps, and their number: a list that grows."""
    found = [0]
    for k in range(1, len(x)):
        if abs(x[k] - x[k - 1]) > limit:
            found.append(k)
    if x[0] > 50:
        raise ValueError("the first is too large")
    out = np.full(len(x), -1)
    for k, v in enumerate(found):
        out[k] = v
    return out, len(found)


def shapes_of_runs(x, limit):
    return hl.ShapeDtypeStruct(x.shape, np.int32), hl.ShapeDtypeStruct((), np.int32)


@numba.njit
def counted(x, counts, total):
    """Fills arrays, with a dictionary."""
    seen = {}
    for v in x:
        key = int(v)
        if key in seen:
            seen[key] += 1
        else:
            seen[key] = 1
    for k in range(len(x)):
        counts[k] = seen[int(x[k])]
    total[0] += len(seen)


@numba.njit(parallel=True)
def parallel_sums(x):
    out = np.empty(x.shape[0], x.dtype)
    for i in numba.prange(x.shape[0]):
        out[i] = np.sort(x[i])[3] + np.median(x[i])
    return out


@numba.njit
def writes_its_argument(x):
    x[0] = 1
    return x


@numba.njit
def doubled(x):
    return x + x


@numba.njit("float32[:](float32[:])")
def declared(x):
    x[0] += 1
    return np.sort(x)


@numba.njit
def told(x):
    print("told", len(x))
    return x * 2


@numba.njit
def scaled(x, by, names):
    return x * by * len(names)


jumps = hl.kernel(runs, results=shapes_of_runs)


def line_of(function, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(k for k, one in enumerate(lines) if text in one)


def equal(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(a), b)


def stacked(rows):
    return [np.stack(parts) for parts in zip(*rows, strict=True)]


def test_a_function_of_lists_is_an_op_in_jit_loops_and_branches():
    equal(jumps(X[0], 0.5), runs(X[0], np.float32(0.5)))

    @hl.jit
    def program(x):
        def body(k, carry):
            return carry + jumps(x * k, 0.5)[1]

        total = hl.lax.fori_loop(0, 4, body, 0)
        return total, hl.lax.cond(total > 3, lambda: jumps(x, 0.25)[0], lambda: jumps(x, 8.0)[0])

    total = sum(runs(X[1] * np.float32(k), np.float32(0.5))[1] for k in range(4))
    assert total > 3
    equal(program(X[1]), (total, runs(X[1], np.float32(0.25))[0]))


def test_each_batch_element_is_one_call():
    limits = np.array([0.25, 0.5, 1], np.float32)
    equal(hl.vmap(jumps, (0, None))(X, 0.5), stacked([runs(x, np.float32(0.5)) for x in X]))
    equal(hl.jit(hl.vmap(jumps, (0, None)))(X, 0.5), stacked([runs(x, np.float32(0.5)) for x in X]))
    for outer, inner in [((None, 0), (0, None)), ((0, None), (None, 0))]:  # outer over limits, or over rows
        nested = hl.jit(hl.vmap(hl.vmap(jumps, inner), outer))
        over_limits = outer == (None, 0)
        rows = (
            [[(x, limit) for x in X] for limit in limits]
            if over_limits
            else [[(x, limit) for limit in limits] for x in X]
        )
        equal(nested(X, limits), stacked([stacked([runs(*pair) for pair in row]) for row in rows]))
    both = hl.jit(hl.vmap(hl.vmap(jumps, (0, None)), (0, 0)))  # an operand of the outer dimension alone
    cubes = np.stack([X, -X, X * 2])
    expected = stacked([stacked([runs(x, limit) for x in cube]) for cube, limit in zip(cubes, limits, strict=True)])
    equal(both(cubes, limits), expected)
    of_none = hl.jit(hl.vmap(jumps, (0, None)))(X[:0], 0.5)
    assert [a.shape for a in of_none] == [(0, 40), (0,)]


def test_filled_parameters_start_as_zeros():
    fill = hl.kernel(
        counted,
        results={
            "counts": lambda x: hl.ShapeDtypeStruct(x.shape, np.int64),
            "total": hl.ShapeDtypeStruct((1,), np.int16),
        },
    )
    with hl.enable_x64(True):
        x = np.array([1.5, 2, 1, 3, 1])
        for function in (fill, hl.jit(fill)):
            found = function(x)
            assert found["counts"].dtype == np.int64 and found["total"].dtype == np.int16
            equal((found["counts"], found["total"]), ([3, 1, 3, 1, 3], [3]))


def test_static_arguments_and_dtypes():
    by = hl.kernel(scaled, results=lambda x, by, names: x, static_argnames=("by", "names"))
    for dtype in (np.float32, np.int8, np.uint16, np.complex64):
        x = X.astype(dtype)[:3]
        found = np.asarray(hl.jit(lambda x: by(x, 2, ("a", "b", "c")))(x))
        np.testing.assert_array_equal(found, (x * 6).astype(dtype))
    negated = hl.kernel(numba.njit(lambda x: ~x), results=lambda x: x)
    np.testing.assert_array_equal(np.asarray(negated(X > 0)), X <= 0)


def test_a_function_with_declared_signatures_gets_copies():
    x = hnp.asarray(X[0])
    found = hl.jit(hl.kernel(declared, results=lambda x: x))(x)
    np.testing.assert_array_equal(np.asarray(x), X[0])
    expected = X[0].copy()
    np.testing.assert_array_equal(np.asarray(found), declared(expected))


def test_loops_of_numba_in_parallel():
    expected = parallel_sums(X)
    called = hl.jit(hl.kernel(parallel_sums, results=lambda x: hl.ShapeDtypeStruct(x.shape[:1], x.dtype)))
    np.testing.assert_array_equal(np.asarray(called(X)), expected)
    cubes = np.stack([X, -X, X + 1])
    np.testing.assert_array_equal(np.asarray(hl.vmap(called)(cubes)), [parallel_sums(x) for x in cubes])


def test_calls_of_many_threads_without_python():
    program = hl.jit(hl.vmap(jumps, (0, None)))
    expected = stacked([runs(x, np.float32(0.5)) for x in X])
    failed = []

    def work():
        for _ in range(50):
            try:
                equal(program(X, 0.5), expected)
            except AssertionError as error:
                failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed


def test_a_function_may_print_from_any_thread(capfd):
    program = hl.jit(hl.vmap(hl.kernel(told, results=lambda x: x)))
    np.testing.assert_array_equal(np.asarray(program(X)), X * 2)
    assert capfd.readouterr().out.count("told") == len(X)  # Numba prints words one by one


def test_an_error_is_raised_with_its_own_line_and_the_callers():
    program = hl.jit(lambda x: jumps(x, 0.5)[0])
    large = X[0] + 60
    with pytest.raises(ValueError, match="the first is too large") as found:
        program(large)
    assert f"{__file__}:{line_of(test_an_error_is_raised_with_its_own_line_and_the_callers, 'program = ')}" in str(
        found.value.__notes__
    )
    last = found.traceback[-1]
    assert (str(last.path), last.lineno + 1) == (__file__, line_of(runs.py_func, "raise ValueError"))
    equal([program(X[0])], [runs(X[0], np.float32(0.5))[0]])  # the program goes on
    rows = X.copy()
    rows[4] += 60
    with pytest.raises(ValueError, match="the first is too large"):
        hl.jit(hl.vmap(jumps, (0, None)))(rows, 0.5)
    in_a_loop = hl.jit(lambda x: hl.lax.fori_loop(0, 100, lambda k, y: y + jumps(y, 0.5)[1].astype(np.float32), x))
    with pytest.raises(ValueError, match="the first is too large"):
        in_a_loop(X[0])


def test_a_result_of_another_shape_is_an_error():
    halves = numba.njit(lambda x: x[: len(x) // 2].copy())
    program = hl.jit(hl.kernel(halves, results=lambda x: x))
    with pytest.raises(ShapeError, match=r"was declared to return f32\[40\](.|\n)*f32\[20\]"):
        program(X[0])


@pytest.mark.parametrize(
    ("function", "results", "error", "text"),
    [
        (writes_its_argument, lambda x: x, UnsupportedError, "Numba does not compile it(.|\n)*readonly"),
        (doubled, lambda x: hl.ShapeDtypeStruct((2, 2), x.dtype), ShapeError, "declare the shape"),
        (doubled, lambda x: hl.ShapeDtypeStruct(x.shape, np.int32), DTypeError, "other widths"),
        (doubled, lambda x: (x, x), ArgumentError, "to return 2 results"),
        (doubled, lambda x: {"y": x}, ArgumentError, "a dictionary of functions"),
        (doubled, lambda x: 3, ArgumentError, "ShapeDtypeStruct"),
        (doubled, lambda x: (), ArgumentError, "declare one"),
        (doubled, {"y": lambda x: x}, ArgumentError, "'y', which is no parameter"),
        (doubled.py_func, lambda x: x, ArgumentError, "numba.njit"),
    ],
)
def test_refusals(function, results, error, text):
    with pytest.raises(error, match=text) as found:
        hl.kernel(function, results=results)(X[0])
    if function is writes_its_argument:
        assert found.value.source.line == line_of(function.py_func, "x[0] = 1")
    else:
        assert found.value.source.file == __file__


def test_what_cannot_be_done_says_so(tmp_path):
    twice = hl.kernel(doubled, results=lambda x: x)
    with pytest.raises(DifferentiationError, match="hl.custom_vjp"):
        hl.grad(lambda x: twice(x).sum())(X[0])
    with pytest.raises(DTypeError, match="bf16"):
        twice(hnp.asarray(X[0], hnp.bfloat16))
    with pytest.raises(ExportError, match="hloom.numba.doubled"):
        hl.export(hl.jit(twice), hl.ShapeDtypeStruct((40,), np.float32), folder=tmp_path, name="twice")
    with pytest.raises(ArgumentError, match="boundscheck"):
        hl.kernel(doubled, results=lambda x: x, unchecked=True)
    with pytest.raises(UnsupportedError, match=r"results=\.\.\.") as found:
        hl.kernel(runs)(X[0], 0.5)
    assert found.value.source.file == __file__


def test_a_derivative_of_its_own():
    twice = hl.kernel(doubled, results=lambda x: x)

    @hl.custom_vjp
    def known(x):
        return twice(x)

    known.defvjp(lambda x: (twice(x), None), lambda _, bar: (2 * bar,))
    np.testing.assert_array_equal(np.asarray(hl.jit(hl.grad(lambda x: (known(x) ** 2).sum()))(X[0])), 8 * X[0])


def test_open_sizes():
    n = hl.Dim("n", min=1, max=100)
    twice = hl.kernel(doubled, results=lambda x: x)
    compiled = hl.jit(lambda x: twice(x) + 1).lower(hl.ShapeDtypeStruct((n,), np.float32)).compile()
    for size in (3, 40):
        np.testing.assert_array_equal(np.asarray(compiled(X[0, :size])), X[0, :size] * 2 + 1)


def test_numba_is_imported_only_for_it():
    text = "import hloom as hl, sys; hl.kernel; import hloom.kernels.kernel; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0

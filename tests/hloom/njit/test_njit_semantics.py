"""NumPy's rules under `hl.njit`: views, dtypes, control flow, arguments."""

from __future__ import annotations

import copy
import linecache
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
import scipy.special
from test_njit_programs import assert_same

import hloom as hl


def check(function, *arguments):
    own, given = copy.deepcopy(arguments), copy.deepcopy(arguments)
    with np.errstate(all="ignore"):
        wanted = function(*given)
    found = hl.njit(function)(*own)
    assert_same(found, wanted, "result")
    assert_same(own, given, "argument")


X = np.random.default_rng(0).normal(size=(5, 8))


def a_view_of_a_view(x):
    v = x[1:4, ::2]
    w = v.T
    w[1] = 7
    v[0, 0] += 1
    u = x.reshape(-1)
    u[3:6] *= -1
    return x.sum(), w, v[::-1].copy()


def a_copy_where_reshape_is_one(x):
    flat = x.T.reshape(-1)
    flat[:] = 0
    return flat


def rows(x):
    total = 0.0
    for row in x:
        row *= 2
        total += row[0]
    return total


def swaps(x):
    a, b = x[0].copy(), x[1].copy()
    x[0], x[1] = b, a
    i, j = 1, 2
    i, j = j, i
    return i, j


def aliases(x):
    y = x
    y += 1
    z = x * 1
    z -= 5
    return y, z


def masks(x):
    x[x < 0] = 0
    x[:, x[0] > 0.5] += 1
    return np.where(x > 1, 1, x), (x > 0).sum(), x[2][x[2] > 0].sum()


def negative_indices(x):
    total = 0.0
    for i in range(-3, 3):
        total += x[i, -1] * x[-1, i]
    return total


def chained(x):
    n = 0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if -0.5 < x[i, j] <= 0.5 and not (i == j or j == 2):
                n += 1
            elif x[i, j] > 1:
                continue
    return n


def early_return(x):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] > 1.0:
                return i, j
    return -1, -1


def widened(x):
    s = 0
    for v in x[0]:
        s = s + v
    k = 1
    while k < 100:
        k = k * 3
    return s, k


def ragged(x):
    out = np.zeros(x.shape[0])
    for i in range(x.shape[0]):
        out[i] = x[i, : i + 1].sum() + x[i, i:].max()
    return out


def changed_by_kernels_in_a_loop(x):
    for _, row in enumerate(x.reshape(2, -1)):
        for _ in row:
            x += 1
        for k in range(len(x)):
            x[k, 0] += row[0]


def a_loop_in_a_branch(x):
    y = np.zeros(8)
    if x[0, 0] > -100:
        for k in range(3):
            x[k] += 1
            y = y + x[k]
        while x[0, 1] < 3:
            x += 1
    return y


def from_the_end(x):
    total = 0.0
    for k in range(20):
        total += x[k % 5 - 5, k % 8 - 8]
    return total


def an_early_truth_value(x):
    for k in range(5):
        if x[k, 0] > 100:
            return k, x[k, 1] > 0
    return 7, x[0, 0] > 0


def out_in_a_loop(x):
    for _ in range(3):
        np.add(x, x, out=x)
        np.maximum(x, 0.5, out=x)


def masks_in_a_loop(x):
    for _ in range(3):
        x[x > 1] -= 2
        x[0][x[1] > 0] = 5


def elements_that_are_computed(x):
    i = int(x.sum()) % 5
    x[i] += 1
    return x[i - 5, i], x[np.argsort(x[0]) % 5 - 5, 0]


def views_at_computed_indices(x):
    k = int(x.sum()) % 5
    v = x[k]
    w = x[k - 5, 1:]
    x[k] += 1
    v[0] = 7
    w[2] += v[3]
    for i in range(8):
        v[i] *= 2
    return v, w


def bound_anew_in_a_loop(x):
    row = x[0]
    for k in range(3):
        row = x[k]
        x[k, 0] += 1
    part = x[1]
    for part in x:
        part[0] = 3
    return row, part


@pytest.mark.parametrize(
    "function",
    [
        bound_anew_in_a_loop,
        views_at_computed_indices,
        out_in_a_loop, masks_in_a_loop, elements_that_are_computed,
        changed_by_kernels_in_a_loop, a_loop_in_a_branch, from_the_end, an_early_truth_value,
        a_view_of_a_view, a_copy_where_reshape_is_one, rows, swaps, aliases, masks, negative_indices, chained,
        early_return, widened, ragged,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_programs(function):
    check(function, X)


def arrays_of_the_type_itself(x):
    total = np.ndarray((len(x), 3), np.int32)
    rows = np.ndarray(len(x))
    for i in range(len(x)):
        rows[i] = x[i, 0] * 2
        row = np.ndarray(3, dtype=np.float64)
        for j in range(3):
            total[i, j] = i * j
            row[j] = x[i, j] * j
        rows[i] += row[2]
    return total, rows, np.ndarray(shape=(2, 0)), np.ndarray([2, 0], "f4", order="C")


def test_ndarray_makes_an_array():
    check(arrays_of_the_type_itself, X)


DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "uint32", "float32", "float64", "complex64", "complex128"]


def arithmetic(a, b):
    return a + b, a * b, a / (b + 1), a == b


def arithmetic_of_elements(a, b):
    out = np.empty(len(a), np.result_type(a, b))
    for i in range(len(a)):
        out[i] = a[i] + b[i] * 2
    return out


@pytest.mark.parametrize("left", DTYPES)
@pytest.mark.parametrize("right", DTYPES)
def test_dtypes_of_arithmetic(left, right):
    values = np.array([0, 1, 1, 0, 1])
    check(arithmetic, values.astype(left), values[::-1].astype(right))
    if "bool" not in (left, right):
        check(arithmetic_of_elements, (values * 3).astype(left), values.astype(right))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_of_reductions_and_python_numbers(dtype):
    def function(x):
        found = [x.sum(), x.mean(), x * 2, x.max(), np.abs(x), x.astype(np.float64), np.zeros(2) + x[0]]
        if x.dtype.kind != "b":
            found += [x + 1, x**2, x.prod()]
        if x.dtype.kind in "iuf":
            found += [x // 2, x % 3, np.cumsum(x), np.argmax(x), np.sort(x)]
        return found

    check(function, np.array([1, 0, 1, 1], dtype))


def test_integers_of_a_range_take_the_dtype_of_others():
    def function(x):
        total = np.float32(0)
        k = 0
        for k in range(10):
            total = total + x[k] * k
        return total, np.float32(1) + k

    check(function, np.linspace(0, 1, 10, dtype=np.float32))


def test_integers_wrap_as_numpys():
    def function(x):
        total = np.int32(0)
        for k in range(10):
            total = total + x[k]
        return total, x * x

    check(function, np.full(10, 2**30, np.int32))


class Pair(NamedTuple):
    first: np.ndarray
    second: np.ndarray


def test_arguments_of_all_kinds():
    def function(pair, options, *rest, scale=2.0):
        pair.first[:] = pair.second * scale
        options["out"][0] = rest[0]
        return pair.first.sum() + len(rest)

    def call(f):
        pair, options = Pair(np.zeros(3), np.arange(3.0)), {"out": np.zeros(2), "name": "a"}
        return f(pair, options, 4.0, 5.0, scale=3.0), pair, options["out"]

    assert_same(call(hl.njit(function)), call(function), "result")


def test_the_same_array_twice():
    def function(x, y):
        x[0] = 5
        return y.sum()

    x, own = np.ones(3), np.ones(3)
    assert hl.njit(function)(own, own) == function(x, x)


def test_methods_and_closures():
    scale = 3.0

    class Model:
        @hl.njit
        def run(self, x):
            return x * scale

    np.testing.assert_array_equal(Model().run(np.ones(3)), np.full(3, 3.0))


def test_integers_that_decide_shapes():
    @hl.njit
    def table(n, m):
        out = np.zeros((n, m + 1))
        for i in range(n):
            out[i, m] = i
        return out

    for n, m in ((3, 2), (5, 1)):
        assert_same(table(n, m), table.written(n, m), "result")


def test_gradients_by_pure():
    def recurrence(x):
        for i in range(1, len(x)):
            x[i] = x[i - 1] * x[i] + 0.5

    x = np.random.default_rng(1).uniform(0.5, 1, 9)
    f = hl.njit(recurrence)
    with hl.enable_x64():
        slope = np.asarray(hl.grad(lambda v: f.pure(v)[1]["0"].sum())(x))
    step = 1e-6
    for k in range(len(x)):
        up, down = x.copy(), x.copy()
        up[k] += step
        down[k] -= step
        recurrence(up)
        recurrence(down)
        np.testing.assert_allclose(slope[k], (up.sum() - down.sum()) / (2 * step), rtol=1e-6)


def test_a_loop_over_an_array_that_it_changes_sees_the_changes():
    def function(x, h):
        total = 0.0
        for v in h:
            h[(int(v) + 1) % 4] += 2
            total += np.linalg.det(x[:2, :2]) * v
        for v, w in zip(h, x[0], strict=False):
            h[3] += v
            total += np.linalg.det(x[:2, :2]) * w
        return total

    check(function, X, np.array([1, 2, 3, 0]))


SCALE, TABLE = 2.0, np.array([1.0, 2.0])


def scaled(x):
    return x * SCALE + TABLE[0] + from_a_helper(x)


def from_a_helper(x):
    return x.sum() * SCALE


def test_what_changes_outside_is_seen(monkeypatch):
    f, x = hl.njit(scaled), np.arange(3.0)
    assert_same(f(x), scaled(x), "result")
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert_same(f(x), scaled(x), "result")
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert_same(f(np.arange(3)), scaled(np.arange(3)), "result")
    TABLE[0] = 7
    assert_same(f(x), scaled(x), "result")
    np.testing.assert_array_equal(f.pure(x)[0], scaled(x))
    TABLE[0] = 1
    np.testing.assert_array_equal(f.pure(x)[0], scaled(x))

    def around():
        factor = 1.0
        inner = hl.njit(lambda x: x * factor)
        first = inner(x)
        factor = 5.0
        return first, inner(x)

    assert_same(around(), (x, 5 * x), "result")


def test_first_calls_in_several_threads():
    f = hl.njit(ragged)
    wanted = {n: ragged(X[:n]) for n in (2, 3, 4, 5)}
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: (n, f(X[:n].copy())), [2, 3, 4, 5] * 5))
    for n, result in found:
        assert_same(result, wanted[n], "result")


def bumped(a):
    a[0] += 1
    return 3


def test_bounds_of_a_loop_are_computed_once():
    def function(a, x):
        for i in range(bumped(a)):
            x[i] = a[0]

    check(function, np.zeros(2), np.zeros(5))


def test_functions_of_scipy():
    def function(x):
        total = scipy.special.gammaln(x[0]).sum() + scipy.special.expit(x[0, 0])
        for v in x[1]:
            total += scipy.special.erf(v)
        return scipy.special.erf(x), total

    check(function, np.abs(X) + 1)


def test_what_an_inner_loop_goes_over_is_computed_once():
    def function(a, x):
        total = 0.0
        for i in range(x.shape[0]):
            for v, w in zip(x[i] * 2, range(bumped(a) + 5), strict=True):
                x[i] += 1
                total += v * w
        return total

    check(function, np.zeros(2), X)


@pytest.mark.parametrize("steps", (1, 2, 3, 10))
def test_arrays_that_exchange_their_names_in_a_loop_are_changed_in_place(steps):
    def function(u, steps):
        v = u.copy()
        for _ in range(steps):
            for i in range(1, len(u) - 1):
                v[i] = 0.2 * (u[i] + u[i - 1] + u[i + 1])
            u, v = v, u
        return u

    check(function, X[0].copy(), steps)


@pytest.mark.parametrize("name", ("start", "leave", "entry", "t1", "größe"))
def test_arguments_may_have_any_name(name):
    source = f"def function(x, {name}):\n    for i in range(len(x)):\n        x[i] = {name} * x[i]\n"
    path = f"named_{name}.py"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    scope: dict = {}
    exec(compile(source, path, "exec"), scope)
    check(scope["function"], np.ones(3), 2.5)


@pytest.mark.parametrize(
    "function",
    (
        lambda x, n: np.arange(n) * 2.0,
        lambda x, n: np.linspace(0.0, 1.0, num=n),
        lambda x, n: np.roll(x, n) + np.tile(x[:1], n).sum(),
        lambda x, n: np.diag(x, n),
        lambda x, n: np.fft.rfft(x, n),
    ),
    ids=("arange", "linspace", "tile", "diag", "rfft"),
)
def test_integers_that_functions_have_to_know_are_known(function):
    check(function, X[0].copy(), 3)


def test_loops_of_the_program_over_known_ranges_have_gradients():
    @hl.njit
    def function(x):
        for i in range(1, 20):
            x = np.append(x[1:], x[:1] * 0.5) + 0.01 * i * x
        return x

    x = np.linspace(0.5, 1.0, 4)
    with hl.enable_x64():
        slope = np.asarray(hl.grad(lambda x: function.pure(x)[0].sum())(x))
    for k, h in enumerate(1e-6 * np.eye(4)):
        difference = (function(x + h).sum() - function(x - h).sum()) / 2e-6
        np.testing.assert_allclose(slope[k], difference, rtol=1e-7)


def joins_and_windows(x):
    windows = np.lib.stride_tricks.sliding_window_view
    return (
        windows(x, (2, 2)).sum(axis=(2, 3)), windows(x[0], 3).mean(axis=1), windows(x, 2, axis=1),
        np.maximum.accumulate(x), np.minimum.accumulate(x, axis=1), np.add.reduceat(x[0], [0, 3, 5]),
        np.r_[x[0, :2], 0, 5:8], np.c_[x[0], x[1], np.ones(8)], np.r_["0,2", x[0], x[1]],
        np.einsum("ij,kj->ik", x, x), np.einsum("ij->j", x), np.histogram2d(x[0], x[1], 3)[0],
    )  # fmt: skip


def without_warnings(x):
    with np.errstate(divide="ignore", invalid="ignore"):
        y = x / (x > 0)
        for i in range(3):
            with np.errstate(all="ignore"):
                y[0, i] = y[0, i] / 0.0
    return np.where(x > 0, y, 0)


@pytest.mark.parametrize("function", [joins_and_windows, without_warnings])
def test_functions_that_make_arrays(function):
    check(function, X)


def sigmoid(t, scale):
    return 1 / (1 + np.exp(-t)) if t > 0 else scale * t


each = np.vectorize(sigmoid)


def test_a_function_that_numpy_calls_for_each_element():
    def function(x):
        return each(x, 0.5)

    check(function, X)


def first_assigned_in_an_inner_loop(x):
    for i in range(2):
        for j in range(1, 3):
            last = x[i, j] * 2
    return last, i, j


def test_names_that_loops_within_loops_assign():
    check(first_assigned_in_an_inner_loop, X)

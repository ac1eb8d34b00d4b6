"""`hl.vectorize`, `hl.guvectorize` and `hl.stencil` compute what Numba's decorators compute."""

from __future__ import annotations

import numba
import numpy as np
import pytest

import hloom as hl
from hloom.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError

X = np.random.default_rng(0).normal(size=(4, 5)) * 3
SCALE = 2.0


def branches(x, high):
    if x > high:
        return high
    steps = 0
    while x > 0 and steps < 5:
        x -= 1
        steps += 1
    return x + steps


def returns_in_loops(x, limit):
    for k in range(10):
        if k * x > limit:
            return float(k)
    return -1.0


def calls_others(x, y):
    return branches(x, y) * 0.5 + np.exp(-abs(x))


@pytest.mark.parametrize("function", [branches, returns_in_loops, calls_others], ids=lambda f: f.__name__)
def test_vectorize_broadcasts_as_numba_does(function):
    mine, numbas = hl.vectorize(function), numba.vectorize(numba.njit(function).py_func if function is not calls_others
                                                           else _with_compiled_helpers)  # fmt: skip
    for args in ((X, 1.5), (X, X[0]), (X[:, :1], X[0]), (0.5, 2.0), (X[0], X[1:2])):
        found, wanted = mine(*args), numbas(*args)
        np.testing.assert_allclose(found, wanted, rtol=1e-14)
        assert np.asarray(found).dtype == np.asarray(wanted).dtype and type(found) is type(wanted)


_branches = numba.njit(branches)


def _with_compiled_helpers(x, y):
    return _branches(x, y) * 0.5 + np.exp(-abs(x))


def test_vectorize_writes_into_out():
    mine, numbas = hl.vectorize(branches), numba.vectorize(branches)
    out = np.zeros(X.shape)
    assert mine(X, 1.5, out=out) is out
    np.testing.assert_array_equal(out, numbas(X, 1.5))
    mine(X, 0.1, out=out, where=X > 0)
    wanted = np.where(X > 0, numbas(X, 0.1), numbas(X, 1.5))  # Numba's own do not take where=
    np.testing.assert_array_equal(out, wanted)
    mine(out, 0.05, out)
    np.testing.assert_array_equal(out, numbas(wanted, 0.05))


@pytest.mark.parametrize("value", [np.ones(2, t) for t in ("i4", "u1", "f2", "u8", "?", "i8", "f4", "f8")] + [1, 1.5],
                         ids=lambda v: str(getattr(v, "dtype", type(v).__name__)))  # fmt: skip
def test_vectorize_takes_the_first_signature_without_loss(value):
    declared = ["float32(float32)", "int64(int64)", "float64(float64)"]
    mine, numbas = [v.vectorize(declared)(lambda_of_one) for v in (hl, numba)]
    found, wanted = mine(value), numbas(value)
    assert np.asarray(found).dtype == np.asarray(wanted).dtype
    np.testing.assert_array_equal(found, wanted)
    assert mine.types == numbas.types and mine.nin == numbas.nin


def lambda_of_one(x):
    return x * 3


def test_the_result_has_the_declared_dtype():
    found = hl.vectorize(["int32(float64)"])(lambda_of_one)(np.array([1.5, -1.5]))
    np.testing.assert_array_equal(found, numba.vectorize(["int32(float64)"])(lambda_of_one)(np.array([1.5, -1.5])))
    assert found.dtype == np.int32


def test_types_of_numba_are_signatures():
    mine = hl.vectorize([numba.float32(numba.float32), numba.float64(numba.float64)], target="parallel")(lambda_of_one)
    assert mine(np.ones(2, np.float32)).dtype == np.float32 and mine(1).dtype == np.float64


def difference(a, b):
    return a - 2 * b


def test_methods_of_ufuncs():
    mine, numbas = (
        hl.vectorize(difference),
        numba.vectorize(["int64(int64, int64)", "float64(float64, float64)"])(difference),
    )
    for axis in (0, 1):
        np.testing.assert_allclose(mine.reduce(X, axis=axis), numbas.reduce(X, axis=axis), rtol=1e-13)
        np.testing.assert_allclose(mine.accumulate(X, axis=axis), numbas.accumulate(X, axis=axis), rtol=1e-13)
    assert mine.reduce(np.arange(4)) == numbas.reduce(np.arange(4))
    np.testing.assert_array_equal(mine.outer(np.arange(3), np.arange(2)), numbas.outer(np.arange(3), np.arange(2)))
    with pytest.raises(ArgumentError, match="identity"):
        mine.reduce(np.zeros(0))


def test_vectorized_functions_in_programs():
    mine, numbas = hl.vectorize(branches), numba.vectorize(branches)

    def program(f, x):
        total = 0.0
        for i in range(x.shape[0]):
            total += f(x[i, 0], 1.0)
            x[i] = f(x[i], x[i, 1])
        return total + f(x, 2.0)

    given, wanted = X.copy(), X.copy()
    found = hl.njit(lambda x: program(mine, x))(given)
    np.testing.assert_allclose(found, program(numbas, wanted), rtol=1e-14)
    np.testing.assert_allclose(given, wanted, rtol=1e-14)
    np.testing.assert_allclose(hl.njit(lambda x: numbas(x, 2.0) + 1)(X), numbas(X, 2.0) + 1)


def test_signatures_hold_in_loops():
    mine = hl.vectorize(["int64(int64)"])(lambda_of_one)

    @hl.njit
    def program(x):
        out = np.zeros(len(x))
        for i in range(len(x)):
            out[i] = mine(x[i]) / 2
        return out

    np.testing.assert_array_equal(program(np.arange(20, dtype=np.int32)), np.arange(20) * 1.5)


def test_vectorized_functions_have_derivatives():
    mine = hl.vectorize(lambda_of_square)
    with hl.enable_x64():
        np.testing.assert_allclose(hl.grad(lambda x: mine(x).sum())(X[0]), np.where(X[0] > 0, 2 * X[0], 3))


def lambda_of_square(x):
    if x > 0:
        return x * x
    return 3 * x


def scaled(x):
    return x * SCALE


def test_a_number_from_outside_that_changes(monkeypatch):
    mine = hl.vectorize(scaled)

    @hl.njit
    def in_a_loop(x):
        out = np.empty_like(x)
        for i in range(len(x)):
            out[i] = scaled(x[i])
        return out

    x = np.arange(20.0)
    np.testing.assert_array_equal(mine(x), in_a_loop(x))
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    np.testing.assert_array_equal(mine(x), x * 5)
    np.testing.assert_array_equal(in_a_loop(x), x * 5)


def test_errors_of_vectorize():
    with pytest.raises(DTypeError, match=r"complex128.*\n.*declared as float64\(float64\)"):
        hl.vectorize(["float64(float64)"])(lambda_of_one)(np.ones(2, complex))
    with pytest.raises(ShapeError, match="do not broadcast"):
        hl.vectorize(difference)(np.ones(2), np.ones(3))
    with pytest.raises(ArgumentError, match="1 arguments"):
        hl.vectorize(difference)(np.ones(2))
    with pytest.raises(UnsupportedError, match="where="):
        hl.vectorize(difference)(X, X, where=X > 0)
    with pytest.raises(ArgumentError, match="target='cuda'"):
        hl.vectorize(target="cuda")(difference)
    with pytest.raises(ArgumentError, match="a signature"):
        hl.vectorize(["float64(nothing)"])(difference)
    with pytest.raises(ArgumentError, match="of a function of 2 numbers"):
        hl.vectorize(["float64(float64)"])(difference)


# --- guvectorize


def shifted(x, by, out):
    for i in range(x.shape[0]):
        out[i] = x[i] + by


def quadratic(a, x, out):
    out[0] = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[0] += a[i, j] * x[j]


def moments(x, mean, square):
    total, squares = 0.0, 0.0
    for v in x:
        total += v
        squares += v * v
    mean[0] = total / len(x)
    square[0] = squares


A = np.random.default_rng(1).random((3, 4, 5))
SHIFTED = (["void(int64[:], int64, int64[:])", "void(float64[:], float64, float64[:])"], "(n),()->(n)", shifted)
QUADRATIC = (["void(float64[:,:], float64[:], float64[:])"], "(m,n),(n)->()", quadratic)
MOMENTS = (["void(float64[:], float64[:], float64[:])"], "(n)->(),()", moments)
STACKS = [
    (SHIFTED, (np.arange(5), 2)), (SHIFTED, (np.arange(6).reshape(2, 3), np.array([10, 20]))),
    (SHIFTED, (np.arange(3, dtype=np.int32), 2.5)), (SHIFTED, (A, A[:, 0, :1])), (SHIFTED, (A[0, 0], np.arange(3))),
    (QUADRATIC, (A, A[0, 0])), (QUADRATIC, (A, A[:2, :1, :].reshape(2, 1, 5))), (QUADRATIC, (A[0], A[0])),
    (MOMENTS, (A,)), (MOMENTS, (A[0, 0],)), (MOMENTS, (np.arange(4),)),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(STACKS)))
def test_guvectorize(case):
    (signatures, layout, function), args = STACKS[case]
    found = hl.guvectorize(signatures, layout)(function)(*args)
    wanted = numba.guvectorize(signatures, layout)(function)(*args)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-14)
        assert one.dtype == other.dtype and np.shape(one) == np.shape(other)


def test_guvectorize_without_signatures_takes_results():
    mine, numbas = hl.guvectorize("(n),()->(n)")(shifted), numba.guvectorize("(n),()->(n)")(shifted)
    out, wanted = np.zeros((4, 5)), np.zeros((4, 5))
    assert mine(A[0], A[0, :, 0], out) is out
    numbas(A[0], A[0, :, 0], wanted)
    np.testing.assert_array_equal(out, wanted)
    with pytest.raises(ArgumentError, match="no arrays for results"):
        mine(A[0], 1.0)


def determinant(a, out):
    out[0] = np.linalg.det(a)


def test_guvectorize_of_what_kernels_lack():
    mine = hl.guvectorize(["void(float64[:,:], float64[:])"], "(n,n)->()")(determinant)
    np.testing.assert_allclose(mine(A[:, :, :4]), np.linalg.det(A[:, :, :4]), rtol=1e-12)
    with hl.enable_x64():
        found = hl.jit(lambda a: mine(a) * 2)(A[:, :3, :3])
    np.testing.assert_allclose(found, 2 * np.linalg.det(A[:, :3, :3]), rtol=1e-12)


def writes_an_input(x, out):
    x[0] = 1.0
    out[0] = x[0]


def test_errors_of_guvectorize():
    mine = hl.guvectorize(["void(int64[:], int64, int64[:])"], "(n),()->(n)")(shifted)
    with pytest.raises(DTypeError, match="declared as"):
        mine(A[0], 2)
    with pytest.raises(ShapeError, match="do not|dimension n"):
        hl.guvectorize(*QUADRATIC[:2])(quadratic)(A, A[0, 0, :3])
    with pytest.raises(ArgumentError, match="a layout"):
        hl.guvectorize("n->n")
    with pytest.raises(ArgumentError, match="the function has 3 arguments"):
        hl.guvectorize("(n)->(n)")(shifted)
    with pytest.raises(UnsupportedError, match="'x' of writes_an_input"):
        hl.guvectorize(["void(float64[:], float64[:])"], "(n)->()")(writes_an_input)(A[0])


# --- stencil


def neighbours(a):
    return 0.25 * (a[0, 1] + a[1, 0] + a[0, -1] + a[-1, 0])


def two_arrays(a, b, w):
    if a[0, 0] > 0.5:
        return a[0, 1] * b[1, 0]
    return w[1] + a[0, -2]


def window(a):
    total = 0.0
    for i in range(-2, 2):
        total += a[i]
    return total


def of_a_slice(a):
    return np.max(a[-1:2])


def is_larger(a, limit):
    return a[1] > limit


Z = np.random.default_rng(3).random(12)
STENCILS = [
    (neighbours, {}, (A[0],)), (neighbours, {"cval": -1.5}, (A[0],)), (neighbours, {}, (A[0, :, ::-2],)),
    (neighbours, {}, (np.arange(20).reshape(4, 5),)), (neighbours, {}, (A[0, :2],)),
    (two_arrays, {"standard_indexing": ("w",)}, (A[0], A[1], np.arange(3.0))),
    (window, {"neighborhood": ((-2, 1),)}, (Z,)), (of_a_slice, {"neighborhood": ((-1, 1),)}, (Z,)),
    (is_larger, {}, (Z, 0.5)), (window, {"neighborhood": ((-2, 1),), "cval": np.nan}, (Z,)),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(STENCILS)))
def test_stencil(case):
    function, options, args = STENCILS[case]
    found, wanted = hl.stencil(**options)(function)(*args), numba.stencil(**options)(function)(*args)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)
    assert found.dtype == wanted.dtype


@pytest.mark.parametrize("options", [{}, {"cval": 3.0}], ids=str)
def test_stencil_writes_into_out(options):
    outs = np.full(12, 9.0), np.full(12, 9.0)
    for decorator, out in zip((hl.stencil, numba.stencil), outs, strict=True):
        decorator(neighborhood=((-2, 1),), **options)(window)(Z, out=out)
    np.testing.assert_allclose(*outs, rtol=1e-14)


def test_stencils_in_programs():
    step = hl.stencil(neighbours)

    @hl.njit
    def relax(x, steps):
        for _ in range(steps):
            x = step(x)
        return x

    wanted = A[0]
    for _ in range(3):
        wanted = numba.stencil(neighbours)(wanted)
    np.testing.assert_allclose(relax(A[0], 3), wanted, rtol=1e-13)
    with hl.enable_x64():
        slope = hl.grad(lambda x: (step(x) ** 2).sum())(A[0])
    np.testing.assert_allclose(slope[1, 1], _central(lambda x: (numba.stencil(neighbours)(x) ** 2).sum(), A[0], (1, 1)),
                               rtol=1e-6)  # fmt: skip


def _central(f, x, at):
    moved = [x.copy(), x.copy()]
    moved[0][at] += 1e-5
    moved[1][at] -= 1e-5
    return (f(moved[0]) - f(moved[1])) / 2e-5


def assigns(a):
    a[0] = 1.0
    return a[0]


def test_errors_of_stencil():
    with pytest.raises(UnsupportedError, match=r"a\[i\] of a stencil[\s\S]*total \+= a\[i\]"):
        hl.stencil(window)
    with pytest.raises(UnsupportedError, match=r"an assignment to a\[0\]"):
        hl.stencil(assigns)
    with pytest.raises(ArgumentError, match="its neighborhood is"):
        hl.stencil(neighborhood=((-1, 0), (0, 0)))(neighbours)
    with pytest.raises(ArgumentError, match="1 dimensions, its indices have 2"):
        hl.stencil(neighborhood=((-1, 0),))(neighbours)
    with pytest.raises(ArgumentError, match="no relative index"):
        hl.stencil(scaled)
    with pytest.raises(ShapeError, match="'b' of two_arrays"):
        hl.stencil(two_arrays, standard_indexing=("w",))(A[0], A[1, :3], np.arange(3.0))
    with pytest.raises(DTypeError, match="cval"):
        hl.stencil(neighbours, cval=1j)(A[0])
    with pytest.raises(ArgumentError, match="mode 'wrap'"):
        hl.stencil("wrap")


def of_offsets(a, offsets):
    total = 0.0
    for k in range(len(offsets)):
        total += a[offsets[k]]
    return total


def of_slices(a, offsets):
    return np.sum(a[offsets[0] : offsets[1]])


def at_three(a):
    total = 0.0
    for i in range(3, 4):
        total += a[i, 0]
    return total


def test_indices_stay_in_the_neighborhood():
    """Beyond it they would wrap to the other end of the array."""
    step = hl.stencil(of_offsets, neighborhood=((-2, 1),), standard_indexing=("offsets",))
    wanted = numba.stencil(neighborhood=((-2, 1),), standard_indexing=("offsets",))(of_offsets)
    np.testing.assert_allclose(step(Z, np.array([-2, 1, 0])), wanted(Z, np.array([-2, 1, 0])))
    for bad in (-3, 2):
        with pytest.raises(ShapeError, match=rf"of 'a' from the element, .* -2 to 1, is {bad}[\s\S]*total \+= a\[off"):
            step(Z, np.array([0, bad]))
    part = hl.stencil(of_slices, neighborhood=((-2, 1),), standard_indexing=("offsets",))
    np.testing.assert_allclose(part(Z, np.array([-2, 2]))[2:-1], np.convolve(Z, np.ones(4), "valid"))
    for bounds in ([-3, 0], [0, 3]):
        with pytest.raises(ShapeError, match="in the neighborhood -2 to"):
            part(Z, np.array(bounds))
    with pytest.raises(ShapeError, match="declare a larger neighborhood"):
        hl.stencil(at_three, neighborhood=((-2, 1), (0, 0)))(A[0])

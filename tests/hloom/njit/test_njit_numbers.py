"""Python's numbers, truth values and functions of `math` in `hl.njit`, against Python."""

import cmath
import math

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError

NAN = float("nan")


def same(function, *args):
    found, expected = hl.njit(function)(*args), function(*args)
    found, expected = [v if isinstance(v, tuple) else (v,) for v in (found, expected)]
    for one, other in zip(found, expected, strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype, (one, other)
        np.testing.assert_allclose(one, other, rtol=1e-14, atol=0)


def test_truth_values_of_python_are_integers_in_arithmetic():
    same(lambda i, j: ((i > 3) + (j > 3), (i > 3) * 2, -(i > j), (i > 3) & (j > 3)), 5, 6)
    same(lambda a, b: (a + b, a - b, a * 3, a / b, not a, a | b), True, True)
    same(lambda x: ((x > 3) + (x > 2), (not x) + (not x)), np.float64(5))


def test_truth_values_of_python_are_integers_in_loops():
    def count(n, x):
        s = 0
        for i in range(n):
            s += (i > 3) + (i > 2)
            s += (not i) + (not x[i])
            s -= (x[i] > 1) + (x[i] > 0)  # NumPy's
        return s

    same(count, 7, np.arange(7.0))


@pytest.mark.parametrize("a", [0, 3, 2.5])
@pytest.mark.parametrize("b", [0, 5])
def test_and_and_or_are_one_of_their_operands(a, b):
    found = hl.njit(lambda a, b: (a and b, a or b, (a and b) or 7))(a, b)
    assert found == (a and b, a or b, (a and b) or 7)


def test_and_and_or_are_one_of_their_operands_in_loops():
    def total(n):
        s = 0
        for i in range(n):
            s += (i and 5) + (i or 7) + ((i > 2 and i) or 3)
            if i and not (i > 3 or n < 2):
                s += 1
        return s

    same(total, 6)


@pytest.mark.parametrize("args", [(1.5, NAN, 2.5), (NAN, 1.5, 2.5), (2.5, 1.5, NAN), (2.0, 3.0, 1.0)])
def test_max_and_min_are_those_of_python(args):
    same(lambda x, y, z: (max(x, y, z), min(x, y, z), max([x, y]), min((z, y))), *args)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint32", "uint64", "int64"])
@pytest.mark.parametrize("k", [-3, 0, 5, 300, 2**63 + 5])
def test_comparisons_with_integers_that_a_dtype_does_not_hold(dtype, k):
    x = np.array([0, 5, 100], dtype)

    def tests(x):
        return x > k, x <= k, k == x, k != x[1], k < x, x[2] >= k

    for one, other in zip(hl.njit(tests)(x), tests(x), strict=True):
        np.testing.assert_array_equal(one, other)
    if -(2**63) <= k < 2**63:

        def traced(x, k):
            return x > k, k <= x, x != k

        for one, other in zip(hl.njit(traced)(x, k), traced(x, k), strict=True):
            np.testing.assert_array_equal(one, other)


def test_integers_that_a_dtype_does_not_hold_are_refused():
    with pytest.raises(DTypeError, match="300 with the dtype uint8"):
        hl.njit(lambda x: x + 300)(np.zeros(3, np.uint8))


@pytest.mark.parametrize("x", [-2.5, -0.4, 0.5, 1.5, 7.0])
def test_rounding_gives_integers(x):
    same(lambda x: (round(x), math.floor(x), math.ceil(x), math.trunc(x), round(x, 1)), x)


@pytest.mark.parametrize("x", [0.3, 1.0, 4])
def test_functions_of_math(x):
    def values(x):
        return (math.erf(x), math.erfc(x), math.gamma(x), math.lgamma(x), math.pow(x, 3), math.sqrt(x), math.log(x, 3),
                math.atan2(x, 2), math.hypot(x, 2), math.isnan(x), math.fabs(-x), math.ldexp(x, 3))  # fmt: skip

    same(values, x)


@pytest.mark.parametrize("z", [0.3 + 1j, -2 - 0.5j, 1.5])
def test_functions_of_cmath(z):
    def values(z):
        return (cmath.exp(z), cmath.sqrt(z), cmath.log(z), cmath.log(z, 2), cmath.phase(z), cmath.polar(z)[0],
                cmath.rect(2.0, 0.5), cmath.isfinite(z), cmath.tanh(z), cmath.acos(z), cmath.asinh(z))  # fmt: skip

    found, expected = hl.njit(values)(z), values(z)
    for one, other in zip(found, expected, strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_allclose(one, other, rtol=1e-14, atol=1e-15)


def test_parts_of_numbers():
    same(lambda z: (z.real, z.imag, z.conjugate()), 1 + 2j)
    same(lambda x: (x.real, x.imag), 2.5)


def test_isinstance_and_type_know_traced_values():
    def kinds(x, n, a):
        return isinstance(x, float), isinstance(n, int), isinstance(n, float), isinstance(a, np.ndarray), type(n) is int

    assert hl.njit(kinds)(1.5, 2, np.ones(3)) == kinds(1.5, 2, np.ones(3))
    with pytest.raises(UnsupportedError, match="str in a compiled NumPy program"):
        hl.njit(lambda x: len(str(x)))(3.5)


@pytest.mark.parametrize("args", [(0, 7, 2), (7, 0, -2), (0, 7, -1), (7, 0, 3), (-3, -10, -3)])
def test_ranges_with_any_step(args):
    def total(a, b, c):
        s = 0
        for i in range(a, b, c):
            s = 3 * s + i
        return s, len(range(a, b, c))

    same(total, *args)


@pytest.mark.parametrize("args", [(0, 7, 2), (7, 0, -2), (0, 7, -1), (7, 0, 3)])
def test_steps_from_an_array_have_any_sign(args):
    def total(bounds, x):
        s = 0.0
        for i in range(bounds[0], bounds[1], bounds[2]):
            s = 3 * s + x[i]
        return s

    same(total, np.array(args), np.arange(8.0))
    with pytest.raises(ShapeError, match="the step of a range, not 0"):
        hl.njit(total)(np.array([0, 3, 0]), np.arange(8.0))


# --- arrays without dimensions, and shapes from arguments


def test_arrays_without_dimensions_stay_arrays():
    x = np.array(2.5)

    def values(x):
        return np.zeros(()), x.copy(), np.zeros_like(x), x[...], x + 1, x[()], np.float64(x)

    for one, other in zip(hl.njit(values)(x), values(x), strict=True):
        assert type(one) is type(other) and one == other and np.shape(one) == ()

    @hl.njit
    def change(x):
        x[()] = 7.0

    change(x)
    assert x == 7.0


def test_numbers_that_shapes_need_are_known():
    same(lambda n, t: (np.arange(0.0, t, 0.5).sum(), np.eye(n).sum(), np.linspace(0, 1, n)[1]), 4, 2.25)
    same(lambda x, axis: x.sum(axis).max(), np.arange(6.0).reshape(2, 3), 1)
    same(lambda n: np.zeros(n).size, np.int32(4))
    f = hl.njit(lambda x, k: np.round(x, k))
    assert [f(1.2345, k) for k in (1, 2, 3)] == [1.2, 1.23, 1.234]


def test_arguments_that_share_memory_may_be_read():
    x = np.arange(6.0)
    assert hl.njit(lambda a, b: (a * b).sum())(x[1:], x[:-1]) == (x[1:] * x[:-1]).sum()

    @hl.njit
    def change(a, b):
        a[0] = b[1]

    with pytest.raises(ArgumentError, match="two of them share memory"):
        change(x[1:], x[:-1])


def test_slices_are_arguments():
    f = hl.njit(lambda x, s: x[s])
    x = np.arange(10.0)
    for s in (slice(2, 5), slice(None, None, -2), slice(2, 6)):
        np.testing.assert_array_equal(f(x, s), x[s])


def test_take_checks_its_indices():
    x, k = np.arange(5.0), np.array([0, 4, -1])
    np.testing.assert_array_equal(hl.njit(lambda x, k: x.take(k))(x, k), x.take(k))
    with pytest.raises(IndexError, match="index of axis 0 is 5"):
        hl.njit(lambda x, k: np.take(x, k))(x, np.array([1, 5]))


def test_elements_of_masks_are_one_kernel():
    def found(x):
        return (
            np.nonzero(x > 0.5),
            np.flatnonzero(x),
            np.argwhere(x > 0.7),
            x[x > 0.3],
            x[x > 2.0].sum(),
            np.where(x < 0.1),
        )

    compiled = hl.njit(found)
    random = np.random.default_rng(0).random
    for x in (
        random(999),
        random((30, 7)),
        random((3, 4, 5)),
        np.zeros(9),
        np.ones(1),
        np.empty((3, 0)),
    ):
        one, other = compiled(x), found(x)
        leaves, wanted = hl.tree.leaves(one), hl.tree.leaves(other)
        assert len(leaves) == len(wanted)
        for made, expected in zip(leaves, wanted, strict=True):
            assert made.dtype == expected.dtype
            np.testing.assert_array_equal(made, expected)
    places = hl.njit(lambda mask: np.nonzero(mask)[0]).lower(np.ones(50, np.bool_)).compile().source()
    assert places.count("def ") == 2  # the kernel, and the number of elements as s64


def test_nonzero_and_clip():
    x = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, -1.0]])
    places = hl.njit(lambda x: np.nonzero(x))
    for one, other in zip(places(x), np.nonzero(x), strict=True):
        np.testing.assert_array_equal(one, other)
    out = np.empty_like(x)
    np.testing.assert_array_equal(hl.njit(lambda x, out: np.clip(x, 0, 1, out))(x, out), x.clip(0, 1))
    np.testing.assert_array_equal(out, x.clip(0, 1))


def test_a_loop_swaps_arrays():
    def swapped(x, y, n):
        for _ in range(n):
            x, y = y, x
        return x, y

    x, y = np.ones(3), np.zeros(3)
    assert [v.tolist() for v in hl.njit(swapped)(x, y, 101)] == [[0.0] * 3, [1.0] * 3]


def test_flat_ndindex_and_ndenumerate():
    def walk(x, y):
        total = 0.0
        for v in x.flat:
            total = 2 * total + v
        for i, j in np.ndindex(3, 2):
            total += (i - j) * x[i, j]
            y[i, j] = i + 10 * j
        for index, v in np.ndenumerate(x):
            total -= (index[0] + 2 * index[1]) * v
        for (i, j), v in np.ndenumerate(x):
            y[i, j] += v
        x.flat[4] = -1.0
        return total, len(x.flat), x.T.flat[1]

    x, y = np.arange(6.0).reshape(3, 2), np.zeros((3, 2))
    a, b = x.copy(), y.copy()
    assert hl.njit(walk)(a, b) == walk(x, y)
    np.testing.assert_array_equal(a, x)
    np.testing.assert_array_equal(b, y)


def test_functions_of_symmetric_matrices_read_one_triangle():
    rng = np.random.default_rng(0)

    def values(a):
        return np.linalg.eigvalsh(a), np.linalg.eigh(a)[0], np.linalg.eigh(a, "U")[0]

    def factor(a):
        return np.linalg.cholesky(a)

    for a in (rng.random((4, 4)), rng.random((4, 4)) + 1j * rng.random((4, 4))):
        for one, other in zip(hl.njit(values)(a), values(a), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
        b = a + 4 * np.eye(4)
        np.testing.assert_allclose(hl.njit(factor)(b), factor(b), rtol=1e-12)


def test_functions_of_other_modules_are_not_taken_by_their_name():
    with pytest.raises(UnsupportedError, match=r"numpy.polynomial.polynomial.polyval"):
        hl.njit(lambda a: np.polynomial.polynomial.polyval(2.0, a))(np.ones(3))


def test_is_compares_truth_values():
    def change(test, x):
        if test is True:
            x[0] = 5
        return test is None, test is not True

    for test in (True, False):
        one, other = np.zeros(2), np.zeros(2)
        assert hl.njit(change)(test, one) == change(test, other)
        np.testing.assert_array_equal(one, other)


def test_divmod_has_two_outs():
    def both(x, y, a, b):
        return np.divmod(x, y, a, b)

    found = [np.zeros(3), np.zeros(3)]
    hl.njit(both)(np.array([5.0, -5.0, 7.0]), np.array([3.0, 3.0, 2.0]), *found)
    np.testing.assert_array_equal(found, np.divmod([5.0, -5.0, 7.0], [3.0, 3.0, 2.0]))


def test_out_by_position_and_views_in_another_dtype():
    def values(x, out):
        np.round(x, 1, out)
        x.sum(0, None, out[0, :])
        bits = x.view(np.int64)
        return bits + 1, x[0, 0].view(np.int64)

    x, out, other = np.array([[1.26, -2.74], [3.0, 4.5]]), np.zeros((2, 2)), np.zeros((2, 2))
    for one, wanted in zip(hl.njit(values)(x, out), values(x, other), strict=True):
        np.testing.assert_array_equal(one, wanted)
    np.testing.assert_array_equal(out, other)

    def stale(x):
        bits = x.view(np.int64)
        x[0] = 1.0
        return bits + 1

    with pytest.raises(UnsupportedError, match="an array after a change in place"):
        hl.njit(stale)(np.ones(3))


def complex_rows(z, w):
    out = np.zeros((len(z), 7), z.dtype)
    total = 0j
    for i in range(len(z)):
        out[i, 0] = z[i].sum() + z[i].mean()
        out[i, 1] = z[i].prod()
        out[i, 2] = np.dot(z[i], w[i])
        out[i, 3] = np.vdot(z[i], w[i])
        out[i, 4] = np.sum(np.conj(z[i]) * w[i]) + z[i, 0].conjugate()
        out[i, 5] = z[i].any() + 2.0 * z[i].all()
        out[i, 6] = np.linalg.norm(z[i])
        total += z[i, 0] * 2j
    return out, total, total * 1j


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_rows_in_a_loop(dtype):
    rng = np.random.default_rng(3)
    z, w = (rng.normal(size=(5, 4)) + 1j * rng.normal(size=(5, 4)) for _ in range(2))
    z[2] = 0
    found, wanted = (
        hl.njit(complex_rows)(z.astype(dtype), w.astype(dtype)),
        complex_rows(z.astype(dtype), w.astype(dtype)),
    )
    for own, given in zip(found, wanted, strict=True):
        assert np.asarray(own).dtype == np.asarray(given).dtype
        np.testing.assert_allclose(own, given, rtol=1e-13 if dtype == "complex128" else 2e-6)


def unpacked_rows(p):
    total = 0.0
    for i in range(1, len(p)):
        dx, dy = p[i] - p[i - 1]
        a, b = p[i]
        p[i, 0], p[i, 1] = b, a
        total += dx * dx + dy
    return total


def test_rows_that_are_unpacked_in_a_loop():
    p = np.random.default_rng(4).random((6, 2))
    own, given = p.copy(), p.copy()
    assert hl.njit(unpacked_rows)(own) == pytest.approx(unpacked_rows(given), rel=1e-14)
    np.testing.assert_array_equal(own, given)


def power_iteration(a, n):
    v = np.array([1, 2, 3])
    u = v
    for _ in range(n):
        v = np.linalg.solve(a, v)
        v = v / np.linalg.norm(v)
        u = u * 2
    return v, u


def test_arrays_that_change_their_dtype_in_a_loop():
    a = np.random.default_rng(5).random((3, 3)) + 3 * np.eye(3)
    for n in (1, 20, 70):
        for own, given in zip(hl.njit(power_iteration)(a, n), power_iteration(a, n), strict=True):
            assert own.dtype == given.dtype
            np.testing.assert_allclose(own, given, rtol=1e-12)

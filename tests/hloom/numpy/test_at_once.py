"""Functions of several ops that are one NumPy function outside of a trace: what that returns is what their ops mean."""

import itertools

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.ir import interpret
from hloom.tracing import concrete

FLOATS, INTEGERS = ("float32", "float64"), ("int8", "int32", "int64", "uint8", "uint32", "uint64")


def edges(dtype: str) -> np.ndarray:
    """The numbers of a dtype where functions have their cases, and some others."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.array([False, True, True])
    if kind in "iu":
        limits = np.iinfo(dtype)
        numbers = [0, 1, 2, 3, 5, 7, 100, limits.max, limits.max - 1, limits.min, limits.min + 1]
        return np.array(numbers + [-1, -2, -3, -7] * (kind == "i"), dtype)
    limits = np.finfo(dtype)
    numbers = [0.0, 1.0, 0.5, 1.5, 2.5, 3.0, 0.1, 7.25, 1e5, 123456.789, limits.max, limits.tiny]
    numbers += [limits.smallest_subnormal, limits.eps, np.inf]
    return np.array([s * n for n in numbers for s in (1, -1)] + [np.nan], dtype)


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    x = edges(dtype)
    first, second = np.meshgrid(x, x)
    return first, np.ascontiguousarray(second)


def by_ops(function, *arrays):
    """The values of the traced function's ops, one after the other."""
    found = interpret.run(hl.jit(function).lower(*arrays).module, [np.asarray(a) for a in arrays])
    return found if isinstance(found, tuple) else (found,)


def check(function, *arrays, ulp=0):
    arrays = tuple(hl.device_put(a) for a in arrays)
    found = function(*arrays)
    found = found if isinstance(found, tuple) else (found,)
    for one, other in zip(found, by_ops(function, *arrays), strict=True):
        assert (one.shape, one.dtype, one.weak) == (other.shape, other.dtype, False)
        one = np.asarray(one)
        if not ulp:
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_array_max_ulp(one[np.isfinite(other)], other[np.isfinite(other)], ulp)
            np.testing.assert_array_equal(one[~np.isfinite(other)], other[~np.isfinite(other)])
        if one.dtype.kind == "f":
            number = ~np.isnan(other)
            np.testing.assert_array_equal(np.signbit(one[number]), np.signbit(other[number]))


UNARY = {
    "sign": hnp.sign,
    "trunc": hnp.trunc,
    "modf": hnp.modf,
    "frexp": hnp.frexp,
    "signbit": hnp.signbit,
    "isnan": hnp.isnan,
    "isinf": hnp.isinf,
    "isfinite": hnp.isfinite,
    "nan_to_num": hnp.nan_to_num,
    "nan_to_num given": lambda x: hnp.nan_to_num(x, nan=2.0, posinf=7.0, neginf=-3),
    "round(1)": lambda x: hnp.round(x, 1),
    "round(-2)": lambda x: hnp.round(x, -2),
}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_one_array(name, dtype):
    check(UNARY[name], edges(dtype))
    check(UNARY[name], edges(dtype).reshape(-1, 1)[::2])


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "divmod", "fmod"])
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_divisions(name, dtype):
    check(getattr(hnp, name), *pairs(dtype))


@pytest.mark.parametrize("name", ["copysign", "fmax", "fmin", "heaviside"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_two_arrays(name, dtype):
    x, y = pairs(dtype)
    if name in ("fmax", "fmin"):  # which zero is the larger is NumPy's choice outside of a trace
        x, y = np.where(x == 0, 0, x), np.where(y == 0, 0, y)
    check(getattr(hnp, name), x, y)


@pytest.mark.parametrize("dtype", FLOATS)
def test_hypot(dtype):
    x, y = pairs(dtype)
    check(hnp.hypot, x, y)
    check(hnp.hypot, np.tile(x, (20, 20)), np.tile(y, (20, 20)))
    check(lambda x: hnp.hypot(x, 3.0), np.tile(x, (20, 20)))


@pytest.mark.parametrize("dtype", (*FLOATS, "complex64"))
def test_isclose(dtype):
    x = np.append(edges(np.zeros(0, dtype).real.dtype.name), [1 + 1e-6, 1 + 1e-4]).astype(dtype)
    x, y = np.meshgrid(x, x)
    for options in ({}, {"equal_nan": True}, {"rtol": 0.5, "atol": 0}):
        check(lambda x, y, o=options: hnp.isclose(x, y, **o), x, y)
        check(lambda x, y, o=options: hnp.allclose(x, y, **o), x, x)


@pytest.mark.parametrize("dtype", FLOATS)
def test_ldexp(dtype):
    x = edges(dtype)
    normal = x[(np.abs(x) > 1e-30) | (x == 0) | np.isnan(x)]  # the ops round subnormal results twice
    for power in (0, 1, 3, 40, 5000):
        check(lambda x, power=power: hnp.ldexp(x, power), normal)
    check(hnp.ldexp, normal, np.arange(normal.size, dtype=np.int32))


@pytest.mark.parametrize("name", ["argmax", "argmin", "nanargmax", "nanargmin"])
@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, "bool"))
def test_places_of_extremes(name, dtype):
    function = getattr(hnp, name)
    x = np.random.default_rng(0).permutation(np.tile(edges(dtype), 3))
    check(function, x)
    check(lambda x: function(x, axis=1), x.reshape(3, -1))
    check(lambda x: function(x, axis=0, keepdims=True), x.reshape(3, -1))
    check(lambda x: function(x.T, axis=0), x.reshape(3, -1))


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "nancumsum"])
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_running_sums(name, dtype):
    x = edges(dtype)
    check(getattr(hnp, name), x)
    check(getattr(hnp, name), x[:4])
    assert not np.signbit(np.asarray(hnp.cumsum(np.array([-0.0, -0.0]))))[0]


def test_traces_and_other_dtypes_use_the_ops():
    x = np.ones(3, np.float32)
    assert concrete.is_eager(hl.device_put(x))
    assert not concrete.is_eager(hl.device_put(x).astype("bfloat16"))
    seen = []

    def f(x):
        seen.append(concrete.is_eager(x))
        return hnp.sign(x)

    hl.jit(f)(x)
    assert seen == [False]
    assert float(hl.grad(lambda x: hnp.hypot(x, 3.0))(4.0)) == pytest.approx(0.8)


def test_python_numbers_keep_their_digits():
    rounded = hnp.round(hnp.sqrt(2.0), 12)
    assert rounded.weak
    assert float((rounded + np.zeros(1))[0]) == 1.414213562373


def test_operands_of_any_strides_are_read_as_they_are():
    x = np.random.default_rng(0).normal(size=(6, 4))
    for function in (np.sign, np.trunc, np.isnan):
        ours = getattr(hnp, function.__name__)
        np.testing.assert_array_equal(np.asarray(ours(hl.device_put(x).T)), function(x.T))
    for first, second in itertools.product((x, x.T[:, :4][:4]), repeat=2):
        first, second = first[:4, :4], second[:4, :4]
        found = hl.device_put(first).T % hl.device_put(second)
        np.testing.assert_array_equal(np.asarray(found), first.T % second)


@pytest.mark.parametrize("dtype", FLOATS)
def test_powers_by_simple_numbers(dtype):
    x = edges(dtype)
    with np.errstate(all="ignore"):
        for exponent in (0.5, 2.0, -1.0):
            found = np.asarray(hl.device_put(x) ** exponent)
            np.testing.assert_array_max_ulp(found, np.power(x.astype("longdouble"), exponent).astype(dtype), 1)
            assert found.dtype == x.dtype
            zeros = np.asarray(hl.device_put(x[:2]) ** exponent)
            np.testing.assert_array_equal(np.signbit(zeros), [False, exponent == -1.0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_linspace(dtype):
    for num, endpoint in itertools.product((1, 2, 7, 8192, 20_001), (True, False)):
        for first, last in ((0, 1), (-3.3, 7.1), (2, 2), (-np.finfo(dtype).max, np.finfo(dtype).max), (0, np.inf)):
            ends = np.array([first, last], dtype)
            check(lambda a, b, n=num, e=endpoint: hnp.linspace(a, b, n, endpoint=e), ends[0], ends[1])
    check(lambda a, b: hnp.linspace(a, b, 10, dtype="int32"), np.asarray(-2.5, dtype), np.asarray(7.7, dtype))
    check(lambda a, b: hnp.linspace(a, b, 10, axis=-1), np.zeros(3, dtype), np.ones(3, dtype))


@pytest.mark.parametrize("dtype", (*FLOATS, "complex64", "complex128"))
def test_variance(dtype):
    r = np.random.default_rng(0)
    x = r.normal(size=(5, 40)).astype(dtype)
    x = x + 1j * r.normal(size=x.shape).astype(np.float32) if x.dtype.kind == "c" else x
    x = x.astype(dtype)
    for options in ({}, {"axis": 1}, {"axis": 0, "ddof": 1}, {"axis": (0, 1), "keepdims": True}, {"ddof": 300}):
        for function in (hnp.var, hnp.std):
            check(lambda x, f=function, o=options: f(x, **o), x, ulp=4)
    if x.dtype.kind == "f":
        check(lambda x: hnp.var(x, axis=1), np.where(x > 1.5, np.inf, x).astype(dtype))
        check(lambda x: hnp.var(x), np.full(3, np.finfo(dtype).max))
        assert np.isnan(float(hnp.var(np.ones(0, dtype))))


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, "bool", "complex64"))
def test_count_nonzero(dtype):
    x = np.arange(12).reshape(3, 4) % 3
    x = (x > 0 if dtype == "bool" else x).astype(dtype)
    for options in ({}, {"axis": 0}, {"axis": (0, 1), "keepdims": True}, {"axis": ()}):
        check(lambda x, o=options: hnp.count_nonzero(x, **o), x)


@pytest.mark.parametrize("name", "sum prod mean var std max min argmax argmin cumsum".split())
def test_functions_that_skip_nan(name):
    ours, plain = getattr(hnp, f"nan{name}"), getattr(hnp, name)
    x = np.random.default_rng(0).normal(size=(4, 6))
    np.testing.assert_array_equal(np.asarray(ours(x, axis=0)), np.asarray(plain(x, axis=0)))
    check(lambda x: ours(x, axis=1), x, ulp=4)
    x[1, 2] = x[:, 4] = np.nan
    check(lambda x: ours(x, axis=0), x, ulp=4)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_computed_positions(dtype):
    x = np.arange(20.0).reshape(4, 5)
    numbers = [0, 1, 3, 4, 100] + ([-1, -4, -5, -100] if dtype[0] == "i" else [2**63 + 5] if dtype == "uint64" else [])
    for number in numbers:
        k = np.asarray(number, dtype)
        check(lambda x, k: x[k], x, k)
        check(lambda x, k: x[1, k], x, k)
        check(lambda x, k: x[k, k], x, k)
        check(lambda x, k: x[1:, k], x, k)
        check(lambda x, k: x[k, ::-2], x, k)
        check(lambda x, k: x[None, k], x, k)
    k = np.array(numbers, dtype)
    check(lambda x, k: x[k], x, k)
    check(lambda x, k: x[:, k], x, k)
    for mode in (None, "fill", "clip", "wrap"):
        for axis in (None, 0, 1):
            check(lambda x, k, m=mode, a=axis: hnp.take(x, k, axis=a, mode=m), x, k)
            check(lambda x, k, m=mode, a=axis: hnp.take(x, k, axis=a, mode=m), x, k[:3])
    check(lambda x, k: x.at[k].get(mode="fill", fill_value=7, wrap_negative_indices=False), x, k)
    check(lambda x, k: x.at[k].get(wrap_negative_indices=False), x, k)


@pytest.mark.parametrize("dtype", FLOATS)
def test_quantiles(dtype):
    x = np.random.default_rng(0).normal(size=(7, 31)).astype(dtype)
    hole = x.copy()
    hole[2, 3] = hole[4] = np.nan
    for q in (0.0, 0.3, 1.0, 1.5, np.nan, np.array([0.1, 0.9]), np.linspace(0, 1, 40)):
        for values, name in ((x, "quantile"), (hole, "quantile"), (hole, "nanquantile")):
            for method in ("linear", "lower", "midpoint", "inverted_cdf", "median_unbiased"):
                function = getattr(hnp, name)
                check(lambda x, q, f=function, m=method: f(x, q, axis=1, method=m), values, np.asarray(q, dtype))
    check(lambda x: hnp.median(x), x)
    check(lambda x: hnp.nanmedian(x, axis=0), hole)


def test_counting_up():
    for dtype, size in (("int32", 10), ("uint64", 10), ("int8", 300), ("float32", 100), ("bfloat16", 300)):
        found = np.asarray(hl.lax.iota(dtype, size))
        np.testing.assert_array_equal(found, np.arange(size).astype(found.dtype))

"""Reductions, scans and statistics of hloom.numpy against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from frontend import bfloat16, both, close, one, sample

import hloom.numpy as hnp
from hloom.errors import ShapeError

pytestmark = pytest.mark.quick

AXES = [None, 0, -1, (0, 2), (), (1,), (2, 0, 1)]
REDUCTIONS = "sum prod max min any all mean var std ptp count_nonzero nansum nanprod nanmean nanvar nanstd".split()


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_over_axes(name, axis):
    x = sample((2, 3, 4), "float64", 5)
    function, reference = getattr(hnp, name), getattr(np, name)
    for keepdims in (False, True):
        expected = reference(x, axis=axis, keepdims=keepdims)
        close(one(lambda x, k=keepdims: function(x, axis=axis, keepdims=k), x), expected, None, 10.0)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "int64", "float16", "float32", "complex64"])
@pytest.mark.parametrize("name", "sum prod any all mean var std max min".split())
def test_reductions_of_dtypes(name, dtype):
    x = sample((7, 5), dtype, 6, -2, 2)
    if dtype == "complex64" and name in ("max", "min"):
        pytest.skip("complex numbers have no order")
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x.astype("float64") if dtype == "float16" else x, axis=0)
    result = one(lambda x: getattr(hnp, name)(x, 0), x)
    close(result, expected, "float16" if dtype == "float16" and result.dtype.kind == "f" else None, 10.0)
    kind = {"sum": "iuf", "prod": "iuf", "mean": "f", "var": "f", "std": "f"}.get(name)
    if kind and dtype in ("bool", "int8", "uint8", "int32"):
        assert result.dtype == (("uint32" if dtype == "uint8" else "int32") if "i" in kind else "float32")
    if dtype == "int64" and name != "any" and name != "all":
        assert result.dtype == (np.float64 if kind == "f" else np.int64)


def test_narrow_floats_are_summed_in_float32():
    x = np.full(4096, 1.0, np.float16)
    assert float(one(hnp.sum, x)) == 4096.0
    x = np.full(1000, 1.0, bfloat16)
    assert one(hnp.sum, x).dtype == bfloat16 and float(one(hnp.mean, x)) == 1.0


@pytest.mark.parametrize("name", "sum prod any all mean nansum".split())
def test_reductions_of_nothing(name):
    x = np.zeros((3, 0), np.float32)
    with np.errstate(all="ignore"), pytest.warns() if name == "mean" else np.errstate():
        expected = getattr(np, name)(x, axis=1)
    close(one(lambda x: getattr(hnp, name)(x, 1), x), expected)
    assert one(lambda x: getattr(hnp, name)(x, 0), x).shape == (0,)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_extremes_of_nothing_are_errors(name):
    with pytest.raises(ShapeError, match="nothing there"):
        getattr(hnp, name)(hnp.zeros((3, 0)), 1)
    if name in ("max", "min"):
        assert hnp.max(hnp.zeros((3, 0)), 1, initial=2.0).tolist() == [2.0] * 3


def test_where_and_initial():
    x = sample((4, 5), "float32", 7)
    mask = x > 0
    close(one(lambda x, m: hnp.sum(x, 1, where=m), x, mask), np.sum(x, 1, where=mask))
    close(one(lambda x, m: hnp.prod(x, 0, where=m, initial=2.0), x, mask), np.prod(x, 0, where=mask, initial=2.0))
    close(one(lambda x, m: hnp.max(x, 0, where=m, initial=-9.0), x, mask), np.max(x, 0, where=mask, initial=-9.0))
    close(one(lambda x, m: hnp.mean(x, where=m), x, mask), np.mean(x, where=mask))
    close(one(lambda x, m: hnp.var(x, where=m), x, mask), np.var(x, where=mask))
    close(one(lambda x, m: hnp.any(x > 1, 0, where=m), x, mask), np.any(x > 1, 0, where=mask))
    close(one(lambda x: hnp.sum(x, initial=3), x), np.sum(x, initial=3))
    close(one(lambda x: hnp.var(x, 0, ddof=1), x), np.var(x, 0, ddof=1))
    close(one(lambda x: hnp.std(x, 0, correction=1), x), np.std(x, 0, correction=1))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_arg_extremes_take_the_first_and_nan(name):
    function, reference = getattr(hnp, name), getattr(np, name)
    nan = np.nan
    x = np.array([[1, 3, 3, 0], [nan, 5, nan, 1], [-np.inf, -np.inf, -np.inf, -np.inf], [0.0, -0.0, 0, 0]], np.float32)
    for axis in (None, 0, 1, -1):
        result = one(lambda x, a=axis: function(x, a), x)
        assert result.dtype == np.int32
        np.testing.assert_array_equal(result, reference(x, axis))
    for dtype in ("bool", "int8", "uint8", "int64", "float16", "float64"):
        x = sample((5, 6), dtype, 8)
        np.testing.assert_array_equal(one(lambda x: function(x, 1), x), reference(x, 1))
        np.testing.assert_array_equal(one(lambda x: function(x, 0, keepdims=True), x), reference(x, 0, keepdims=True))
        np.testing.assert_array_equal(one(lambda x: function(x, keepdims=True), x), reference(x, keepdims=True))
    assert one(function, np.float32(3)) == 0


def test_nan_functions():
    x = sample((4, 5), "float32", 9)
    x[0, 1] = x[2] = np.nan
    for name in "nansum nanprod nancumsum nancumprod".split():
        close(one(lambda x, n=name: getattr(hnp, n)(x, 1), x), getattr(np, name)(x, 1))
    for name in "nanmax nanmin nanmean nanvar nanstd".split():
        with pytest.warns(RuntimeWarning):
            expected = getattr(np, name)(x, 1)
        close(one(lambda x, n=name: getattr(hnp, n)(x, 1), x), expected)
    for name in ("nanargmax", "nanargmin"):
        rows = [0, 1, 3]
        result = one(lambda x, n=name: getattr(hnp, n)(x, 1), x)
        np.testing.assert_array_equal(result[rows], getattr(np, name)(x[rows], 1))
        assert result[2] == -1
    assert np.isnan(one(hnp.max, x)) and np.isnan(one(hnp.sum, x))


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_running_sums(name):
    for shape, axis in [((7,), None), ((3, 4), None), ((3, 4), 0), ((3, 4), 1), ((0,), 0), ((1,), 0), ((2, 9, 3), 1)]:
        x = sample(shape, "float64", 10)
        close(one(lambda x, a=axis: getattr(hnp, name)(x, a), x), getattr(np, name)(x, axis), None, 10.0)
    x = np.array([100, 100, 100], np.int8)
    # As in JAX: cumsum keeps the dtype, the Array API's function widens it.
    assert one(hnp.cumsum, x).dtype == np.int8
    np.testing.assert_array_equal(one(hnp.cumulative_sum, x), [100, 200, 300])
    np.testing.assert_array_equal(one(hnp.cumsum, np.array([True, True])), np.array([1, 2], np.int32))
    x = sample((5,), "float64")
    close(one(lambda x: hnp.cumulative_sum(x, include_initial=True), x), np.cumulative_sum(x, include_initial=True))
    close(one(lambda x: hnp.cumulative_prod(x), x), np.cumulative_prod(x))


@pytest.mark.parametrize(
    "case",
    """
m.diff(x)
m.diff(x, 2)
m.diff(x, 1, 0)
m.diff(x, 0)
m.diff(x, 9)
m.diff(x > 0)
m.diff(v, prepend=0.0, append=v[:2])
m.trapezoid(v)
m.trapezoid(x, dx=0.5, axis=0)
m.trapezoid(v, v)
m.average(x)
m.average(x, 0)
m.average(x, 0, v[:3])
m.average(x, weights=x)
m.average(x, 1, v, returned=True)
m.cov(x)
m.cov(x, rowvar=False)
m.cov(v)
m.cov(x, bias=True)
m.cov(x, ddof=2)
m.cov(x, aweights=m.abs(v))
m.cov(v, v[::-1])
m.corrcoef(x)
m.polyval(v, x)
m.polyadd(v, v[:2])
m.polysub(v[:2], v)
m.polyder(v)
m.polyder(v, 2)
m.polyint(v)
m.polymul(v, v[:3])
m.gradient(v)
m.gradient(x)
m.gradient(x, 0.5, axis=1)
m.gradient(v, m.cumsum(m.abs(v)))
m.unwrap(3 * v)
m.unwrap(9 * x, axis=0)
m.isclose(x, x + 1e-9)
m.allclose(x, x)
m.allclose(x, x + 1)
m.array_equal(x, x)
m.array_equal(x, v)
m.array_equiv(x, x[:1])
""".strip().splitlines(),
)
def test_statistics_and_polynomials(case):
    x, v = sample((3, 6), "float64", 11), sample((6,), "float64", 12)
    expected = eval(case, {"m": np, "x": x, "v": v})
    results = both(lambda x, v: eval(case, {"m": hnp, "x": x, "v": v}), x, v)
    for result, wanted in zip(results, expected if isinstance(expected, (tuple, list)) else [expected], strict=True):
        close(result, wanted, None, 50.0)

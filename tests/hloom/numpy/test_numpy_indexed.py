"""take, put, nonzero, sorts, sets, histograms, quantiles, insert, delete and segments against jax.numpy and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ConcretizationTypeError, HloomError
from hloom.numpy.reducing.quantiles import METHODS

jax = pytest.importorskip("jax", reason="jax is not installed")
jnp = jax.numpy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5)).astype(np.float32)
NAN = X.copy()
NAN[0, 1] = NAN[2] = np.nan
NAN[3, 3] = -0.0
I = RNG.integers(0, 4, (2, 3)).astype(np.int32)
V = RNG.integers(0, 6, 20).astype(np.int32)
ALONG = RNG.integers(0, 5, (4, 2)).astype(np.int32)
POINTS = RNG.normal(size=(50, 2)).astype(np.float32)
SORTED, SORTED_NAN = np.sort(V), np.sort(NAN.ravel())
SEGMENTS = RNG.integers(-1, 6, 20).astype(np.int32)
OPS = {jnp: jax.ops, hnp: hl.ops}

CASES: dict[str, tuple] = {}


def case(name, function, *arguments, jit=False):
    """function(numpy module, *arrays), in jit too where that says so."""
    assert name not in CASES
    CASES[name] = (function, arguments, jit)


for axis in (None, 1):
    case(f"take {axis}", lambda n, x, i, a=axis: n.take(x, i, axis=a), X, I)
    for mode in ("clip", "wrap", "fill"):
        case(
            f"take {mode} {axis}", lambda n, x, i, a=axis, m=mode: n.take(x, i * 7 - 9, a, mode=m), X, I, jit=axis == 1
        )
    for function in ("sort", "argsort"):
        for descending in (False, True):
            case(
                f"{function} {axis} {descending}",
                lambda n, x, f=function, a=axis, d=descending: getattr(n, f)(x, axis=a, descending=d),
                NAN,
            )
    for function in ("median", "nanmedian"):
        case(f"{function} {axis}", lambda n, x, f=function, a=axis: getattr(n, f)(x, axis=a, keepdims=True), NAN)
for function in ("quantile", "nanquantile", "percentile", "nanpercentile"):
    scale = 100 if "percentile" in function else 1
    for method in ("linear", "lower", "higher", "nearest", "midpoint", "inverted_cdf"):
        case(
            f"{function} {method}",
            lambda n, x, q, f=function, m=method: getattr(n, f)(x, q, axis=0, method=m),
            NAN,
            np.float32([0, 0.3, 1]) * scale,
            jit=method == "linear",
        )
case("quantile of integers", lambda n, v: n.quantile(v, 0.4), V)
case("along", lambda n, x, i: n.take_along_axis(x, i - 5, -1), X, ALONG, jit=True)
case("along, broadcast", lambda n, x, i: n.take_along_axis(x[:1], i, 1), X, ALONG)
case("along flat", lambda n, x, i: n.take_along_axis(x, i, None), X, ALONG[:, 0])
for mode in (None, "clip", "promise_in_bounds"):
    case(f"along {mode}", lambda n, x, i, m=mode: n.take_along_axis(x, i * 3 - 6, 1, mode=m), X, ALONG)
for mode in (None, "wrap", "clip"):
    case(f"put {mode}", lambda n, x, i, v, m=mode: n.put(x, i * 9 - 7, v, m, inplace=False), X, I, np.float32([1, 2]))
case("put along", lambda n, x, i: n.put_along_axis(x, i, 7.0, 1, inplace=False), X, ALONG, jit=True)
case("put along flat", lambda n, x, i: n.put_along_axis(x, i, 7.0, None, inplace=False), X, ALONG[:, 0])
case("place", lambda n, x, v: n.place(x, x > 0, v, inplace=False), X, np.float32([1, 2, 3]), jit=True)
case("nonzero", lambda n, v: n.nonzero(v > 3), V)
case("where", lambda n, x: n.where(x > 0), X)
case("argwhere", lambda n, x: n.argwhere(x > 0), X)
for size in (3, 25):
    case(f"nonzero {size}", lambda n, x, s=size: n.nonzero(x > 0, size=s, fill_value=-1), X, jit=True)
    case(f"argwhere {size}", lambda n, x, s=size: n.argwhere(x > 0, size=s), X)
    case(f"flatnonzero {size}", lambda n, x, s=size: n.flatnonzero(x > 0, size=s, fill_value=(9,)), X)
    case(f"unique {size}", lambda n, v, s=size: n.unique(v, True, True, True, size=s), V, jit=True)
    case(f"unique filled {size}", lambda n, v, s=size: n.unique(v, True, True, True, size=s, fill_value=-3), V)
    case(
        f"unique rows {size}", lambda n, v, s=size: n.unique(v, True, True, True, axis=0, size=s), V.reshape(10, 2) % 3
    )
    for function in ("union1d", "intersect1d", "setdiff1d", "setxor1d"):
        case(
            f"{function} {size}",
            lambda n, a, b, f=function, s=size: getattr(n, f)(a, b, size=s),
            V,
            V[:4] + 3,
            jit=size == 3,
        )
    if size == 25:
        continue
    case(f"compress {size}", lambda n, x, s=size: n.compress(np.array([True, False, True]), x, 0, size=s), X)
    case(f"extract {size}", lambda n, x, s=size: n.extract(x > 0, x, size=s, fill_value=5), X, jit=True)
for k, values in enumerate((V, NAN)):
    case(f"unique of {k}", lambda n, v: n.unique(v, True, True, True), values)
    for function in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
        case(
            f"{function} of {k}",
            lambda n, v, f=function: (
                tuple(getattr(n, f)(v)) if f[-1] != "s" or f == "unique_counts" else getattr(n, f)(v)
            ),
            values,
        )
for function in ("union1d", "intersect1d", "setdiff1d", "setxor1d"):
    case(function, lambda n, a, b, f=function: getattr(n, f)(a, b), V, V[:4] + 3)
case("intersection with places", lambda n, a, b: n.intersect1d(a, b, return_indices=True), V, V[:4] + 3)
case("isin", lambda n, a, b: n.isin(a, b, invert=True), X, X[:2])
case("isin of many", lambda n, a, b: n.isin(a, b), V, np.arange(0, 60, 2), jit=True)
case("isin with nan", lambda n, a, b: n.isin(a, b), NAN, NAN)
case("compress", lambda n, x: n.compress(np.array([True, False, True]), x, axis=0), X)
case("extract", lambda n, x: n.extract(x > 0, x), X)
case("lexsort", lambda n, a, b: n.lexsort((a, b)), V % 3, V % 2, jit=True)
case("sort_complex", lambda n, a: n.sort_complex(a % 3 + 1j * (a % 2)), V)
case("partition", lambda n, x: n.sort(n.partition(x, 2, axis=0)[:3], axis=0), X)
case("argpartition", lambda n, x: n.sort(n.argpartition(x, 2, axis=1)[:, :3]), X)
for side in ("left", "right"):
    for method in ("scan", "sort", "compare_all"):
        case(
            f"searchsorted {side} {method}",
            lambda n, a, b, s=side, m=method: n.searchsorted(a, b, s, method=m),
            SORTED,
            V.reshape(4, 5) - 1,
            jit=method == "scan",
        )
    case(f"searchsorted nan {side}", lambda n, a, b, s=side: n.searchsorted(a, b, s), SORTED_NAN, NAN, jit=True)
    case(f"searchsorted in integers {side}", lambda n, a, b, s=side: n.searchsorted(a, b, s), SORTED, X)
    case(f"sorter {side}", lambda n, a, b, s=side: n.searchsorted(a, b, s, n.argsort(a)), V, X)
    case(f"searchsorted in nothing {side}", lambda n, a, b, s=side: n.searchsorted(a, b, s), SORTED[:0], V, jit=True)
for right in (False, True):
    case(f"digitize {right}", lambda n, a, b, r=right: n.digitize(a, b, r), X, np.float32([-1, 0, 0.5, 2]))
    case(f"digitize down {right}", lambda n, a, b, r=right: n.digitize(a, b, r), V, np.int32([5, 3, 1]), jit=True)
case("bincount", lambda n, v: n.bincount(v, minlength=12), V)
case("bincount of bytes", lambda n, v: n.bincount(v), V.astype(np.uint8))
case("bincount of length", lambda n, v, w: n.bincount(v, w, length=4), V - 1, X.ravel(), jit=True)
for k, values in enumerate((X, V)):
    case(f"histogram of {k}", lambda n, a: n.histogram(a, 5, range=(0, 2)), values, jit=True)
    case(f"density of {k}", lambda n, a: n.histogram(a, 4, density=True), values)
    case(f"histogram by edges of {k}", lambda n, a, e: n.histogram(a, e), values, np.float32([0, 0.5, 1, 4]))
    case(f"weighted histogram of {k}", lambda n, a: n.histogram(a, 4, weights=a), values)
case("histogram of equal elements", lambda n, a: n.histogram(a * 0 + 3, 4), X)
case("histogramdd", lambda n, a: n.histogramdd(a), POINTS)
case("histogramdd density", lambda n, a: n.histogramdd(a, (3, 4), ((-1, 1), (-2, 2)), density=True), POINTS, jit=True)
case(
    "histogram2d",
    lambda n, a, e: n.histogram2d(a[:, 0], a[:, 1], [4, e], weights=a[:, 0]),
    POINTS,
    np.float32([-1, 0, 1]),
)
for place in (1, -1, [1, 3], slice(0, 3, 2), [0, 0, 4]):
    for axis in (None, 1):
        given = np.array(place) if isinstance(place, list) else place
        case(f"insert {place} {axis}", lambda n, x, p=given, a=axis: n.insert(x, p, 9.0, axis=a), X)
        case(f"delete {place} {axis}", lambda n, x, p=given, a=axis: n.delete(x, p, axis=a), X, jit=place == 1)
case("insert a row", lambda n, x, v: n.insert(x, 1, v, axis=0), X, np.float32(range(5)), jit=True)
case("insert a column", lambda n, x, v: n.insert(x, 1, v, axis=1), X, np.float32(range(4)))
case("insert in any order", lambda n, x, v: n.insert(x, np.array([3, 1]), v), X[0], np.float32([10, 20]))
case("insert several at one place", lambda n, x, v: n.insert(x, np.array([1]), v, axis=1), X, X[:, :2])
case("delete a traced place", lambda n, x, i: n.delete(x, i, axis=0), X, np.int32(2), jit=True)
case("delete by mask", lambda n, x: n.delete(x, np.array([True, False, True, False]), axis=0), X)
for mode in ("wrap", "clip"):
    case(f"choose {mode}", lambda n, i, a, b, m=mode: n.choose(i * 3 - 4, [a, 5, b], mode=m), I, V[:3], V[:2, None])
case("ix_", lambda n, v: n.ix_(v, v[:3]), V)
case("tril_indices", lambda n, x: (*n.tril_indices(4, 1, 3), *n.tril_indices_from(x, 1)), X)
case("triu_indices", lambda n, x: (*n.triu_indices(4, -1), *n.triu_indices_from(x)), X)
case("diag_indices", lambda n, x: (*n.diag_indices(3, 3), *n.diag_indices_from(x[:, :4])), X)
case("mask_indices", lambda n: n.mask_indices(3, n.triu, 1))
for function in ("segment_sum", "segment_prod", "segment_max", "segment_min"):
    for data in ("floats", "integers"):
        case(
            f"{function} of {data}",
            lambda n, d, s, f=function: getattr(OPS[n], f)(d, s, num_segments=4),
            POINTS[:20] if data == "floats" else V,
            SEGMENTS,
            jit=data == "floats",
        )
    case(f"{function} in buckets", lambda n, d, s, f=function: getattr(OPS[n], f)(d, s, 5, bucket_size=6), V, SEGMENTS)
    case(f"{function} without number", lambda n, d, s, f=function: getattr(OPS[n], f)(d, s), V, SEGMENTS)


def leaves(value) -> list[np.ndarray]:
    if isinstance(value, (tuple, list)):
        return [leaf for element in value for leaf in leaves(element)]
    return [np.asarray(value)]


def in_jax(function, arguments):
    """What jax.numpy answers: as one program where it can, because XLA otherwise compiles each step."""
    arrays = [jnp.asarray(argument) for argument in arguments]
    try:
        return jax.jit(lambda *a: function(jnp, *a))(*arrays)
    except jax.errors.JAXTypeError:  # the size of the result depends on the elements
        return function(jnp, *arrays)


@pytest.mark.slow  # most of the time is XLA's
@pytest.mark.parametrize("name", CASES)
def test_as_in_jax(name):
    function, arguments, jit = CASES[name]
    expected = leaves(in_jax(function, arguments))
    ours = list(map(hnp.asarray, arguments))
    results = [function(hnp, *ours)]
    if jit:
        results.append(hl.jit(lambda *a: function(hnp, *a))(*ours))
    for result in results:
        found = leaves(result)
        assert [(f.shape, f.dtype) for f in found] == [(e.shape, e.dtype) for e in expected]
        for f, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(f, e, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("skip_nan", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_quantile_methods_as_in_numpy(method, skip_nan):
    x = NAN.astype(np.float64) if skip_nan else X.astype(np.float64)
    q = np.array([0, 0.1, 0.25, 0.5, 0.77, 1.0])
    name = "nanquantile" if skip_nan else "quantile"
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, q, axis=1, method=method)
    found = np.asarray(getattr(hnp, name)(x, q, axis=1, method=method))
    if method == "nearest":
        # Of two that are as near NumPy takes the one at an even place, JAX (and hloom) the lower one.
        count = np.count_nonzero(~np.isnan(x), axis=1)
        tie = np.multiply.outer(q, np.maximum(count - 1, 0)) % 1 == 0.5
        assert not skip_nan or tie.any()
        expected = np.where(tie, getattr(np, name)(x, q - 1e-9 * (q > 0), axis=1, method=method), expected)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_weighted_quantiles_as_in_numpy():
    w = np.abs(X) + 0.1
    w[:, 2] = 0
    q = np.float32([0.1, 0.3, 0.5, 0.97])
    expected = np.quantile(X, q, axis=1, method="inverted_cdf", weights=w)
    np.testing.assert_array_equal(hnp.quantile(X, q, axis=1, method="inverted_cdf", weights=w), expected)


def test_gradients():
    np.testing.assert_allclose(hl.grad(lambda x: hnp.sort(x)[:2].sum())(hnp.asarray([3.0, 1.0, 2.0])), [0, 1, 1])
    np.testing.assert_allclose(hl.grad(lambda x: hnp.median(x))(hnp.asarray([3.0, 1.0, 2.0, 9.0])), [0.5, 0, 0.5, 0])
    segments = hnp.asarray([0, 1, 0])
    np.testing.assert_allclose(
        hl.grad(lambda x: (hl.ops.segment_sum(x, segments, 2) ** 2).sum())(hnp.ones(3)), [4, 2, 4]
    )
    np.testing.assert_allclose(
        hl.grad(lambda x: hl.ops.segment_max(x, segments, 2).sum())(hnp.asarray([1.0, 2, 3])), [0, 1, 1]
    )


ERRORS = {
    "take a float": (lambda: hnp.take(X, hnp.asarray([1.5])), "f32[1]"),
    "take mode": (lambda: hnp.take(X, 0, mode="raise"), "raise"),
    "take along ranks": (lambda: hnp.take_along_axis(hnp.asarray(X), I[0], 1), "s32[3]"),
    "put in place": (lambda: hnp.put(X, I, 1.0), "inplace"),
    "nonzero in jit and vmap": (lambda: hl.vmap(hl.jit(hnp.nonzero))(X), "traced"),
    "unique in jit and vmap": (lambda: hl.vmap(hl.jit(hnp.unique))(X), "traced"),
    "bincount in jit": (lambda: hl.jit(hnp.bincount)(V), "traced"),
    "bincount of floats": (lambda: hnp.bincount(X[0]), "f32[5]"),
    "choose outside": (lambda: hnp.choose(I, [1, 2]), "numbers from"),
    "insert outside": (lambda: hnp.insert(X, 9, 0.0, axis=0), "f32[4,5]"),
    "delete outside": (lambda: hnp.delete(X, 9, axis=0), "f32[4,5]"),
    "quantile method": (lambda: hnp.quantile(X, 0.5, method="average"), "average"),
    "quantile of complex": (lambda: hnp.quantile(X * 1j, 0.5), "c64"),
    "searchsorted side": (lambda: hnp.searchsorted(SORTED, 1, side="middle"), "middle"),
    "searchsorted rank": (lambda: hnp.searchsorted(X, 1), "f32[4,5]"),
    "partition place": (lambda: hnp.partition(X, 9), "size is 5"),
    "where with one": (lambda: hnp.where(X > 0, X), "one of them"),
    "segments of floats": (lambda: hl.ops.segment_sum(X, X[:, 0]), "f32[4]"),
    "segments of other extent": (lambda: hl.ops.segment_sum(X, V), "s32[20]"),
    "segments in jit": (lambda: hl.jit(hl.ops.segment_sum)(V, V), "traced"),
    "top_k": (lambda: hl.lax.top_k(hnp.asarray(X), 9), "k=9"),
    "lax.sort keys": (lambda: hl.lax.sort((hnp.asarray(X),), num_keys=2), "num_keys=2"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_and_where(name):
    function, found = ERRORS[name]
    with pytest.raises(HloomError) as caught:
        function()
    error = caught.value
    assert found in error.found and error.asked and error.repair and error.source.file == __file__
    assert isinstance(error, ConcretizationTypeError) == ("in jit" in name)


def test_quantiles_have_the_dtype_of_the_elements():
    x = hnp.arange(5.0).astype("bf16")
    assert hnp.quantile(x, hnp.array([0.2, 0.7])).dtype == x.dtype
    assert hnp.nanpercentile(x.astype("f16"), hnp.array([20, 70])).dtype == np.float16
    assert hnp.percentile(hnp.arange(5), 30).dtype == np.float32

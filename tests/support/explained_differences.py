"""Differences from NumPy that are meant, or are NumPy's own faults: tests/reliability.py counts them by reason."""

from __future__ import annotations

import contextlib

import numpy as np

import hloom.numpy as hnp


def agrees(got: np.ndarray, want: np.ndarray) -> bool:
    """The same shape, and values that differ by some units in the last place of the largest one at most."""
    if got.shape != want.shape:
        return False
    if want.dtype.kind not in "fc":
        return bool(np.array_equal(got, want))
    eps = float(np.finfo(want.dtype).eps)
    largest = np.abs(want[np.isfinite(want)]).max(initial=0.0)
    return bool(np.allclose(got, want, rtol=64 * eps, atol=64 * eps * min(float(largest), 1e300), equal_nan=True))


def close_after_promotion(name: str, arguments: list[np.ndarray], got: np.ndarray, want: np.ndarray) -> bool:
    """A result of another dtype than NumPy's against NumPy's, and against NumPy's of operands of that dtype."""
    if agrees(got, want.astype(got.dtype)):
        return True
    for converted in (arguments, arguments[:1]):  # the second one of ldexp has to be an integer
        operands = [a.astype(got.dtype) for a in converted] + arguments[len(converted) :]
        with contextlib.suppress(Exception):
            return agrees(got, np.asarray(getattr(np, name)(*operands)).astype(got.dtype))
    return False


def explanation(name: str, arguments: list[np.ndarray], got: np.ndarray, want: np.ndarray) -> str:
    """Why a result that is not NumPy's is meant, or is NumPy's own fault; '' if nothing explains it."""
    for explains, reason in EXPLANATIONS:
        if explains(name, arguments, got, want):
            return reason
    return ""


def _unordered(name, arguments, got, want) -> bool:
    return name == "unique_values" and agrees(got, np.unique(arguments[0], equal_nan=False))


def _unstable(name, arguments, got, want) -> bool:
    x = arguments[0]
    if name not in {"argsort", "argpartition"} or got.shape != want.shape or not x.ndim:
        return False
    return agrees(*(np.take_along_axis(x, places, -1) for places in (got, want)))


def _not_unique(name, arguments, got, want) -> bool:
    return name in SETS and len(arguments) > 2 and bool(np.all(arguments[2]))


def _promoted(name, arguments, got, want) -> bool:
    """NumPy says the same of operands that have their common dtype already."""
    arguments = arguments[:2] if name == "trapezoid" else arguments  # the third one, dx, does not count beside x
    dtype = hnp.result_type(*arguments)
    if got.dtype.kind in "fc" and dtype.kind not in "fc":
        dtype = got.dtype
    inside = name in {*SETS, "trapezoid", "gradient", "unwrap"} and dtype.kind in "fc"
    if not inside and dtype == np.result_type(*arguments):
        return False
    with contextlib.suppress(Exception):
        return agrees(got, np.asarray(getattr(np, name)(*[a.astype(dtype) for a in arguments])))
    return False


def _narrow_range(name, arguments, got, want) -> bool:
    if name not in {"cov", "corrcoef", "interp"} or got.dtype == want.dtype or got.shape != want.shape:
        return False
    if name == "interp" and all(np.isfinite(a.astype(got.dtype)).all() for a in arguments):
        return False
    finite = np.isfinite(got)
    return agrees(got[finite], want.astype(got.dtype)[finite])


def _leading_zeros(name, arguments, got, want) -> bool:
    """NumPy says the same of floats without leading zeros, wherever numbers are finite."""
    if name not in POLYNOMIALS:
        return False
    floats = [np.trim_zeros(np.atleast_1d(a).astype(got.dtype), "f") for a in arguments]
    got, want = (np.trim_zeros(np.asarray(getattr(module, name)(*floats)), "f") for module in (hnp, np))
    finite = np.isfinite(got) if got.shape == want.shape else ...
    return agrees(got[finite], want[finite])


def _no_coefficients(name, arguments, got, want) -> bool:
    return name == "polyval" and arguments[0].ndim > 1 and not arguments[0].shape[0] and not got.any()


def _saturated(name, arguments, got, want) -> bool:
    if name in {"around", "round"} and got.shape == want.shape:
        inside = np.abs(arguments[0].astype(float)) < np.iinfo(got.dtype).max / 2 if got.dtype.kind in "iu" else ()
        return bool(len(arguments) > 1 and np.array_equal(got[inside], want[inside]))
    return name == "full_like" and arguments[1].dtype.kind in "fc" and got.dtype.kind in "iu"


def _no_variables(name, arguments, got, want) -> bool:
    return name in {"cov", "corrcoef"} and arguments[0].ndim == 2 and not arguments[0].shape[0]


def _no_order(name, arguments, got, want) -> bool:
    places = arguments[name == "interp"].astype(float).ravel() if name in {"interp", "searchsorted"} else ()
    return bool((np.diff(places) <= 0).any())


def _other_partition(name, arguments, got, want) -> bool:
    if name != "partition" or got.shape != want.shape:
        return False
    places = arguments[1].ravel().astype(np.int64)
    return agrees(got[..., places], want[..., places]) and agrees(np.sort(got, -1), np.sort(want, -1))


def _no_ascent(name, arguments, got, want) -> bool:
    return name == "gradient" and any((np.diff(a.ravel().astype(got.dtype)) <= 0).any() for a in arguments[1:])


def _equal_infinities(name, arguments, got, want) -> bool:
    if name not in QUANTILES or got.shape != want.shape:
        return False
    infinite = np.isinf(got) & np.isnan(want)
    return agrees(got[~infinite], want[~infinite])


def _wide_index(name, arguments, got, want) -> bool:
    return name in {"take", "take_along_axis", "choose"} and any(
        a.dtype == np.uint64 and (a >> 63).any() for a in arguments
    )


def _half_spacing(name, arguments, got, want) -> bool:
    if name != "spacing" or got.dtype != np.float16:
        return False
    x = arguments[0].astype(np.float16)
    return agrees(got, np.copysign(np.nextafter(np.abs(x), np.float16(np.inf)) - np.abs(x), x))


def _complex_expm1(name, arguments, got, want) -> bool:
    if name != "expm1":
        return False
    infinite = np.isposinf(got.real) & (arguments[0].imag == 0)
    return bool((got.imag[infinite] == 0).all()) and agrees(got[~infinite], want[~infinite])


def _infinite_products(name, arguments, got, want) -> bool:
    """Where the result is finite, both say the same."""
    infinite = not all(np.isfinite(a.astype(got.dtype)).all() for a in arguments)
    if not infinite or got.shape != want.shape or name not in PRODUCTS | PADDED:
        return False
    if name not in PADDED and got.dtype.kind != "c":
        return False
    finite = np.isfinite(got)
    return agrees(got[finite], want.astype(got.dtype)[finite])


QUANTILES = {"percentile", "quantile", "nanpercentile", "nanquantile", "median", "nanmedian"}
SETS = {"intersect1d", "setdiff1d", "setxor1d", "union1d", "isin"}
POLYNOMIALS = {"polymul", "polyadd", "polysub"}
PADDED = {"convolve", "correlate"}
PRODUCTS = {"cumprod", "prod", "nanprod", "nancumprod", "cumulative_prod", "polymul", "polyval", "dot", "vdot", "inner"}
EXPLANATIONS = (
    (_unordered, "`unique_values` is in order; NumPy's order is that of its hash table"),
    (_unstable, "`argsort` is stable; NumPy's default order of equal elements is not"),
    (_not_unique, "`assume_unique` of operands that are not unique: the result is undefined"),
    (
        _promoted,
        "operands have their common dtype, as in JAX, from the beginning; in NumPy another one, or later",
    ),
    (_narrow_range, "the dtype to which JAX promotes (float16, float32) has a smaller range than NumPy's float64"),
    (_leading_zeros, "`polymul` and its like make floats and keep leading zeros, as JAX's"),
    (_no_coefficients, "`polyval` of no coefficients has the shape that it has of some"),
    (_saturated, "floats beyond an integer's range saturate; in C, hence in NumPy, that is undefined"),
    (_other_partition, "`partition` fixes some elements only; the order of the others is free"),
    (_no_order, "positions in coordinates that are not in order are undefined"),
    (_no_ascent, "the gradient at coordinates that do not increase in the result's dtype is undefined"),
    (_no_variables, "NumPy's `cov(m, y)` ignores y where m has no rows"),
    (_equal_infinities, "a quantile between two equal infinities is that infinity; NumPy subtracts them: NaN"),
    (_wide_index, "indexes of uint64 from 2^63 on are outside; NumPy takes them as negative"),
    (
        _half_spacing,
        "NumPy's `spacing` of float16 drops the sign and halves powers of two; of other floats it does not",
    ),
    (_complex_expm1, "NumPy's `expm1(inf + 0j)` is `inf + nanj`; by C99 `exp(inf + 0j)` is `inf + 0j`"),
    (_infinite_products, "products with infinities: padding with zeros, and the order of complex products, make NaN"),
)

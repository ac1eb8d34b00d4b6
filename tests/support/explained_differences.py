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
    inside = name in {*SETS, *QUANTILES, "trapezoid", "gradient", "unwrap"} and dtype.kind in "fc"
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
    if name == "corrcoef" and len(arguments) < 3:  # variances that are none in the narrow dtype
        rows = np.concatenate([np.atleast_2d(a) for a in arguments]).astype(np.float64)
        kept = ~(rows.var(-1) < np.finfo(got.dtype).tiny)
        finite &= kept[:, None] & kept if got.ndim else kept[0]
    return agrees(got[finite], want.astype(got.dtype)[finite])


def _rounded_operands(name, arguments, got, want) -> bool:
    """Close beside the sum of the operands' sizes to NumPy's result of the operands rounded to the dtype."""
    if name not in {"trapezoid", "unwrap"} or got.dtype == want.dtype:
        return False
    floats = [a.astype(got.dtype).astype(np.float64) for a in arguments[: 2 if name == "trapezoid" else 3]]
    exact = getattr(np, name)(*floats)
    size = np.abs(floats[0]).sum() * (np.abs(np.diff(floats[1])).max(initial=1.0) if len(floats) > 1 else 1.0)
    return bool((np.abs(got - exact) <= 4 * np.finfo(got.dtype).eps * size).all())


def _narrow_power(name, arguments, got, want) -> bool:
    if name not in {"float_power", "power", "pow"} or got.dtype != np.complex64 or got.shape != want.shape:
        return False
    base, exponent = (np.broadcast_to(a, got.shape).astype(np.complex128) for a in arguments)
    limits = np.finfo(np.float32)
    outside = (np.abs(want) > limits.max) | (np.abs(want) < limits.tiny) | ~(np.isfinite(want) | np.isfinite(got))
    logarithm = np.log(np.where((base == 0) | (exponent == 0), 1, base))
    condition = 1 + np.abs(exponent) * (np.pi + np.abs(logarithm))
    close = np.abs(got - want) <= 16 * limits.eps * condition * np.abs(want)
    return bool((outside | close).all())


def _zero_times_nan(name, arguments, got, want) -> bool:
    scalars = [a for a in arguments if a.ndim == 0]
    return name in {"dot", "inner"} and any(a == 0 for a in scalars) and agrees(np.nan_to_num(got), want)


def _many_digits(name, arguments, got, want) -> bool:
    return name in {"around", "round"} and len(arguments) > 1 and bool(arguments[1] < -20) and not got.any()


def _far_diagonal(name, arguments, got, want) -> bool:
    if name not in {"tril", "triu"} or len(arguments) < 2 or arguments[0].ndim < 2:
        return False
    lower = (np.arange(got.shape[-1]) - np.arange(got.shape[-2])[:, None]).astype(object) - int(arguments[1])
    kept = (lower <= 0 if name == "tril" else lower >= 0).astype(bool)
    return agrees(got, np.where(kept, arguments[0], np.zeros((), got.dtype)))


def _infinite_tolerance(name, arguments, got, want) -> bool:
    if name not in {"isclose", "allclose"}:
        return False
    dtype = hnp.result_type(*arguments[:2])
    pair = [a.astype(dtype) for a in arguments[:2]]
    infinite = np.isinf(pair[0]) | np.isinf(pair[1])
    if name == "allclose":
        return bool(infinite.any())
    return agrees(*(r[~np.broadcast_to(infinite, r.shape)] for r in (got, want)))


def _unordered_roots(name, arguments, got, want) -> bool:
    if name != "roots" or got.shape != want.shape:
        return False
    left = list(want)
    for root in got:
        nearest = min(range(len(left)), key=lambda k: abs(left[k] - root))
        if not abs(left.pop(nearest) - root) <= 64 * np.finfo(got.dtype).eps * np.abs(want).max():
            return False
    return True


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
    if name not in {"partition", "argpartition"} or got.shape != want.shape:
        return False
    places = arguments[1].ravel().astype(np.int64)
    if name == "argpartition":
        got, want = (np.take_along_axis(arguments[0], places, -1) for places in (got, want))
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


def _complex_log1p(name, arguments, got, want) -> bool:
    eps = np.finfo(want.dtype).eps if name == "log1p" else 0
    return name == "log1p" and bool(np.allclose(got, want, rtol=8 * eps, atol=8 * eps, equal_nan=True))


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
PRODUCTS |= {"poly"}  # of its roots
EXPLANATIONS = (
    (_unordered, "`unique_values` is in order; NumPy's order is that of its hash table"),
    (_unstable, "`argsort` is stable; NumPy's default order of equal elements is not"),
    (_not_unique, "`assume_unique` of operands that are not unique: the result is undefined"),
    (
        _promoted,
        "operands have their common dtype, as in JAX, from the beginning; in NumPy another one, or later",
    ),
    (_narrow_range, "the dtype to which JAX promotes (float16, float32) has a smaller range than NumPy's float64"),
    (_rounded_operands, "integers are rounded to the float to which JAX promotes; NumPy's differences of them wrap"),
    (
        _narrow_power,
        "complex64, to which JAX promotes, has a smaller range and coarser angles than NumPy's complex128; "
        "the parts of infinite complex powers are undefined",
    ),
    (_zero_times_nan, "NumPy's product with a scalar 0 leaves out infinities and NaN"),
    (_many_digits, "integers rounded to more digits than they have are 0; NumPy's power of ten overflows"),
    (_far_diagonal, "`tril` and `triu` of a diagonal far outside; NumPy's index of it wraps"),
    (_infinite_tolerance, "an infinity is close to its equal alone, as in JAX, whatever the tolerance"),
    (_unordered_roots, "`roots` are in no order"),
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
    (_complex_log1p, "NumPy's complex `log1p` forms 1 + z, which rounds what is small"),
    (_infinite_products, "products with infinities: padding with zeros, and the order of complex products, make NaN"),
)

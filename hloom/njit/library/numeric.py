"""NumPy's functions whose dtypes, order of operations or errors are not those of hloom's functions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from hloom import lax
from hloom import numpy as hnp
from hloom.errors import UnsupportedError
from hloom.njit.guards import require
from hloom.njit.library.called import kind, of_hloom, result
from hloom.njit.library.own import SPECIAL, complex_order
from hloom.njit.operators import elementwise
from hloom.njit.values import Array, Number, Value, as_value, converted, dtype_of, traced

__all__ = ["NUMERIC"]


# --- evenly spaced numbers


def _arange(*bounds: Any, dtype: Any = None, **options: Any) -> Any:
    """NumPy's numbers are integers of 64 bits at least."""
    if len(bounds) == 4:
        *bounds, dtype = bounds  # type: ignore[assignment]
    given = [v for v in (*bounds, *options.values()) if isinstance(v, (np.generic, Number))]
    if dtype is None and given:
        dtype = np.result_type(np.int64, *map(kind, given))
        others = [v for v in (*bounds, *options.values()) if type(v) is float]
        dtype = np.result_type(dtype, *others)
    return of_hloom("arange", "numpy", tuple(bounds), {**options, **({} if dtype is None else {"dtype": dtype})})


def _divided(start: Any, stop: Any, num: Any, endpoint: bool) -> tuple[Any, Any, np.dtype]:
    """(the points along the first axis, the step, their dtype), by NumPy's operations in their order."""
    num = operator.index(num)
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    parts = num - 1 if endpoint else num
    start, stop = [elementwise(np.multiply, (v, 1.0)) for v in (start, stop)]
    dtype = np.result_type(kind(start), kind(stop), float(num))
    delta = elementwise(np.subtract, (stop, start))
    rank = delta.ndim if isinstance(delta, Value) else 0
    points: Any = Array.of(hnp.arange(num, dtype=np.int64).astype(dtype).reshape((-1, *[1] * rank)))
    step: Any = np.nan
    if parts > 0:
        step = elementwise(np.true_divide, (delta, parts))
        scaled = elementwise(np.multiply, (points, step))
        if isinstance(step, Value):  # where a step underflows, NumPy divides first
            none = elementwise(np.equal, (step, 0))
            small = elementwise(np.multiply, (elementwise(np.true_divide, (points, parts)), delta))
            if none.ndim:
                none = Array.of(none.traced.any())
            points = Array.of(hnp.where(none.traced, small.traced, scaled.traced))
        elif step == 0:
            points = elementwise(np.multiply, (elementwise(np.true_divide, (points, parts)), delta))
        else:
            points = scaled
    else:
        points = elementwise(np.multiply, (points, delta))
    points = elementwise(np.add, (points, start))
    if endpoint and num > 1:
        points[-1] = stop
    return points, step, dtype


def _linspace(
    start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
    axis: int = 0, **options: Any,
) -> Any:  # fmt: skip
    if not isinstance(num, (int, np.integer, Value)):  # a size that the program computes
        return of_hloom("linspace", "numpy", (start, stop, num, endpoint, retstep, dtype, axis), options)
    points, step, own = _divided(start, stop, num, endpoint)
    asked = own if dtype is None else np.dtype(dtype)
    if axis != 0 and points.ndim > 1:
        points = Array.of(hnp.moveaxis(points.traced, 0, axis))
    if asked.kind in "iu":
        points = elementwise(np.floor, (points,))
    points = Array.of(converted(points, asked))
    return (points, step) if retstep else points


def _logspace(
    start: Any, stop: Any, num: Any = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Any:
    points = _linspace(start, stop, num, endpoint, axis=axis)
    if np.ndim(base) if not isinstance(base, Value) else base.ndim:
        raise UnsupportedError("np.logspace with an array as base", f"{base!r}", "use base ** np.linspace(...)")
    made = elementwise(np.power, (base, points))
    return made if dtype is None else Array.of(converted(made, np.dtype(dtype)))


def _geomspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    start, stop = as_value(start), as_value(stop)
    own = np.result_type(kind(start), kind(stop), float(operator.index(num)))
    own = own if dtype is None else np.result_type(own, np.dtype(dtype))
    asked = own if dtype is None else np.dtype(dtype)
    start, stop = [_in_dtype(v, own) for v in (start, stop)]
    for v in (start, stop):
        require((traced(v) != 0).all(), "np.geomspace", "a sequence that includes zero", "use other limits")
    sign = elementwise(np.sign, (start,))
    start, stop = [elementwise(np.true_divide, (v, sign)) for v in (start, stop)]
    first, last = [elementwise(np.log10, (v,)) for v in (start, stop)]
    made = _logspace(first, last, num, endpoint, 10.0, own)
    if len(made):
        made[0] = start
        if len(made) > 1 and endpoint:
            made[-1] = stop
    made = elementwise(np.multiply, (made, sign))
    if axis != 0 and made.ndim > 1:
        made = Array.of(hnp.moveaxis(made.traced, 0, axis))
    return Array.of(converted(made, asked))


def _in_dtype(value: Any, dtype: np.dtype) -> Any:
    made = converted(value, dtype)
    return Array.of(made) if made.shape else Number(made)


# --- interpolation and searches


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """NumPy's interpolation: between two points, from the first one; from the second one where that is NaN."""
    x, xp, fp = [as_value(v) for v in (x, xp, fp)]
    work = np.dtype(complex if dtype_of(fp).kind == "c" else float)
    points, heights, at = converted(xp, np.dtype(float)), converted(fp, work), converted(x, np.dtype(float))
    if points.ndim != 1 or heights.ndim != 1 or points.shape != heights.shape:
        raise ValueError("fp and xp are not of the same length.")
    if not points.shape[0]:
        raise ValueError("array of sample points is empty")
    if period is not None:
        size = hnp.abs(converted(period, np.dtype(float)))
        require(size != 0, "np.interp", "a period of 0", "pass a period that is not 0")
        at, points, left, right = at % size, points % size, None, None
        order = hnp.argsort(points)
        points, heights = points[order], heights[order]
        points = hnp.concatenate([points[-1:] - size, points, points[:1] + size])
        heights = hnp.concatenate([heights[-1:], heights, heights[:1]])
    parts = [heights] if work.kind == "f" else [heights.real, heights.imag]
    made = [_between(at, points, part, inverse=len(parts) > 1) for part in parts]
    value = made[0] if len(made) == 1 else lax.complex(made[0], made[1])
    low = heights[0] if left is None else converted(left, work)
    high = heights[-1] if right is None else converted(right, work)
    value = hnp.where(at < points[0], low, hnp.where(at > points[-1], high, value))
    if len(points) > 1:  # NumPy has the height of a single point at NaN
        value = hnp.where(hnp.isnan(at), at.astype(work), value)
    return Array.of(value) if value.shape else Number(value)


def _between(at: Any, points: Any, heights: Any, inverse: bool) -> Any:
    """inverse: whether the slope is a product with the reciprocal of the width, as NumPy has it of complex heights."""
    last = points.shape[0] - 1
    below = hnp.clip(hnp.searchsorted(points, at, side="right") - 1, 0, last)
    above = hnp.minimum(below + 1, last)
    x0, x1, y0, y1 = [v[k] for v in (points, heights) for k in (below, above)]
    slope = (y1 - y0) * (1.0 / (x1 - x0)) if inverse else (y1 - y0) / (x1 - x0)
    first, second = slope * (at - x0) + y0, slope * (at - x1) + y1
    value = hnp.where(hnp.isnan(first), second, first)
    value = hnp.where(hnp.isnan(value) & (y0 == y1), y0, value)
    return hnp.where((below == last) | (x0 == at), y0, value)


def _searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Complex numbers are in the order of their real, then their imaginary parts, those with a NaN behind them."""
    a, v = as_value(a), as_value(v)
    dtype = np.result_type(kind(a), kind(v))
    if side in ("l", "r"):
        side = "left" if side == "l" else "right"
    if dtype.kind != "c":
        return of_hloom("searchsorted", "numpy", (_in_dtype(a, dtype), _in_dtype(v, dtype), side, sorter), {})
    table, values = converted(a, dtype), converted(v, dtype)
    if sorter is not None:
        table = table[converted(sorter, np.dtype(np.int64))]
    flat = values.reshape(-1)
    both = hnp.concatenate([table, flat] if side == "left" else [table, flat])
    rank = _ranks(both)
    found = hnp.searchsorted(rank[: table.shape[0]], rank[table.shape[0] :], side=side).astype(np.int64)
    return result(found.reshape(values.shape))


def _ranks(values: Any) -> Any:
    """Integers in the order of complex numbers."""
    order = complex_order(values, 0)
    there = values[order]
    real, imaginary = [
        (part[1:] == part[:-1]) | (hnp.isnan(part[1:]) & hnp.isnan(part[:-1])) for part in (there.real, there.imag)
    ]
    new = hnp.concatenate([hnp.zeros(min(1, values.shape[0]), np.int64), (~(real & imaginary)).astype(np.int64)])
    return hnp.zeros(values.shape, np.int64).at[order].set(hnp.cumsum(new))


# --- sorts


def _partition(name: str) -> Callable:
    """A partition at any places: a sort is one."""

    def partition(a: Any, kth: Any, axis: Any = -1, **options: Any) -> Any:
        x = as_value(a)
        if axis is None:
            x, axis = Array.of(x.traced.reshape(-1)), 0
        if np.ndim(kth) > 1 if not isinstance(kth, Value) else kth.ndim > 1:
            raise ValueError("kth must be a number, or of one dimension")
        size = x.shape[operator.index(axis)]
        if not isinstance(kth, Value):
            outside = [int(k) for k in np.ravel(kth) if not -size <= k < size]
            if outside and size:
                raise ValueError(f"kth(={outside[0]}) out of bounds ({size})")
        elif size:
            places = kth.traced.reshape(-1)
            require(((places >= -size) & (places < size)).all(), f"np.{name}", f"kth out of bounds ({size})",
                    "name places within the axis")  # fmt: skip
        return SPECIAL["sort" if name == "partition" else "argsort"](x, axis)

    return partition


# --- sums of products


def _in_double(name: str) -> Callable:
    """A function of arrays that computes in float64 at least, and returns an array."""

    def compute(m: Any, y: Any = None, *more: Any, **options: Any) -> Any:
        given = [as_value(v) for v in (m, y) if v is not None]
        dtype = options.pop("dtype", None)
        work = np.result_type(*map(kind, given), np.float64) if dtype is None else np.dtype(dtype)
        own = [Array.of(converted(v, work)) for v in given]
        found = of_hloom(name, "numpy", (own[0], own[1] if len(own) > 1 else None, *more), options)
        return Array.of(found.traced) if name == "cov" else found

    return compute


def _of_sequences(name: str) -> Callable:
    """np.convolve and np.correlate. Integers are summed as such."""

    def compute(a: Any, v: Any, mode: str = "full" if name == "convolve" else "valid") -> Any:
        x, y = as_value(a), as_value(v)
        work = np.result_type(kind(x), kind(y))
        x, y = [Array.of(hnp.atleast_1d(converted(value, work))) for value in (x, y)]
        for part, letter in ((x, "a"), (y, "v")):
            if part.ndim == 1 and not part.size:
                raise ValueError(f"{letter} cannot be empty")
        if work.kind in "fc" or x.ndim != 1 or y.ndim != 1:
            return of_hloom(name, "numpy", (x, y, mode), {})
        if mode not in ("full", "same", "valid"):
            raise ValueError("mode must be 'valid', 'same', or 'full'")
        return Array.of(_slid(x.traced, y.traced[::-1] if name == "correlate" else y.traced, mode, name == "correlate"))

    return compute


def _slid(x: Any, y: Any, mode: str, swapped: bool) -> Any:
    """The convolution of two sequences of integers."""
    n, m = x.shape[0], y.shape[0]
    long, short = (x, y) if n >= m else (y, x)
    size = min(n, m)
    padded = hnp.pad(long, (size - 1, size - 1))
    windows = np.arange(n + m - 1)[:, None] + np.arange(size)[::-1]
    full = (padded[hnp.asarray(windows)] * short).sum(axis=1, dtype=x.dtype)
    if mode == "full":
        return full
    if mode == "valid":
        return full[size - 1 : max(n, m)]
    # NumPy's correlate computes that of the longer sequence with the shorter one, and turns it around.
    first = (size - 1) // 2 if not (swapped and n < m) else size // 2
    return full[first : first + max(n, m)]


def _bincount(x: Any, weights: Any = None, minlength: Any = 0) -> Any:
    """Of integers that are all less than minlength, which the program checks; or of few bits."""
    array = as_value(x)
    if not isinstance(array, Array):
        return np.bincount(x, weights, minlength)
    least, most = int(minlength), _greatest(array.dtype)
    if array.ndim != 1 or array.dtype.kind not in "iub":
        raise UnsupportedError("np.bincount in a program", f"{array!r}", "pass a vector of integers")
    if not least and most is None:
        raise UnsupportedError("np.bincount in a program", "the largest element is the size of the result",
                               "pass minlength=, a number above all elements")  # fmt: skip
    numbers = array.traced.astype(np.int64)
    require((numbers >= 0).all(), "np.bincount of integers from 0 on", "one is negative", "count others apart")
    if weights is not None:
        weights = converted(weights, np.dtype(np.float64))
    if most is None:
        require((numbers < least).all(), "np.bincount in a program, of integers less than minlength",
                f"one is not less than {least}", "pass a larger minlength")  # fmt: skip
    found = hnp.bincount(numbers, weights, length=least if most is None else max(most + 1, least))
    found = found if weights is not None else found.astype(np.int64)
    if most is not None and most >= least:  # as many as there are, up to the largest element
        size = hnp.max(numbers, initial=-1) + 1
        found = found[hnp.arange(len(found)) < hnp.maximum(size, least)]
    return Array.of(found)


def _greatest(dtype: np.dtype) -> int | None:
    """The greatest number of a dtype of few bits."""
    return 1 if dtype.kind == "b" else int(np.iinfo(dtype).max) if dtype.itemsize == 1 else None


def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    if isinstance(repeats, Array):
        raise UnsupportedError("np.repeat with an array of counts", "their sum is the size of the result",
                               "pass a number, or a tuple of integers")  # fmt: skip
    return of_hloom("repeat", "numpy", (as_value(a), repeats), {"axis": axis})


def _quantile(name: str, most: int) -> Callable:
    def compute(a: Any, q: Any, axis: Any = None, *more: Any, **options: Any) -> Any:
        levels = converted(q, np.dtype(float))
        require(((levels >= 0) & (levels <= most)).all(), f"np.{name}", f"a level that is not in the range [0, {most}]",
                "pass levels within it")  # fmt: skip
        return of_hloom(name, "numpy", (as_value(a), q if isinstance(q, Value) else as_value(q), axis, *more), options)

    return compute


# --- values that NumPy replaces or refuses


def _nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    given = as_value(x)
    found = of_hloom("nan_to_num", "numpy", (given,), {"nan": nan, "posinf": posinf, "neginf": neginf})
    if copy or not isinstance(given, Array):
        return found
    if isinstance(x, np.ndarray):
        raise UnsupportedError("a change of an array that is not an argument", f"np.nan_to_num({given!r}, copy=False)",
                               "pass it as an argument")  # fmt: skip
    given[...] = found
    return given


def _median(name: str) -> Callable:
    def compute(a: Any, axis: Any = None, **options: Any) -> Any:
        x = as_value(a)
        dims = getattr(x, "shape", ())
        axes = tuple(range(len(dims))) if axis is None else normalize_axis_tuple(axis, len(dims))
        if any(isinstance(dims[k], int) and not dims[k] for k in axes):
            dtype = dtype_of(x) if dtype_of(x).kind in "fc" else np.dtype(float)
            kept = tuple(
                [1 if k in axes else n for k, n in enumerate(dims) if options.get("keepdims") or k not in axes]
            )
            return result(hnp.full(kept, np.nan, dtype))
        return of_hloom(name, "numpy", (x,), {"axis": axis, **options})

    return compute


def _nan_position(name: str) -> Callable:
    def compute(a: Any, axis: Any = None, out: Any = None, **options: Any) -> Any:
        x = as_value(a)
        if dtype_of(x).kind in "fc":
            require((~hnp.isnan(x.traced)).any(axis=axis).all(), f"np.{name}", "an all-NaN slice",
                    "leave out slices without numbers")  # fmt: skip
        return of_hloom(name, "numpy", (x,), {"axis": axis, "out": out, **options})

    return compute


def _average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, **options: Any) -> Any:
    x = as_value(a)
    if weights is None:
        return of_hloom("average", "numpy", (x,), {"axis": axis, "returned": returned, **options})
    w = as_value(weights)
    work = np.result_type(kind(x), kind(w), *([np.float64] if dtype_of(x).kind in "iub" else []))
    x, w = [Array.of(converted(v, work)) for v in (x, w)]
    if w.shape != x.shape and axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    total = w.traced.sum(axis=axis if w.shape == x.shape else None)
    require((total != 0).all(), "np.average", "weights that sum to zero", "use other weights")
    return of_hloom("average", "numpy", (x,), {"axis": axis, "weights": w, "returned": returned, **options})


NUMERIC: dict[str, Callable] = {
    "arange": _arange, "repeat": _repeat,
    **{name: _quantile(name, 100) for name in ("percentile", "nanpercentile")},
    **{name: _quantile(name, 1) for name in ("quantile", "nanquantile")},
    "linspace": _linspace, "logspace": _logspace, "geomspace": _geomspace, "interp": _interp,
    "searchsorted": _searchsorted, "partition": _partition("partition"), "argpartition": _partition("argpartition"),
    "cov": _in_double("cov"), "corrcoef": _in_double("corrcoef"),
    "convolve": _of_sequences("convolve"), "correlate": _of_sequences("correlate"), "bincount": _bincount,
    "nan_to_num": _nan_to_num, "median": _median("median"), "nanmedian": _median("nanmedian"),
    "nanargmax": _nan_position("nanargmax"), "nanargmin": _nan_position("nanargmin"), "average": _average,
}  # fmt: skip

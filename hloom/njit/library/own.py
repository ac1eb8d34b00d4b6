"""NumPy's functions with a meaning of their own in a program: those of views, dtypes, places and makers of arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from hloom import numpy as hnp
from hloom.errors import UnsupportedError
from hloom.njit.guards import require
from hloom.njit.library.called import kind, of_hloom, result
from hloom.njit.operators import elementwise
from hloom.njit.values import Array, Number, Value, as_value, converted, dtype_of, traced

__all__ = ["LINEAR", "SPECIAL", "complex_order", "copied", "matmul", "nonzero", "np_where", "sorted_array", "taken"]


def np_where(condition: Any, *choices: Any) -> Any:
    if not choices:
        return nonzero(condition)
    dtype = np.result_type(*[kind(c) for c in choices])
    yes, no = [converted(c, dtype) for c in choices]
    found = hnp.where(traced(as_value(condition)), yes, no)
    return Array.of(found) if found.shape else Number(found)


def _where(condition: Any, *choices: Any) -> Any:
    found = np_where(condition, *choices)
    return Array.of(found.traced) if isinstance(found, Number) else found  # NumPy returns an array without dimensions


def copied(x: Any, order: str = "K", subok: bool = False) -> Any:
    return Array.of(traced(as_value(x)))


def _array(x: Any, dtype: Any = None, copy: bool = True, **options: Any) -> Any:
    value = as_value(x)
    if not isinstance(value, Value):
        return np.array(value, dtype)
    made = value.traced if dtype is None else converted(value, np.dtype(dtype))
    return Array.of(made)


def _asarray(x: Any, dtype: Any = None, **options: Any) -> Any:
    if isinstance(x, Array) and (dtype is None or x.dtype == np.dtype(dtype)):
        return x
    return _array(x, dtype)


def _full(shape: Any, fill_value: Any, dtype: Any = None, **options: Any) -> Any:
    made = np.dtype(dtype) if dtype is not None else dtype_of(as_value(fill_value))
    return Array.of(hnp.broadcast_to(converted(fill_value, made), _sizes(shape)))


def _like(value: Any) -> Callable:
    def like(x: Any, dtype: Any = None, shape: Any = None, **options: Any) -> Any:
        x = as_value(x)
        dims, made = x.shape if shape is None else shape, dtype_of(x) if dtype is None else np.dtype(dtype)
        return _full(dims, value, made)

    return like


def _full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, **options: Any) -> Any:
    return _like(fill_value)(x, dtype, shape)


def taken(x: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    x, indices = as_value(x), as_value(indices)
    if mode != "raise":
        return of_hloom("take", "numpy", (x, indices, axis), {"mode": mode, "out": out})
    if isinstance(indices, Value) and indices.dtype.kind == "b":
        indices = Array.of(indices.traced.astype(np.int64)) if indices.ndim else Number(indices.traced.astype(np.int64))
    if axis is None:
        found = Array.of(x.traced.reshape(-1))[indices]
    else:
        found = x[(*[slice(None)] * (normalize_axis_index(operator.index(axis), x.ndim)), indices)]
    found = found if isinstance(found, Number) else Array.of(found.traced)
    if out is None:
        return found
    out[...] = found
    return out


def clipped(x: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **options: Any) -> Any:
    low, high = options.get("min", a_min), options.get("max", a_max)
    found = as_value(x)
    if low is not None:
        found = elementwise(np.maximum, (found, low))
    if high is not None:
        found = elementwise(np.minimum, (found, high))
    if found is x:
        found = copied(x)
    if out is None:
        return found
    out[...] = found
    return out


def nonzero(x: Any) -> tuple:
    """The positions of elements that are not zero; their number is computed by the program."""
    x = as_value(x)
    if not x.ndim:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    mask = elementwise(np.not_equal, (x, 0)).traced
    if not all(isinstance(n, int) for n in x.shape):
        raise UnsupportedError("np.nonzero of an array whose size the program computes", f"{x!r}", "use a loop")
    return tuple([Array.of(places) for places in hnp.nonzero(mask)])


def _sizes(shape: Any) -> tuple[int, ...]:
    return tuple(map(operator.index, shape)) if isinstance(shape, (tuple, list)) else (operator.index(shape),)


def _copyto(target: Any, source: Any, where: Any = True, **options: Any) -> None:
    target[...] = source if where is True else np_where(where, source, target)


def _fill_diagonal(x: Any, value: Any, wrap: bool = False) -> None:
    """As NumPy: `x.flat[:end:step] = value`, whose values are repeated or cut."""
    if x.ndim < 2:
        raise ValueError("array must be at least 2-d")
    end = None
    if x.ndim == 2:
        step = x.shape[1] + 1
        end = None if wrap else x.shape[1] * x.shape[1]
    elif len(set(x.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    else:
        step = 1 + int(np.cumprod(x.shape[:-1]).sum())
    places = np.arange(x.size)[slice(None, end, step)]
    values = converted(value, x.dtype).reshape(-1)
    if not values.shape[0]:
        return
    values = values[hnp.asarray(np.arange(len(places)) % values.shape[0])]
    x.write(x.traced.reshape(-1).at[hnp.asarray(places)].set(values).reshape(x.shape))


def matmul(a: Any, b: Any, out: Any = None) -> Any:
    a, b = as_value(a), as_value(b)
    dtype = np.result_type(kind(a), kind(b))
    return result(hnp.matmul(converted(a, dtype), converted(b, dtype)), out=out)


def _dot(a: Any, b: Any, out: Any = None) -> Any:
    a, b = as_value(a), as_value(b)
    dtype = np.result_type(kind(a), kind(b))
    return result(hnp.dot(converted(a, dtype), converted(b, dtype)), out=out)


def sorted_array(x: Any, axis: Any = -1, **options: Any) -> Any:
    value = traced(as_value(x))
    if value.dtype.kind != "c":
        return result(hnp.sort(value, axis=axis))
    value, axis = (value.reshape(-1), 0) if axis is None else (value, axis)
    return Array.of(hnp.take_along_axis(value, complex_order(value, axis), axis))


def _argsort(x: Any, axis: Any = -1, **options: Any) -> Any:
    value = as_value(x)
    if dtype_of(value).kind != "c":
        return of_hloom("argsort", "numpy", (value,), {"axis": axis})
    flat = value.traced.reshape(-1) if axis is None else value.traced
    return Array.of(complex_order(flat, 0 if axis is None else axis).astype(np.int64))


def complex_order(x: Any, axis: int) -> Any:
    """The indices that sort complex numbers as NumPy does: by their real, then their imaginary parts, behind them those
    whose imaginary part is NaN, then those whose real part is."""
    missing = [hnp.isnan(part) for part in (x.real, x.imag)]
    real, imaginary = [hnp.where(none, 0, part) for part, none in zip((x.real, x.imag), missing, strict=True)]
    group = missing[0].astype(np.int64) * 2 + missing[1].astype(np.int64)
    return hnp.lexsort((imaginary, real, group), axis=axis)


def _shape(x: Any) -> tuple[int, ...]:
    return as_value(x).shape


def _histogram(x: Any, *args: Any, **kwargs: Any) -> Any:
    counts, edges = of_hloom("histogram", "numpy", (x, *args), dict(kwargs))
    whole = kwargs.get("weights") is None and not kwargs.get("density")
    return (Array.of(counts.traced.astype(np.int64)) if whole else counts), edges


def _histogram2d(x: Any, *args: Any, **kwargs: Any) -> Any:
    counts, *edges = of_hloom("histogram2d", "numpy", (x, *args), dict(kwargs))
    return (Array.of(counts.traced.astype(np.float64)), *edges)


def _result_type(*values: Any) -> np.dtype:
    return np.result_type(*[v if isinstance(v, (type, np.dtype, str)) else kind(v) for v in values])


def _ndarray(shape: Any, dtype: Any = float, *others: Any, order: Any = None, **options: Any) -> Any:
    if others or options or order not in (None, "C"):
        raise UnsupportedError(
            "np.ndarray(shape, dtype) with a buffer, strides or an order",
            "arrays of a compiled program are new memory in C order", "take np.empty, or a view of an array",
        )  # fmt: skip
    return _full(shape, 0, dtype)


SPECIAL: dict[str, Callable] = {
    "ndarray": _ndarray,
    "result_type": _result_type,
    "histogram": _histogram, "histogram2d": _histogram2d,
    "copy": copied, "array": _array, "full": _full,
    **dict.fromkeys(("asarray", "asanyarray", "ascontiguousarray"), _asarray),
    **dict.fromkeys(("empty", "zeros"), lambda shape, dtype=float, **o: _full(shape, 0, dtype)),
    "ones": lambda shape, dtype=float, **o: _full(shape, 1, dtype),
    "zeros_like": _like(0), "ones_like": _like(1), "empty_like": _like(0), "full_like": _full_like,
    "take": taken, "clip": clipped, "nonzero": nonzero,
    "copyto": _copyto, "fill_diagonal": _fill_diagonal, "where": _where, "matmul": matmul, "dot": _dot,
    "row_stack": lambda parts, **o: of_hloom("vstack", "numpy", (parts,), o),
    "sort": sorted_array, "argsort": _argsort,
    "shape": _shape, "ndim": lambda x: as_value(x).ndim, "size": lambda x: as_value(x).size,
}  # fmt: skip


def _of_symmetric(name: str, lower: bool) -> Callable:
    """A function of `np.linalg` that reads one triangle of a matrix, whatever the other one has."""

    def compute(a: Any, UPLO: str = "L", *, upper: bool = False) -> Any:  # noqa: N803  (NumPy's name)
        a = as_value(a)
        whole = a.traced
        kept = lower and UPLO.upper() == "L" and not upper
        half = hnp.tril(whole, -1) if kept else hnp.triu(whole, 1)
        diagonal = hnp.eye(a.shape[-1], dtype=bool)
        full = half + hnp.where(diagonal, whole.real, 0) + hnp.swapaxes(half, -1, -2).conj()
        options = {"upper": True} if upper else {}
        return of_hloom(name, "numpy.linalg", (Array.of(full.astype(whole.dtype)),), options)

    return compute


def _matrix_rank(a: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    options = {k: v for k, v in (("tol", tol), ("rtol", rtol)) if v is not None}
    require(hnp.isfinite(traced(as_value(a))).all(), "np.linalg.matrix_rank", "a matrix with NaN or infinity",
            "remove them")  # fmt: skip
    return of_hloom("matrix_rank", "numpy.linalg", (as_value(a),), {"hermitian": hermitian, **options})


def _det(a: Any) -> Any:
    x = as_value(a)
    if x.ndim >= 2 and not x.shape[-1] and not x.shape[-2]:
        return result(hnp.ones(x.shape[:-2], x.dtype if x.dtype.kind in "fc" else np.dtype(float)))
    return of_hloom("det", "numpy.linalg", (x,), {})


def _of_numbers(name: str) -> Callable:
    """A function that NumPy refuses to compute of NaN and infinity."""

    def compute(a: Any, *more: Any, **options: Any) -> Any:
        x = as_value(a)
        require(hnp.isfinite(traced(x)).all(), f"np.linalg.{name}", "a matrix with NaN or infinity", "remove them")
        return of_hloom(name, "numpy.linalg", (x, *more), options)

    return compute


def _lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """Where the rank is not that of the columns, or the system not overdetermined, there are no residuals."""
    a, b = as_value(a), as_value(b)
    found, residuals, rank, values = _of_numbers("lstsq")(a, b, rcond)
    rows, columns = a.shape
    residuals = residuals.traced.reshape(-1)
    if rows > columns:
        residuals = residuals[hnp.broadcast_to(rank.traced == columns, residuals.shape)]
    whole = Number(rank.traced.astype(np.int32))  # LAPACK's
    return found, Array.of(residuals if rows > columns else residuals[:0]), whole, values


LINEAR: dict[str, Callable] = {name: _of_symmetric(name, True) for name in ("eigh", "eigvalsh", "cholesky")} | {
    **{name: _of_numbers(name) for name in ("eig", "eigvals", "svd", "svdvals", "pinv")}, "lstsq": _lstsq,
    "matmul": matmul, "matrix_rank": _matrix_rank, "det": _det,
}  # fmt: skip

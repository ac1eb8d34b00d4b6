"""NumPy's functions that select elements, or change those at some places."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from hloom import numpy as hnp
from hloom.errors import UnsupportedError
from hloom.njit.guards import require
from hloom.njit.library.called import kind, of_hloom
from hloom.njit.library.own import np_where
from hloom.njit.operators import elementwise
from hloom.njit.values import Array, Number, Value, as_value, converted, dtype_of, traced

__all__ = ["SELECTED", "contains", "sorted_list"]


def contains(key: Any, items: Any) -> Any:
    """`key in items`, of an array: whether any element is equal."""
    found = elementwise(np.equal, (items, key))
    return Number(found.traced.any() if isinstance(found, Array) else found.traced, bool)


def sorted_list(values: Any, *, key: Any = None, reverse: Any = False) -> list:
    """`sorted` of a vector or of numbers. NaN is the greatest, as in np.sort."""
    if key is not None:
        raise UnsupportedError("sorted with key=", "an order of traced numbers", "use x[np.argsort(key)]")
    x = as_value(list(values) if isinstance(values, tuple) else values)
    if x.ndim != 1:
        raise UnsupportedError("sorted of an array of several dimensions", f"{x!r}", "use np.sort")
    ordered = hnp.sort(traced(x))
    return list(Array.of(ordered[::-1] if reverse else ordered))


# --- bins


def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    x, bins = as_value(x), as_value(bins)
    if dtype_of(x).kind == "c":
        raise TypeError("x may not be complex")
    dtype = np.result_type(kind(x), kind(bins))
    edges, values = converted(bins, dtype), converted(x, dtype)
    size = edges.shape[0]
    side = "left" if right else "right"
    found = hnp.searchsorted(edges, values, side=side).astype(np.int64)
    if isinstance(size, int) and size > 1:
        differs = edges[1:] != edges[0]
        up = ~differs.any() | (edges[0] < edges[1 + hnp.argmax(differs)])
        falls, rises = (edges[:-1] > edges[1:]).any(), (edges[:-1] < edges[1:]).any()
        require(hnp.where(up, ~falls, ~rises), "np.digitize", "bins that are not monotonic", "sort the bins")
        down = size - hnp.searchsorted(edges[::-1], values, side=side).astype(np.int64)
        found = hnp.where(up, found, down)
    return Array.of(found) if found.shape else Number(found)


# --- triangles


def _tri(n: Any, m: Any = None, k: Any = 0, dtype: Any = float, **options: Any) -> Any:
    rows = max(operator.index(n), 0)
    columns = rows if m is None else max(operator.index(m), 0)
    return of_hloom("tri", "numpy", (rows, columns, operator.index(k)), {"dtype": np.dtype(dtype)})


def _triangle(name: str) -> Callable:
    def compute(m: Any, k: Any = 0) -> Any:
        x = as_value(m)
        if x.ndim == 1:  # NumPy broadcasts a vector to the rows of a matrix
            x = Array.of(hnp.broadcast_to(x.traced, (x.shape[0], x.shape[0])))
        return of_hloom(name, "numpy", (x, operator.index(k)), {})

    return compute


# --- selections


def _extract(condition: Any, arr: Any) -> Any:
    test, x = as_value(condition), as_value(arr)
    mask, flat = traced(test).reshape(-1) != 0, traced(x).reshape(-1)
    size = flat.shape[0]
    if mask.shape[0] > size:
        require(
            ~mask[size:].any(), "np.extract", "a condition that is true behind the array's end", "cut the condition"
        )
        mask = mask[:size]
    return Array.of(flat[: mask.shape[0]][mask])


def _trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    x = as_value(filt)
    if x.ndim != 1 or axis is not None:
        raise UnsupportedError("np.trim_zeros of several dimensions", f"{x!r}", "use x[a:b]")
    if not x.shape[0]:
        return x
    there = traced(x) != 0
    place = np.arange(x.shape[0])
    kept = there.any()
    if "f" in trim.lower():
        kept &= place >= hnp.argmax(there)
    if "b" in trim.lower():
        kept &= place <= x.shape[0] - 1 - hnp.argmax(there[::-1])
    return Array.one_of(traced(x)[kept & (place >= 0)], "it is np.trim_zeros", [x.ref] if isinstance(x, Array) else [])


def _common(name: str, arrays: tuple) -> list:
    """Arrays of one dtype and dimension."""
    given = [as_value(v) for v in arrays]
    dtype = np.result_type(*map(kind, given))
    parts = [converted(v, dtype).reshape(-1) for v in given]
    if not all(isinstance(p.shape[0], int) for p in parts):
        raise UnsupportedError(f"np.{name} of arrays whose sizes the program computes", f"{given}", "use a loop")
    return parts


def _firsts(part: Any, assume_unique: bool) -> tuple[Any, Any]:
    """(the sorted elements, which are the first ones of their value)."""
    if assume_unique or not part.shape[0]:
        return part, hnp.ones(part.shape, bool)
    part = hnp.sort(part)
    same = (part[1:] == part[:-1]) | ((part[1:] != part[1:]) & (part[:-1] != part[:-1]))
    return part, hnp.concatenate([hnp.ones(1, bool), ~same])


def _in_other(name: str, wanted: bool) -> Callable:
    """np.intersect1d and np.setdiff1d."""

    def compute(a: Any, b: Any, assume_unique: bool = False, **options: Any) -> Array:
        if any(options.values()):
            raise UnsupportedError(f"np.{name} with {next(iter(options))}=", "it is not supported", "use np.isin")
        first, second = _common(name, (a, b))
        values, kept = _firsts(first, assume_unique and not wanted)
        found = hnp.isin(values, second)
        dtype = values.dtype if wanted else dtype_of(as_value(a))
        return Array.of(values[kept & (found if wanted else ~found)].astype(dtype))

    return compute


def _distinct_of_one(a: Any, b: Any, assume_unique: bool = False) -> Any:
    """np.setxor1d: after a sort of both arrays without their repetitions, the elements whose neighbours differ."""
    values, kept = zip(*[_firsts(part, assume_unique) for part in _common("setxor1d", (a, b))], strict=True)
    dtype = values[0].dtype
    both, valid = hnp.concatenate(list(values)), hnp.concatenate(list(kept))
    if not both.shape[0]:
        return Array.of(both)
    order = hnp.lexsort((both, ~valid)) if dtype.kind != "c" else hnp.lexsort((both.imag, both.real, ~valid))
    both, valid = both[order], valid[order]
    differs = hnp.concatenate([valid[:1], (both[1:] != both[:-1]) | ~valid[1:], valid[:1]])
    differs = differs.at[0].set(True).at[-1].set(True)
    return Array.of(both[valid & differs[1:] & differs[:-1]])


# --- changes in place


def _array(x: Any, name: str) -> Array:
    if not isinstance(x, Array):
        raise UnsupportedError(f"np.{name}", "its first argument is no array of the program", "pass it as an argument")
    return x


def _put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    x = _array(a, "put")
    if mode != "raise":
        raise UnsupportedError(f"np.put with mode={mode!r}", "it is not supported", "compute the indices first")
    places = as_value(ind)
    flat = Array.of(x.traced.reshape(-1))
    index = Array.of(traced(places).reshape(-1)) if isinstance(places, Value) else Array.of(hnp.asarray([places]))
    values = converted(v, x.dtype).reshape(-1)
    count, size = index.shape[0], values.shape[0]
    if count and size:
        flat[index] = Array.of(values[np.arange(count) % size])
        x.write(flat.traced.reshape(x.shape))


def _place(arr: Any, mask: Any, vals: Any) -> None:
    """The k-th selected element becomes the k-th value, which are repeated."""
    x = _array(arr, "place")
    test = traced(as_value(mask)).reshape(-1) != 0
    values = converted(vals, x.dtype).reshape(-1)
    if test.shape[0] != x.size:
        raise ValueError("place: mask and data must be the same size")
    if not values.shape[0]:
        require(~test.any(), "np.place", "no values", "pass at least one value")
        return
    place = (hnp.cumsum(test.astype(np.int64)) - 1) % values.shape[0]
    x.write(hnp.where(test, values[place], x.traced.reshape(-1)).reshape(x.shape))


def _putmask(a: Any, mask: Any, values: Any) -> None:
    """An element at place k becomes the value at k, which are repeated."""
    x = _array(a, "putmask")
    test = traced(as_value(mask)).reshape(-1) != 0
    given = converted(values, x.dtype).reshape(-1)
    if test.shape[0] != x.size:
        raise ValueError("putmask: mask and data must be the same size")
    if given.shape[0]:
        wide = given[np.arange(x.size) % given.shape[0]]
        x.write(hnp.where(test, wide, x.traced.reshape(-1)).reshape(x.shape))


def _put_along_axis(arr: Any, indices: Any, values: Any, axis: Any = -1) -> None:
    x, index = _array(arr, "put_along_axis"), as_value(indices)
    if axis is None:
        x, axis = x.flat, 0
    at = normalize_axis_index(operator.index(axis), x.ndim)
    if index.ndim != x.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    entries: list[Any] = []
    for k, size in enumerate(x.shape):
        entries.append(index if k == at else np.arange(size).reshape([-1 if j == k else 1 for j in range(x.ndim)]))
    x[tuple(entries)] = values


# --- sequences


def _unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * np.pi) -> Any:
    """By NumPy's operations: integers stay integers for an integer as period."""
    x = as_value(p)
    steps = as_value(of_hloom("diff", "numpy", (x,), {"axis": axis}))
    dtype = np.result_type(kind(steps), kind(period))
    limit = elementwise(np.true_divide, (period, 2)) if discont is None else discont
    if dtype.kind in "iu":
        half, rest = divmod(operator.index(period), 2)
        ambiguous = not rest
    else:
        half, ambiguous = elementwise(np.true_divide, (period, 2)), True
    low = elementwise(np.negative, (half,))
    turned = elementwise(np.remainder, (elementwise(np.subtract, (steps, low)), period))
    turned = elementwise(np.add, (turned, low))
    if ambiguous:
        both = elementwise(np.equal, (turned, low)).traced & elementwise(np.greater, (steps, 0)).traced
        turned = np_where(Array.of(both), half, turned)
    change = elementwise(np.subtract, (turned, steps))
    change = np_where(elementwise(np.less, (elementwise(np.absolute, (steps,)), limit)), 0, change)
    total = of_hloom("cumsum", "numpy", (change,), {"axis": axis})
    made = Array.of(converted(x, dtype))
    behind = [slice(None)] * made.ndim
    behind[axis] = slice(1, None)
    made[tuple(behind)] = elementwise(np.add, (x[tuple(behind)], total))
    return made


_PRODUCTS = 64  # powers that np.vander multiplies one by one


def _vander(x: Any, N: Any = None, increasing: bool = False) -> Any:  # noqa: N803  (NumPy's name)
    """Powers as products, in the order in which NumPy multiplies."""
    x = as_value(x)
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    count = x.shape[0] if N is None else operator.index(N)
    if count > _PRODUCTS:
        return of_hloom("vander", "numpy", (x, count, increasing), {})
    dtype = np.result_type(x.dtype, int)
    base = converted(x, dtype)
    powers = [hnp.ones(x.shape, dtype)]
    for _ in range(count - 1):
        powers.append(powers[-1] * base)
    powers = powers[:count] if increasing else powers[:count][::-1]
    return Array.of(hnp.stack(powers, axis=1) if powers else hnp.zeros((x.shape[0], 0), dtype))


SELECTED: dict[str, Callable] = {
    "digitize": _digitize, "tri": _tri, "tril": _triangle("tril"), "triu": _triangle("triu"), "extract": _extract,
    "trim_zeros": _trim_zeros, "setxor1d": _distinct_of_one, "intersect1d": _in_other("intersect1d", True),
    "setdiff1d": _in_other("setdiff1d", False), "put": _put, "place": _place, "putmask": _putmask,
    "put_along_axis": _put_along_axis, "unwrap": _unwrap, "vander": _vander,
}  # fmt: skip

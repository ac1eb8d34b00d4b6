"""Elements by index and indices by value: take, put, nonzero, compress, choose and related functions."""

from __future__ import annotations

import builtins
import functools
import inspect

import numpy as np

from hloom import lax
from hloom.arrays.array import Array
from hloom.arrays.base import ArrayMethods
from hloom.config import config
from hloom.errors import ArgumentError, DTypeError, IndexOutOfBoundsError, ShapeError
from hloom.ir.types import INTEGERS, PRED
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
    canonical_axis,
    constant,
    convert,
    default_int,
    index_of_axis,
    promote_operands,
    reshape_to,
)
from hloom.lax.slicing import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers, gather, scatter
from hloom.numpy.creation import arange, ones
from hloom.numpy.elementwise.logic import truth, where
from hloom.numpy.elementwise.ufuncs import remainder
from hloom.numpy.indexing.nonzero import flatnonzero, nonzero
from hloom.numpy.indexing.subscripts import _wrapped
from hloom.numpy.shaping.manipulation import broadcast_to, ravel, resize
from hloom.tracing.concrete import known, require_known
from hloom.tracing.trace import current_trace

# --- shared helpers -----------------------------------------------------------------------------------------------


def index_operand(indices, name: str):
    """An array of integers. Raises DTypeError."""
    if isinstance(indices, (list, tuple)) and not len(indices):
        return as_operand(np.zeros((0,), default_int()), name)
    indices = as_operand(indices, name)
    if indices.dtype not in INTEGERS:
        raise DTypeError(f"{name} takes integer indexes", f"{indices._shape!r}", "convert them with astype('int32')")
    return indices


def _no_out(name: str, out) -> None:
    if out is not None:
        raise ArgumentError(f"{name} returns a new array", "out=", "use the result; arrays are immutable")


def _in_place(function):
    """Makes inplace=True an error, or, with `hl.config.item_assignment`, modifies the first argument."""
    name, signature = function.__name__, inspect.signature(function)

    @functools.wraps(function)
    def wrapped(*args, **options):
        given = signature.bind(*args, **options)
        arr, inplace = next(iter(given.arguments.values())), given.arguments.get("inplace", True)
        if inplace and not (config.item_assignment and isinstance(arr, Array) and current_trace() is None):
            raise ArgumentError(
                f"{name} cannot change its argument, as arrays are immutable",
                "inplace=True",
                "pass inplace=False and use the result",
            )
        result = function(*args, **options)
        return arr.take_over(result) if inplace else result

    return wrapped


def _moded(indices, extent: int, mode, name: str):
    """(indices, mode of a gather) for NumPy's and JAX's names of modes."""
    if mode == "wrap":
        return remainder(index_of_axis(indices, extent), max(extent, 1)), GatherScatterMode.PROMISE_IN_BOUNDS
    if mode == "raise":
        raise ArgumentError(
            f"{name} with mode='raise'", "compiled functions cannot raise", "one of 'fill', 'clip', 'wrap'"
        )
    return indices, GatherScatterMode.from_any(mode)


# --- take ---------------------------------------------------------------------------------------------------------


def take(
    a,
    indices,
    axis: int | None = None,
    out=None,
    mode=None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value=None,
):
    """Elements of a along an axis (None: of the flat array), at integer indices of any shape.

    mode, for indices out of bounds: 'fill' (the default: fill_value, or NaN, the smallest integer, True), 'clip' or
    'wrap'. Negative indices count from the end. Raises ShapeError, DTypeError, ArgumentError.

    >>> hnp.take(hnp.array([10, 20, 30]), hnp.array([2, 0, 2]))
    Array([30, 10, 30], dtype=int32)
    """
    _no_out("take", out)
    x, indices = as_operand(a, "take"), index_operand(indices, "take")
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonical_axis(axis, x.ndim, "take")
    indices, mode = _moded(indices, x.shape[axis], mode, "take")
    at = (builtins.slice(None),) * axis + (indices,)
    return x.at[at].get(
        mode=mode,
        fill_value=fill_value,
        unique_indices=unique_indices,
        indices_are_sorted=indices_are_sorted,
        wrap_negative_indices=mode is not GatherScatterMode.CLIP,  # as NumPy: clipped to 0
    )


def _along(x, indices, axis, name: str):
    """(x, indices, axis) of equal rank and equal sizes except along the axis."""
    x, indices = as_operand(x, name), index_operand(indices, name)
    if axis is None:
        x, axis = ravel(x), 0
    if x.ndim != indices.ndim:
        raise ShapeError(
            f"{name} takes indexes of the array's rank", f"{x._shape!r} and {indices._shape!r}", "add axes of size 1"
        )
    axis = canonical_axis(axis, x.ndim, name)
    others = broadcast_shapes(name, [tuple(1 if k == axis else d for k, d in enumerate(v.shape)) for v in (x, indices)])
    dims = [(*others[:axis], v.shape[axis], *others[axis + 1 :]) for v in (x, indices)]
    return broadcast_dims_to(x, dims[0]), broadcast_dims_to(indices, dims[1]), axis


def _wrapped_along(indices, extent: int, wrap):
    return as_operand(_wrapped(indices, extent, wrap), "indexing")


def take_along_axis(
    arr, indices, axis: int | None = -1, mode=None, fill_value=None, *, wrap_negative_indices: bool | None = None
):
    """result[.., i, ..] = arr[.., indices[.., i, ..], ..]: the indices are those returned by argsort and argmax.

    indices: integers of arr's rank, other axes broadcast. mode, for indices out of bounds: 'fill' (the default),
    'clip', 'wrap'. Raises ShapeError, DTypeError, ArgumentError.

    >>> x = hnp.array([[3, 1, 2], [6, 5, 4]])
    >>> hnp.take_along_axis(x, hnp.argsort(x, axis=1), axis=1)
    Array([[1, 2, 3],
           [4, 5, 6]], dtype=int32)
    """
    x, indices, axis = _along(arr, indices, axis, "take_along_axis")
    extent = x.shape[axis]
    indices, mode = _moded(indices, extent, mode, "take_along_axis")
    if current_trace() is None and fill_value is None and not any(a.is_sharded for a in (x, indices)):
        values = indices._value()
        if not values.size or (-extent <= values.min() and values.max() < extent):
            return Array(np.take_along_axis(x._value(), values.astype(np.int64), axis), x.weak)
    promised = mode is GatherScatterMode.PROMISE_IN_BOUNDS
    wrap = not promised if wrap_negative_indices is None else wrap_negative_indices
    indices = _wrapped_along(indices, extent, wrap)
    others = tuple(d for d in range(x.ndim) if d != axis)
    numbers = GatherDimensionNumbers((), (axis,), (axis,), others, others)
    if not extent:
        x, extent = lax.pad(x, 0, [(0, int(k == axis), 0) for k in range(x.ndim)]), 1
        indices = lax.full_like(indices, -1)
    sizes = tuple(min(d, 1) if k != axis else 1 for k, d in enumerate(x.shape))
    return gather(x, reshape_to(indices, (*indices.shape, 1)), numbers, sizes, mode=mode, fill_value=fill_value)


# --- put ----------------------------------------------------------------------------------------------------------


@_in_place
def put(a, ind, v, mode=None, *, inplace: bool = True):
    """a with the elements ind of the flat array replaced by v, which is repeated as needed.

    mode, for indices out of bounds: 'clip' or 'wrap'; by default they are dropped. inplace=True needs
    `hl.config.item_assignment`. Raises ArgumentError, DTypeError.

    >>> hnp.put(hnp.array([1, 2, 3]), hnp.array([0, 2]), hnp.array([10, 30]), inplace=False)
    Array([10,  2, 30], dtype=int32)
    """
    x, indices = as_operand(a, "put"), ravel(index_operand(ind, "put"))
    values = ravel(as_operand(v, "put"))
    if not indices.size or not values.size or not x.size:
        return x
    values = _repeated(values, indices.size)
    indices, mode = _moded(indices, x.size, mode, "put")
    wrap = mode is not GatherScatterMode.CLIP
    return reshape_to(ravel(x).at[indices].set(values, mode=mode, wrap_negative_indices=wrap), x.shape)


def _repeated(values, count: int):
    """A flat array repeated to a number of elements."""
    return values if values.size == count else resize(values, (count,))


@_in_place
def put_along_axis(arr, indices, values, axis: int | None, inplace: bool = True, *, mode=None):
    """arr with values at the indices that `take_along_axis` reads. inplace=True needs `hl.config.item_assignment`.

    mode, for indices out of bounds: 'clip' or 'wrap'; by default they are dropped. Raises ShapeError, DTypeError,
    ArgumentError.

    >>> x = hnp.array([[3, 1, 2], [6, 5, 4]])
    >>> hnp.put_along_axis(x, hnp.argmax(x, axis=1, keepdims=True), 0, axis=1, inplace=False)
    Array([[0, 1, 2],
           [0, 5, 4]], dtype=int32)
    """
    original = as_operand(arr, "put_along_axis")
    indices = index_operand(indices, "put_along_axis")
    x = original if axis is not None else ravel(original)
    axis = 0 if axis is None else canonical_axis(axis, x.ndim, "put_along_axis")
    _, indices, _ = _along(x, indices, axis, "put_along_axis")
    values = convert(as_operand(values, "put_along_axis"), x.dtype)
    values = broadcast_dims_to(values, broadcast_shapes("put_along_axis", [indices.shape, values.shape]))
    indices, mode = _moded(indices, x.shape[axis], mode, "put_along_axis")
    indices = _wrapped_along(indices, x.shape[axis], mode is not GatherScatterMode.CLIP)
    others = tuple(d for d in range(x.ndim) if d != axis)
    numbers = ScatterDimensionNumbers((), (axis,), (axis,), others, others)
    found = scatter(x, reshape_to(indices, (*indices.shape, 1)), values, numbers, mode=mode)
    return reshape_to(found, original.shape)


@_in_place
def place(arr, mask, vals, *, inplace: bool = True):
    """arr with the elements where mask is true replaced by successive vals, which repeat.

    inplace=True needs `hl.config.item_assignment`. Raises ArgumentError, ShapeError.

    >>> hnp.place(hnp.array([1, 2, 3]), hnp.array([True, False, True]), hnp.array([10, 30]), inplace=False)
    Array([10,  2, 30], dtype=int32)
    """
    x, values = as_operand(arr, "place"), ravel(as_operand(vals, "place"))
    condition = ravel(truth(as_operand(mask, "place")))
    if condition.size != x.size:
        raise ShapeError(
            "place takes a mask of the array's size", f"{x._shape!r}, mask of {condition.size}", "match them"
        )
    if not values.size:
        if x.size:
            raise ShapeError("place takes values", "none", "pass at least one")
        return x
    number = lax.cumsum(convert(condition, default_int()), axis=0)
    turn = lax.sub(number, 1)

    chosen = values.at[remainder(turn, values.size)].get(mode="promise_in_bounds")
    return reshape_to(where(condition, convert(chosen, x.dtype), ravel(x)), x.shape)


def putmask(a, mask, values):
    """a with the elements where mask is true replaced by those of values at the same flat index, which repeat."""
    x = as_operand(a, "putmask")
    values = _repeated(ravel(as_operand(values, "putmask")), x.size)
    return where(
        broadcast_to(truth(as_operand(mask, "putmask")), x.shape), reshape_to(convert(values, x.dtype), x.shape), x
    )


# --- selection ----------------------------------------------------------------------------------------------------


def compress(condition, a, axis: int | None = None, *, size: int | None = None, fill_value=0, out=None):
    """The slices of a along an axis (None: elements of the flat array) where condition, of rank 1, is true.

    size: the number of slices; missing ones are fill_value. Without size, the result has a dynamic size under jit. The
    condition may be shorter than the axis. Raises ShapeError, TracerConversionError, ArgumentError.

    >>> hnp.compress(hnp.array([True, False, True]), hnp.array([1, 2, 3]))
    Array([1, 3], dtype=int32)
    """
    _no_out("compress", out)
    x, condition = as_operand(a, "compress"), truth(as_operand(condition, "compress"))
    if condition.ndim != 1:
        raise ShapeError("compress takes a condition of rank 1", f"{condition._shape!r}", "ravel it")
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonical_axis(axis, x.ndim, "compress")
    if condition.shape[0] > x.shape[axis]:
        surplus = known(condition[x.shape[axis] :])
        if surplus is None or surplus.any():
            raise IndexOutOfBoundsError(
                f"compress takes a condition no longer than the axis ({x.shape[axis]})",
                f"{condition._shape!r}",
                "cut the condition",
            )
        condition = condition[: x.shape[axis]]
    places = flatnonzero(condition, size=size, fill_value=x.shape[axis])
    at = (builtins.slice(None),) * axis + (places,)
    return x.at[at].get(mode="fill", fill_value=fill_value)


def extract(condition, arr, *, size: int | None = None, fill_value=0):
    """The elements of arr where condition, of the same size, is true. size and fill_value as in `compress`.

    >>> x = hnp.arange(6)
    >>> hnp.extract(x % 2 == 0, x)
    Array([0, 2, 4], dtype=int32)
    """
    return compress(ravel(as_operand(condition, "extract")), ravel(arr), size=size, fill_value=fill_value)


def choose(a, choices, out=None, mode: str = "raise"):
    """result[i] = choices[a[i]][i], element by element; a and the choices broadcast together.

    mode, for values out of range: 'wrap', 'clip', or 'raise' (which needs a concrete a).
    Raises ArgumentError, DTypeError, IndexOutOfBoundsError, ShapeError, TracerConversionError.

    >>> hnp.choose(hnp.array([0, 1, 0]), [hnp.array([1, 2, 3]), hnp.array([10, 20, 30])])
    Array([ 1, 20,  3], dtype=int32)
    """
    _no_out("choose", out)
    which = index_operand(a, "choose")
    if isinstance(choices, (ArrayMethods, np.ndarray)):
        stacked = as_operand(choices, "choose")
        choices = [stacked[k] for k in range(stacked.shape[0])]
    if not len(choices):
        raise ArgumentError("choose takes at least one choice", "none", "pass a list of arrays")
    arrays, _ = promote_operands("choose", list(choices), broadcast=False)
    dims = broadcast_shapes("choose", [which.shape, *(x.shape for x in arrays)])
    count = len(arrays)
    if mode == "raise":
        value = require_known(which, "choose", "mode='raise' needs concrete values", "pass mode='clip' or mode='wrap'")
        if value.size and not (0 <= value.min() and value.max() < count):
            raise IndexOutOfBoundsError(
                f"choose among {count} choices", f"numbers from {value.min()} to {value.max()}", "pass mode='clip'"
            )
    elif mode == "wrap":
        which = remainder(which, count)
    elif mode == "clip":
        which = lax.clamp(constant(0, which.dtype), which, constant(count - 1, which.dtype))
    else:
        raise ArgumentError("the mode of choose", f"{mode!r}", "one of 'raise', 'wrap', 'clip'")
    which = broadcast_dims_to(which, dims)
    result = broadcast_dims_to(arrays[-1], dims)
    for k in reversed(range(count - 1)):
        result = where(lax.eq(which, lax.full_like(which, k)), broadcast_dims_to(arrays[k], dims), result)
    return result


# --- index grids --------------------------------------------------------------------------------------------------


def ix_(*args):
    """Arrays of rank 1 reshaped to index a grid together: x[ix_(rows, columns)]. Masks become indices.

    Raises ShapeError.

    >>> x = hnp.arange(9).reshape(3, 3)
    >>> x[hnp.ix_(hnp.array([0, 2]), hnp.array([1, 2]))]
    Array([[1, 2],
           [7, 8]], dtype=int32)
    """
    results = []
    for k, one in enumerate(args):
        x = (
            as_operand(one, "ix_")
            if not (isinstance(one, (list, tuple)) and not len(one))
            else index_operand(one, "ix_")
        )
        if x.ndim != 1:
            raise ShapeError("ix_ takes arrays of rank 1", f"{x._shape!r}", "ravel it")
        if x.dtype == PRED:
            x = nonzero(x)[0]
        results.append(reshape_to(x, tuple(x.shape[0] if j == k else 1 for j in range(len(args)))))
    return tuple(results)


def _static_places(mask: np.ndarray):
    return tuple(Array(p.astype(default_int())) for p in np.nonzero(mask))


def tril_indices(n: int, k: int = 0, m: int | None = None):
    """(rows, columns) of the elements of an (n, m) matrix on and below the k-th diagonal.

    >>> hnp.tril_indices(2)
    (Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    return _static_places(np.tri(n, n if m is None else m, k, dtype=bool))


def triu_indices(n: int, k: int = 0, m: int | None = None):
    """(rows, columns) of the elements of an (n, m) matrix on and above the k-th diagonal.

    >>> hnp.triu_indices(2)
    (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    return _static_places(~np.tri(n, n if m is None else m, k - 1, dtype=bool))


def _matrix_extents(arr, name: str):
    dims = tuple(arr.shape)
    if len(dims) != 2:
        raise ShapeError(f"{name} takes a matrix", f"an array of rank {len(dims)}", "pass an array with two axes")
    return dims


def tril_indices_from(arr, k: int = 0):
    """`tril_indices` for the sizes of a matrix. Raises ShapeError.

    >>> x = hnp.arange(4).reshape(2, 2)
    >>> x[hnp.tril_indices_from(x)]
    Array([0, 2, 3], dtype=int32)
    """
    n, m = _matrix_extents(arr, "tril_indices_from")
    return tril_indices(n, k, m)


def triu_indices_from(arr, k: int = 0):
    """`triu_indices` for the sizes of a matrix. Raises ShapeError.

    >>> x = hnp.arange(4).reshape(2, 2)
    >>> x[hnp.triu_indices_from(x)]
    Array([0, 1, 3], dtype=int32)
    """
    n, m = _matrix_extents(arr, "triu_indices_from")
    return triu_indices(n, k, m)


def diag_indices(n: int, ndim: int = 2):
    """The indices of the main diagonal of an array with ndim axes of size n. Raises ArgumentError.

    >>> hnp.diag_indices(2)
    (Array([0, 1], dtype=int32), Array([0, 1], dtype=int32))
    """
    if n < 0 or ndim < 0:
        raise ArgumentError("diag_indices takes n and ndim that are not negative", f"{n}, {ndim}", "check them")
    return (arange(n, dtype=default_int()),) * ndim


def diag_indices_from(arr):
    """`diag_indices` for an array of at least two axes, all of one size. Raises ShapeError.

    >>> x = hnp.ones((2, 2))
    >>> x.at[hnp.diag_indices_from(x)].set(0)
    Array([[0., 1.],
           [1., 0.]], dtype=float32)
    """
    dims = tuple(arr.shape)
    if len(dims) < 2 or len(set(dims)) != 1:
        raise ShapeError("diag_indices_from takes two or more axes of one size", f"{dims}", "slice it to a cube")
    return diag_indices(dims[0], len(dims))


def mask_indices(n: int, mask_func, k: int = 0, *, size: int | None = None):
    """The indices where mask_func(ones of (n, n), k) is nonzero. size as in `nonzero`.

    >>> hnp.mask_indices(2, hnp.triu)
    (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    return nonzero(mask_func(ones((n, n)), k), size=size)

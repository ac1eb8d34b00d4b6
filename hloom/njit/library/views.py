"""NumPy's functions that return views: elements of the same memory, in other places."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from hloom import lax
from hloom import numpy as hnp
from hloom.errors import ArgumentError, UnsupportedError
from hloom.njit.values import Array, Number, Value, as_value

__all__ = ["VIEWS", "ravel", "reshaped", "viewed"]


def _array(x: Any) -> Array:
    """An array, whose numbers have no dimensions."""
    x = as_value(x)
    return x if isinstance(x, Array) else Array.of(hnp.asarray(np.asarray(x)) if not isinstance(x, Value) else x.traced)


def reshaped(x: Any, shape: Any, order: str = "C") -> Any:
    x = _array(x)
    if _order(x, order) == "C":
        return x.reshape(shape)
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return x.transpose().reshape(sizes[::-1]).transpose()


def ravel(x: Any, order: str = "C") -> Array:
    """The elements in one dimension: a view where they lie in order without gaps, otherwise a copy."""
    x = _array(x)
    if _order(x, order) == "F":
        x = x.transpose()
    if x.strided and x.steps:  # where NumPy has these elements is not known
        return Array.one_of(x.traced.reshape(-1), "it is x.ravel() of a part of an argument that is not in C order",
                            [x.ref])  # fmt: skip
    if x.layout is not None and (x.strided or not x.layout.flags.c_contiguous):
        return Array.of(x.traced.reshape(-1))
    return x.reshape(-1)


def _order(x: Array, order: str) -> str:
    """The order of elements, C or F. Raises UnsupportedError where it is that of an argument's memory."""
    if order in ("A", "K") and (x.strided or x.layout is None or not x.layout.flags.c_contiguous):
        raise UnsupportedError(f"order={order!r} of an array that is not in C order", f"{x!r}", "use order='C' or 'F'")
    if order not in ("C", "F", "A", "K"):
        raise ArgumentError("the order of elements", f"{order!r}", "use 'C' or 'F'")
    return "F" if order == "F" else "C"


def _transpose(x: Any, axes: Any = None) -> Any:
    return _array(x).transpose(*(() if axes is None else (tuple(axes),)))


def _flip(x: Any, axis: Any = None) -> Any:
    x = _array(x)
    axes = range(x.ndim) if axis is None else normalize_axis_tuple(axis, x.ndim)
    return x[tuple([slice(None, None, -1) if k in axes else slice(None) for k in range(x.ndim)])]


def _squeeze(x: Any, axis: Any = None) -> Any:
    x = _array(x)
    axes = [k for k, n in enumerate(x.shape) if n == 1] if axis is None else normalize_axis_tuple(axis, x.ndim)
    if any(x.shape[k] != 1 for k in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return x[(*[0 if k in axes else slice(None) for k in range(x.ndim)], ...)]


def _expand_dims(x: Any, axis: Any) -> Any:
    x = _array(x)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    axes = normalize_axis_tuple(axis, x.ndim + count)
    return x[(*[None if k in axes else slice(None) for k in range(x.ndim + count)], ...)]


def _swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    x = _array(x)
    order = list(range(x.ndim))
    one, other = [normalize_axis_index(operator.index(a), x.ndim) for a in (axis1, axis2)]
    order[one], order[other] = other, one
    return x.transpose(tuple(order))


def _moved(x: Array, source: Any, destination: Any) -> tuple[int, ...]:
    """The order of axes after np.moveaxis: that of an array whose sizes are the axes' numbers."""
    return tuple([n - 1 for n in np.moveaxis(np.empty(range(1, x.ndim + 1), bool), source, destination).shape])


def _rollaxis(x: Any, axis: int, start: int = 0) -> Any:
    x = _array(x)
    named = np.rollaxis(np.empty(range(1, x.ndim + 1), bool), axis, start)
    return x.transpose(tuple([n - 1 for n in named.shape]))


def _matrix_transpose(x: Any) -> Any:
    return _swapaxes(x, -1, -2)


def _rot90(x: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    x = _array(x)
    if len(axes) != 2 or len(set(normalize_axis_tuple(axes, x.ndim))) != 2:
        raise ValueError("Axes must be different.")
    k = operator.index(k) % 4
    if not k:
        return x[...]
    if k == 2:
        return _flip(_flip(x, axes[0]), axes[1])
    order = list(range(x.ndim))
    order[axes[0]], order[axes[1]] = order[axes[1]], order[axes[0]]
    return _flip(x, axes[1]).transpose(order) if k == 1 else _flip(x.transpose(order), axes[1])


def _at_least(rank: int) -> Callable:
    def function(*arrays: Any) -> Any:
        made = []
        for x in map(_array, arrays):
            if x.ndim < rank:
                behind = rank == 3 and x.ndim >= 1  # np.atleast_3d puts one axis of size 1 behind
                before = rank - x.ndim - behind
                x = x[(*[None] * before, *[slice(None)] * x.ndim, *[None] * behind)]
            made.append(x)
        return made[0] if len(made) == 1 else tuple(made)

    return function


def _array_split(x: Any, parts: Any, axis: int = 0) -> list:
    x = _array(x)
    axis = normalize_axis_index(operator.index(axis), x.ndim)
    size = x.shape[axis]
    if isinstance(parts, (tuple, list, np.ndarray, Array)):
        ends = [operator.index(part) for part in parts]
    else:
        count = operator.index(parts)
        if count <= 0:
            raise ValueError("number sections must be larger than 0.")
        small, more = divmod(size, count)
        ends = np.cumsum([small + (k < more) for k in range(count)])[:-1].tolist()
    front = [slice(None)] * axis
    return [x[(*front, slice(a, b))] for a, b in zip([0, *ends], [*ends, size], strict=True)]


def _split(x: Any, parts: Any, axis: int = 0) -> list:
    x = _array(x)
    if not isinstance(parts, (tuple, list, np.ndarray, Array)) and x.shape[axis] % operator.index(parts):
        raise ValueError("array split does not result in an equal division")
    return _array_split(x, parts, axis)


def _split_along(axis: int, least: int) -> Callable:
    def function(x: Any, parts: Any) -> list:
        x = _array(x)
        if x.ndim < least:
            raise ValueError(f"this split only works on arrays of {least} or more dimensions")
        return _split(x, parts, 0 if x.ndim == 1 else axis)

    return function


def _read_only(made: Any, x: Array, what: str) -> Array:
    """A view that NumPy does not let write either: a copy that is read as long as the array is not changed."""
    return Array.one_of(made, f"it is {what}, which is read-only", [x.ref])


def _broadcast_to(x: Any, shape: Any, **options: Any) -> Array:
    x = _array(x)
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return _read_only(hnp.broadcast_to(x.traced, tuple(map(operator.index, sizes))), x, "np.broadcast_to")


def _broadcast_arrays(*arrays: Any, **options: Any) -> tuple:
    given = [_array(x) for x in arrays]
    shape = np.broadcast_shapes(*[x.shape for x in given])
    return tuple([x if x.shape == shape else _broadcast_to(x, shape) for x in given])


def _diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    x = _array(x)
    return _read_only(hnp.diagonal(x.traced, operator.index(offset), axis1, axis2), x, "np.diagonal")


def _sliding_window_view(x: Any, window_shape: Any, axis: Any = None, **options: Any) -> Array:
    """The windows of an array, gathered."""
    x = _array(x)
    sizes = tuple(map(operator.index, window_shape)) if isinstance(window_shape, (tuple, list)) else (
        operator.index(window_shape),)  # fmt: skip
    if any(n < 0 for n in sizes):
        raise ValueError("`window_shape` cannot contain negative values")
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim, allow_duplicate=True)
    if len(sizes) != len(axes):
        raise ValueError(f"window_shape and axis must have the same length; got {len(sizes)} and {len(axes)}")
    made = x.traced
    for size, place in zip(sizes, axes, strict=True):
        count = made.shape[place] - size + 1
        if count <= 0:
            raise ValueError("window shape cannot be larger than input array shape")
        windows = np.arange(count)[:, None] + np.arange(size)
        made = hnp.moveaxis(hnp.take(made, hnp.asarray(windows), axis=place), place + 1, -1)
    return _read_only(made, x, "np.lib.stride_tricks.sliding_window_view")


def _real_bits(x: Any) -> Any:
    """The parts of complex numbers side by side; a number of them as two."""
    if x.dtype.kind != "c":
        return x
    parts = hnp.stack([x.real, x.imag], axis=-1)
    return parts.reshape((*x.shape[:-1], x.shape[-1] * 2)) if x.ndim else parts


def _of_bits(x: Any, dtype: np.dtype) -> Any:
    """Real numbers whose bits are read as those of a dtype, along the last axis."""
    if dtype.kind == "c":
        pairs = _of_bits(x, np.dtype(f"f{dtype.itemsize // 2}"))
        return lax.complex(pairs[..., ::2], pairs[..., 1::2])
    size = np.dtype(x.dtype).itemsize
    if dtype.itemsize > size:
        parts = dtype.itemsize // size
        return lax.bitcast_convert_type(x.reshape((*x.shape[:-1], x.shape[-1] // parts, parts)), dtype)
    found = lax.bitcast_convert_type(x, dtype)
    return found.reshape((*x.shape[:-1], x.shape[-1] * (size // dtype.itemsize))) if dtype.itemsize < size else found


def viewed(x: Any, dtype: Any = None, **options: Any) -> Any:
    """The same bits in another dtype. An array is a copy, which is read as long as the array is not changed."""
    dtype = np.dtype(x.dtype if dtype is None else dtype)
    if "b" in (dtype.kind, x.dtype.kind) and dtype != x.dtype:
        raise UnsupportedError(f"x.view({dtype}) in a compiled NumPy program", f"{x!r}", "use x != 0, or astype")
    if dtype == x.dtype:
        return x if isinstance(x, Number) else x[...]
    if "c" in (dtype.kind, x.dtype.kind) and not (isinstance(x, Array) and x.ndim):
        raise UnsupportedError(f"x.view({dtype}) of a number", f"{x!r}", "use its real and imaginary parts")
    parts, rest = divmod(max(x.itemsize, dtype.itemsize), min(x.itemsize, dtype.itemsize))
    if parts > 1 and (isinstance(x, Number) or not x.ndim):
        raise ValueError("Changing the dtype of a 0d array is only supported if the itemsize is unchanged")
    if rest or (parts > 1 and x.strided):
        raise UnsupportedError(f"x.view({dtype}) in a compiled NumPy program", f"{x!r}",
                               "pass an array in C order, np.ascontiguousarray(x)")  # fmt: skip
    if dtype.itemsize > x.itemsize and x.shape[-1] % parts:
        raise ValueError("When changing to a larger dtype, its size must be a divisor of the total size in bytes of "
                         "the last axis of the array.")  # fmt: skip
    found = _of_bits(_real_bits(x.traced), dtype)
    if isinstance(x, Number):
        return Number(found)
    return Array.one_of(found, "it is a view of an array in another dtype", [x.ref])


VIEWS: dict[str, Callable] = {
    "reshape": lambda x, shape, order="C", **o: reshaped(x, shape, order),
    "ravel": ravel, "transpose": _transpose, "permute_dims": _transpose, "flip": _flip, "squeeze": _squeeze,
    "flipud": lambda x: _flip(x, 0), "fliplr": lambda x: _flip(x, 1), "rot90": _rot90,
    "expand_dims": _expand_dims, "swapaxes": _swapaxes, "rollaxis": _rollaxis,
    "moveaxis": lambda x, source, destination: _array(x).transpose(_moved(_array(x), source, destination)),
    "matrix_transpose": _matrix_transpose, "diagonal": _diagonal,
    **{f"atleast_{n}d": _at_least(n) for n in (1, 2, 3)},
    "split": _split, "array_split": _array_split, "vsplit": _split_along(0, 2), "hsplit": _split_along(1, 1),
    "dsplit": _split_along(2, 3),
    "broadcast_to": _broadcast_to, "broadcast_arrays": _broadcast_arrays,
    "sliding_window_view": _sliding_window_view,
}  # fmt: skip

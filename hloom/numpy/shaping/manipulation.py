"""Shapes and axes: reshape, transpose, broadcast, join, split."""

from __future__ import annotations

import builtins
import itertools

import numpy as np

from hloom import lax
from hloom.arrays.base import ArrayMethods
from hloom.arrays.keys import KeyArray
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.sizes.expressions import greatest, least
from hloom.ir.types import as_dtype
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    convert,
    full,
    product,
    promote_operands,
    reshape_to,
    static_size,
    whole_number,
)
from hloom.lax.operands import broadcast_shapes as common_shape


def _sequence(arrays, name: str) -> list:
    if isinstance(arrays, (np.ndarray, ArrayMethods)):
        return list(arrays)
    if not isinstance(arrays, (list, tuple)):
        raise ArgumentError(f"{name} takes a list of arrays", f"{type(arrays).__name__}", "put the arrays into a list")
    if not arrays:
        raise ArgumentError(f"{name} takes at least one array", "an empty list", "pass one or more arrays")
    return list(arrays)


# --- shape --------------------------------------------------------------------------------------------------------


def _order(rest, order, name):
    """(sizes or axes passed as separate arguments, the order)."""
    if rest and isinstance(rest[-1], str):
        rest, order = rest[:-1], rest[-1]
    if order not in ("C", "F", "A", "K", None):
        raise ArgumentError(f"{name} takes the order 'C' or 'F'", f"{order!r}", "leave it out for row-major order")
    return rest, "F" if order == "F" else "C"


@takes_out_sharding
def reshape(a, shape, *rest, order: str = "C", copy: bool | None = None, out_sharding=None):
    """a with another shape; one size may be -1 and is inferred. Also reshape(a, 2, 3).

    order 'F' reads and writes with the first axis fastest. Raises ShapeError, ArgumentError.

    >>> hnp.reshape(hnp.arange(6), (2, -1))
    Array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    """
    x = as_operand(a, "reshape")
    rest, order = _order(rest, order, "reshape")
    dims = (shape, *rest) if rest else shape
    if isinstance(dims, (np.ndarray, ArrayMethods)) and dims.ndim == 1:
        dims = tuple(dims)
    if not isinstance(dims, (tuple, list)):
        dims = (dims,)
    dims = [static_size(d, "reshape") for d in dims]
    unknown = [k for k, d in enumerate(dims) if d == -1]
    rest_size = product(d for d in dims if d != -1)
    possible = not unknown or (x.size % rest_size == 0 if rest_size else x.size == 0)
    if len(unknown) > 1 or any(d < -1 for d in dims) or (unknown and not (possible and rest_size)):
        raise ShapeError(
            f"reshape to {tuple(dims)}",
            f"{x._shape!r} ({x.size} elements)",
            "pass sizes whose product is the operand's size; at most one may be -1",
        )
    if unknown:
        dims[unknown[0]] = x.size // rest_size
    elif rest_size != x.size:
        raise ShapeError(
            f"reshape to {tuple(dims)}, {rest_size} elements",
            f"{x._shape!r} ({x.size} elements)",
            "pass sizes whose product is the operand's size; one may be -1",
        )
    if order == "F":
        return _reversed_axes(reshape_to(_reversed_axes(x), tuple(reversed(dims))))
    return reshape_to(x, tuple(dims))


def _reversed_axes(x):
    return lax.transpose(x, tuple(reversed(range(x.ndim))))


@takes_out_sharding
def ravel(a, order: str = "C", *, out_sharding=None):
    """a as a vector, row-major (order 'F': column-major).

    >>> hnp.ravel(hnp.array([[1, 2], [3, 4]]))
    Array([1, 2, 3, 4], dtype=int32)
    """
    x = as_operand(a, "ravel")
    return reshape(x, (x.size,), order=order)


def shape(a) -> tuple[int, ...]:
    """The shape of an array, of nested lists, of random keys or of a ShapeDtypeStruct; () of None.

    >>> hnp.shape([[1, 2], [3, 4]])
    (2, 2)
    """
    return _shape_of(a, "shape")


def _shape_of(a, name: str) -> tuple[int, ...]:
    if a is None:
        return ()
    return a.shape if isinstance(a, (KeyArray, ShapeDtypeStruct)) else as_operand(a, name).shape


def ndim(a) -> int:
    """The number of axes, of what `shape` accepts.

    >>> hnp.ndim([[1, 2], [3, 4]])
    2
    """
    return len(_shape_of(a, "ndim"))


def size(a, axis=None) -> int:
    """The number of elements, or the size along an axis (or axes). Raises ShapeError.

    >>> hnp.size(hnp.zeros((2, 3)))
    6
    """
    dims = _shape_of(a, "size")
    return product(dims[k] for k in canonical_axes(axis, len(dims), "size"))


def squeeze(a, axis=None):
    """a without its axes of size 1, or without these. Raises ShapeError.

    >>> hnp.squeeze(hnp.zeros((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    x = as_operand(a, "squeeze")
    if axis is None:
        axis = tuple(k for k, d in enumerate(x.shape) if d == 1)
    return lax.squeeze(x, axis)


def expand_dims(a, axis):
    """a with new axes of size 1 at these positions of the result. Raises ShapeError.

    >>> hnp.expand_dims(hnp.zeros((2, 3)), axis=1).shape
    (2, 1, 3)
    """
    return lax.expand_dims(a, axis)


@takes_out_sharding
def broadcast_to(array, shape, *, out_sharding=None):
    """array with this shape, by NumPy's broadcasting. Raises ShapeError.

    >>> hnp.broadcast_to(hnp.array([1, 2]), (2, 2))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    x, dims = as_operand(array, "broadcast_to"), canonical_shape(shape, "broadcast_to")
    if common_shape("broadcast_to", [x.shape, dims]) != dims:
        raise ShapeError(
            f"broadcast_to to {dims}", f"{x._shape!r}, which would shrink", "each size must be equal, or 1 before"
        )
    return broadcast_dims_to(x, dims)


def broadcast_arrays(*args):
    """A list of all arrays, broadcast to their common shape. Raises ShapeError.

    >>> a, b = hnp.broadcast_arrays(hnp.zeros((3, 1)), hnp.zeros(4))
    >>> a.shape, b.shape
    ((3, 4), (3, 4))
    """
    arrays = [as_operand(a, "broadcast_arrays") for a in args]
    if not arrays:
        return []
    dims = common_shape("broadcast_arrays", [a.shape for a in arrays])
    return [broadcast_dims_to(a, dims) for a in arrays]


def broadcast_shapes(*shapes) -> tuple[int, ...]:
    """The common shape to which these shapes broadcast. Raises ShapeError.

    >>> hnp.broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    return common_shape("broadcast_shapes", [canonical_shape(s, "broadcast_shapes") for s in shapes] or [()])


def _at_least(name: str, rank: int, place):
    def function(*arys):
        results = [reshape_to(x, place(x.shape)) for x in (as_operand(a, name) for a in arys)]
        return results[0] if len(results) == 1 else results

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Arrays with axes of size 1 added up to rank {rank}; a list of them for several arguments."
    return function


atleast_1d = _at_least("atleast_1d", 1, lambda dims: dims or (1,))
atleast_2d = _at_least("atleast_2d", 2, lambda dims: (1,) * (2 - len(dims)) + dims)
atleast_3d = _at_least(
    "atleast_3d", 3, lambda dims: dims if len(dims) > 2 else (1, *(dims or (1,)), 1) if len(dims) < 2 else (*dims, 1)
)

# --- order of axes ------------------------------------------------------------------------------------------------


def transpose(a, axes=None, *rest):
    """a with its axes in this order (reversed by default). Also transpose(a, 1, 0). Raises ShapeError.

    >>> hnp.permute_dims(hnp.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    x = as_operand(a, "transpose")
    if axes is None:
        return _reversed_axes(x)
    return lax.transpose(x, (axes, *rest) if not isinstance(axes, (tuple, list)) else axes)


permute_dims = transpose


def moveaxis(a, source, destination):
    """a with axes moved to new positions; the others keep their order. Raises ShapeError.

    >>> hnp.moveaxis(hnp.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = as_operand(a, "moveaxis")
    source = canonical_axes(source, x.ndim, "moveaxis")
    destination = canonical_axes(destination, x.ndim, "moveaxis")
    if len(source) != len(destination):
        raise ShapeError("moveaxis pairs axes", f"{source} and {destination}", "name as many on both sides")
    order = [k for k in range(x.ndim) if k not in source]
    for target, axis in sorted(zip(destination, source, strict=True)):
        order.insert(target, axis)
    return lax.transpose(x, order)


def rollaxis(a, axis: int, start: int = 0):
    """a with one axis moved before axis start. Raises ShapeError.

    >>> hnp.rollaxis(hnp.zeros((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    x = as_operand(a, "rollaxis")
    axis = canonical_axis(axis, x.ndim, "rollaxis")
    start = start + x.ndim if start < 0 else start
    return moveaxis(x, axis, start - 1 if axis < start else start)


def swapaxes(a, axis1: int, axis2: int):
    """a with two axes exchanged. Raises ShapeError.

    >>> hnp.swapaxes(hnp.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    x = as_operand(a, "swapaxes")
    first, second = (canonical_axis(k, x.ndim, "swapaxes") for k in (axis1, axis2))
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return lax.transpose(x, order)


# --- joining and splitting ----------------------------------------------------------------------------------------


def concatenate(arrays, axis: int | None = 0, dtype=None):
    """The arrays concatenated along an axis (None: all flattened). Promotes. Raises ShapeError.

    >>> hnp.concatenate([hnp.array([[1, 2]]), hnp.array([[3, 4], [5, 6]])])
    Array([[1, 2],
           [3, 4],
           [5, 6]], dtype=int32)
    """
    arrays, weak = promote_operands("concatenate", _sequence(arrays, "concatenate"), broadcast=False)
    if axis is None:
        arrays, axis = [reshape_to(x, (x.size,)) for x in arrays], 0
    first = arrays[0]
    axis = canonical_axis(axis, first.ndim, "concatenate")
    for x in arrays:
        if x.ndim != first.ndim or x.shape[:axis] + x.shape[axis + 1 :] != first.shape[:axis] + first.shape[axis + 1 :]:
            raise ShapeError(
                f"concatenate along axis {axis} takes arrays that agree in all other axes",
                f"{first._shape!r} and {x._shape!r}",
                "reshape, slice or broadcast the odd one",
            )
    result = lax.concatenate(arrays, axis)
    return convert(result, result.dtype if dtype is None else as_dtype(dtype), weak and dtype is None)


concat = concatenate


def stack(arrays, axis: int = 0, out=None, dtype=None):
    """Arrays of equal shape stacked along a new axis. Promotes. Raises ShapeError, ArgumentError.

    >>> hnp.stack([hnp.array([1, 2]), hnp.array([3, 4])], axis=1)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    arrays, weak = promote_operands("stack", _sequence(arrays, "stack"), broadcast=False)
    first = arrays[0]
    for x in arrays:
        if x.shape != first.shape:
            raise ShapeError(
                "stack takes arrays of one shape", f"{first._shape!r} and {x._shape!r}", "broadcast or pad them first"
            )
    axis = canonical_axis(axis, first.ndim + 1, "stack")
    dims = (*first.shape[:axis], 1, *first.shape[axis:])
    result = lax.concatenate([reshape_to(x, dims) for x in arrays], axis)
    return convert(result, result.dtype if dtype is None else as_dtype(dtype), weak and dtype is None)


def unstack(x, /, *, axis: int = 0) -> tuple:
    """The slices of x along an axis, which disappears. Raises ShapeError.

    >>> first, second = hnp.unstack(hnp.array([[1, 2], [3, 4]]))
    >>> second
    Array([3, 4], dtype=int32)
    """
    x = as_operand(x, "unstack")
    axis = canonical_axis(axis, x.ndim, "unstack")
    return tuple(lax.index_in_dim(x, k, axis, keepdims=False) for k in range(x.shape[axis]))


def hstack(tup, dtype=None):
    """Concatenation along axis 1 (axis 0 for vectors). Raises ShapeError.

    >>> hnp.hstack((hnp.array([1, 2]), hnp.array([3])))
    Array([1, 2, 3], dtype=int32)
    """
    arrays = [atleast_1d(x) for x in _sequence(tup, "hstack")]
    return concatenate(arrays, 0 if arrays[0].ndim == 1 else 1, dtype)


def vstack(tup, dtype=None):
    """Concatenation along axis 0; vectors are rows. Raises ShapeError.

    >>> hnp.vstack((hnp.array([1, 2]), hnp.array([3, 4])))
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    return concatenate([atleast_2d(x) for x in _sequence(tup, "vstack")], 0, dtype)


def dstack(tup, dtype=None):
    """Concatenation along axis 2. Raises ShapeError.

    >>> hnp.dstack((hnp.array([1, 2]), hnp.array([3, 4]))).shape
    (1, 2, 2)
    """
    return concatenate([atleast_3d(x) for x in _sequence(tup, "dstack")], 2, dtype)


def column_stack(tup):
    """Vectors as the columns of a matrix; matrices as they are. Raises ShapeError.

    >>> hnp.column_stack((hnp.array([1, 2]), hnp.array([3, 4])))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    arrays = [as_operand(x, "column_stack") for x in _sequence(tup, "column_stack")]
    return concatenate([x if x.ndim > 1 else reshape_to(x, (x.size, 1)) for x in arrays], 1)


def block(arrays):
    """An array assembled from nested lists of blocks: the innermost along the last axis. Raises ShapeError.

    >>> a = hnp.ones((1, 2), dtype=int)
    >>> hnp.block([[a, 2 * a], [3 * a, 4 * a]])
    Array([[1, 1, 2, 2],
           [3, 3, 4, 4]], dtype=int32)
    """

    def depth(value):
        return 1 + builtins.max(depth(v) for v in value) if isinstance(value, list) and value else 0

    def leaves(value):
        return [x for v in value for x in leaves(v)] if isinstance(value, list) else [as_operand(value, "block")]

    def join(value, level):
        if not isinstance(value, list):
            x = as_operand(value, "block")
            return reshape_to(x, (1,) * (rank - x.ndim) + x.shape)
        return concatenate([join(v, level + 1) for v in value], rank - levels + level)

    levels = depth(arrays)
    rank = builtins.max(levels, builtins.max(x.ndim for x in leaves(arrays)))
    return join(arrays, 0)


def append(arr, values, axis: int | None = None):
    """Concatenation of two arrays, flattened unless an axis is given. Raises ShapeError.

    >>> hnp.append(hnp.array([1, 2]), 3)
    Array([1, 2, 3], dtype=int32)
    """
    return concatenate([arr, values], axis)


def _split(name: str, a, indices_or_sections, axis: int, equal: bool) -> list:
    x = as_operand(a, name)
    axis = canonical_axis(axis, x.ndim, name)
    extent = x.shape[axis]
    if isinstance(indices_or_sections, (list, tuple)) or np.ndim(indices_or_sections):
        cuts = [static_size(k, name, "index") for k in indices_or_sections]
        edges = [least(greatest(k + extent if k < 0 else k, 0), extent) for k in cuts]
        bounds = list(itertools.pairwise([0, *edges, extent]))
    else:
        count = whole_number(indices_or_sections, name, "number of sections")
        if count < 1 or (equal and extent % count):
            raise ShapeError(
                f"{name} into {count} equal sections",
                f"{x._shape!r} with size {extent} along axis {axis}",
                "choose a divisor of the size, or use hnp.array_split",
            )
        size, longer = divmod(extent, count)
        edges = [k * size + builtins.min(k, longer) for k in range(count + 1)]
        bounds = list(itertools.pairwise(edges))
    return [lax.slice_in_dim(x, a, greatest(a, b), axis=axis) for a, b in bounds]


def split(ary, indices_or_sections, axis: int = 0):
    """A list of equal parts along an axis, or of the parts between these indices. Raises ShapeError.

    >>> hnp.split(hnp.arange(6), [2, 5])
    [Array([0, 1], dtype=int32), Array([2, 3, 4], dtype=int32), Array([5], dtype=int32)]
    """
    return _split("split", ary, indices_or_sections, axis, True)


def array_split(ary, indices_or_sections, axis: int = 0):
    """As split; the first parts are longer by one if the size is not divisible.

    >>> [part.shape for part in hnp.array_split(hnp.arange(7), 3)]
    [(3,), (2,), (2,)]
    """
    return _split("array_split", ary, indices_or_sections, axis, False)


def hsplit(ary, indices_or_sections):
    """Split along axis 1 (axis 0 of a vector). Raises ShapeError.

    >>> hnp.hsplit(hnp.arange(4), 2)
    [Array([0, 1], dtype=int32), Array([2, 3], dtype=int32)]
    """
    return split(ary, indices_or_sections, 0 if ndim(ary) == 1 else 1)


def vsplit(ary, indices_or_sections):
    """Split along axis 0. Raises ShapeError.

    >>> [part.shape for part in hnp.vsplit(hnp.zeros((4, 3)), 2)]
    [(2, 3), (2, 3)]
    """
    return split(ary, indices_or_sections, 0)


def dsplit(ary, indices_or_sections):
    """Split along axis 2. Raises ShapeError.

    >>> [part.shape for part in hnp.dsplit(hnp.zeros((2, 3, 4)), 2)]
    [(2, 3, 2), (2, 3, 2)]
    """
    return split(ary, indices_or_sections, 2)


def tile(A, reps):
    """A repeated reps[k] times along axis k, block after block. Raises ShapeError.

    >>> hnp.tile(hnp.array([1, 2]), (2, 2))
    Array([[1, 2, 1, 2],
           [1, 2, 1, 2]], dtype=int32)
    """
    x, reps = as_operand(A, "tile"), canonical_shape(reps, "tile")
    rank = max(x.ndim, len(reps))
    dims = (1,) * (rank - x.ndim) + x.shape
    reps = (1,) * (rank - len(reps)) + reps
    inner = reshape_to(x, tuple(e for d in dims for e in (1, d)))
    spread = broadcast_dims_to(inner, tuple(e for n, d in zip(reps, dims, strict=True) for e in (n, d)))
    return reshape_to(spread, tuple(n * d for n, d in zip(reps, dims, strict=True)))


def resize(a, new_shape):
    """The elements of a, repeated or truncated to fill this shape. Raises ShapeError.

    >>> hnp.resize(hnp.array([1, 2, 3]), (2, 4))
    Array([[1, 2, 3, 1],
           [2, 3, 1, 2]], dtype=int32)
    """
    x, dims = as_operand(a, "resize"), canonical_shape(new_shape, "resize")
    count = product(dims)
    if not x.size:
        return full(0, x.dtype, dims)
    flat = tile(reshape_to(x, (x.size,)), -(-count // x.size))
    return reshape_to(lax.slice_in_dim(flat, 0, count), dims)

"""Functions of `hloom.lax` that create arrays and move elements: iota, full, broadcast, reshape, slice, pad, ..."""

from __future__ import annotations

import builtins
import itertools
from typing import Any

from hloom.arrays.base import ArrayMethods
from hloom.arrays.keys import KeyArray
from hloom.dispatch.sharded import laid_out_as, takes_out_sharding
from hloom.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError
from hloom.ir.sizes.expressions import greatest, is_known, least
from hloom.ir.types import INTEGERS, PRED, Shape, as_dtype
from hloom.lax.operands import (
    NUMBERS,
    as_operand,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    constant,
    convert,
    convert_index,
    dtype_of,
    index_dtype,
    index_of_axis,
    product,
    reshape_to,
    static_size,
    with_weakness,
)
from hloom.lax.operands import broadcast_shapes as broadcast_dims
from hloom.lax.operands import full as full_constant
from hloom.tracing.trace import beside, bind

# --- creation -----------------------------------------------------------------------------------------------------


def iota(dtype, size: int):
    """0, 1, ..., size - 1. Raises ShapeError for a negative size, DTypeError.

    >>> hl.lax.iota("f32", 4)
    Array([0., 1., 2., 3.], dtype=float32)
    """
    return broadcasted_iota(dtype, (size,), 0)


@takes_out_sharding
def broadcasted_iota(dtype, shape, dimension: int, *, out_sharding=None):
    """An array whose elements are their index along `dimension`. Raises ShapeError, DTypeError.

    >>> hl.lax.broadcasted_iota(hnp.int32, (2, 3), 1)
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    dims = canonical_shape(shape, "iota")
    axis = canonical_axis(dimension, len(dims), "iota")
    dtype = as_dtype(dtype)
    if dtype == PRED:
        return convert(broadcasted_iota("s32", dims, axis), dtype)
    return bind("iota", shape=Shape(dtype, dims), iota_dimension=axis)


def full(shape, fill_value, dtype=None):
    """An array of this shape filled with the scalar fill_value. Raises ShapeError, DTypeError.

    >>> hl.lax.full((2, 2), 1.5)
    Array([[1.5, 1.5],
           [1.5, 1.5]], dtype=float32)
    """
    dims = canonical_shape(shape, "full")
    if type(fill_value) not in NUMBERS:
        fill_value = as_operand(fill_value, "full")
        if fill_value.shape:
            raise ShapeError(
                "full takes a scalar fill_value",
                f"{fill_value._shape!r}",
                "use hnp.full, which broadcasts, or lax.broadcast_in_dim",
            )
    dtype = dtype_of(fill_value)[0] if dtype is None else as_dtype(dtype)
    if type(fill_value) in NUMBERS:
        return full_constant(fill_value, dtype, dims)
    return broadcast(convert(fill_value, dtype), dims)


def full_like(x, fill_value, dtype=None, shape=None):
    """`full` with the shape and dtype of x unless given.

    >>> hl.lax.full_like(hnp.array([1.0, 2.0]), 7.0)
    Array([7., 7.], dtype=float32)
    """
    x = as_operand(x, "full_like")
    with beside(x):
        made = full(x.shape if shape is None else shape, fill_value, x.dtype if dtype is None else dtype)
    made = laid_out_as(made, x)
    return with_weakness(made, dtype is None and x.weak)


# --- broadcast, reshape, transpose --------------------------------------------------------------------------------


@takes_out_sharding
def broadcast(operand, sizes, *, out_sharding=None):
    """operand with new leading dimensions of this shape. Raises ShapeError.

    >>> hl.lax.broadcast(hnp.array([1, 2]), (2,))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    x = as_operand(operand, "broadcast")
    lead = canonical_shape(sizes, "broadcast")
    if not lead:
        return x
    dims = lead + x.shape
    return bind("broadcast", x, shape=Shape(x.dtype, dims), weak=x.weak, dimensions=tuple(range(len(lead), len(dims))))


@takes_out_sharding
def broadcast_in_dim(operand, shape, broadcast_dimensions, *, out_sharding=None):
    """operand with its dimension k at broadcast_dimensions[k] of the result.

    A dimension of size 1 is broadcast if the result has another size; the other dimensions are new.
    Raises ShapeError, AttributeValueError.

    >>> hl.lax.broadcast_in_dim(hnp.array([1, 2]), (2, 3), (0,))
    Array([[1, 1, 1],
           [2, 2, 2]], dtype=int32)
    """
    x = as_operand(operand, "broadcast_in_dim")
    dims = canonical_shape(shape, "broadcast_in_dim")
    targets = tuple(canonical_axis(d, len(dims), "broadcast_in_dim") for d in broadcast_dimensions)
    if len(targets) != x.ndim:
        raise ShapeError(
            "broadcast_in_dim takes a result dimension for each dimension of its operand",
            f"broadcast_dimensions={tuple(broadcast_dimensions)} for {x._shape!r}",
            f"name {x.ndim} dimensions",
        )
    kept = [k for k, d in enumerate(targets) if x.shape[k] == dims[d]]
    if any(x.shape[k] != 1 for k in range(x.ndim) if k not in kept):
        raise ShapeError(
            "broadcast_in_dim stretches dimensions of size 1 only",
            f"{x._shape!r} to {dims} with broadcast_dimensions={targets}",
            "choose a shape that has the operand's sizes at those dimensions",
        )
    x = reshape_to(x, tuple(x.shape[k] for k in kept))
    return bind("broadcast", x, shape=Shape(x.dtype, dims), weak=x.weak, dimensions=tuple(targets[k] for k in kept))


def broadcast_to_rank(x, rank: int):
    """x with leading dimensions of size 1 up to this rank.

    >>> hl.lax.broadcast_to_rank(hnp.zeros((3,)), 3).shape
    (1, 1, 3)
    """
    x = as_operand(x, "broadcast_to_rank")
    return reshape_to(x, (1,) * (rank - x.ndim) + x.shape)


@takes_out_sharding
def reshape(operand, new_sizes, dimensions=None, *, out_sharding=None):
    """operand (numbers or keys) with this shape, row-major; first transposed by `dimensions`, if given.

    Raises ShapeError.

    >>> hl.lax.reshape(hnp.arange(6), (2, 3))
    Array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    """
    if type(operand) is KeyArray and dimensions is None:
        return operand.reshape(canonical_shape(new_sizes, "reshape"))
    x = as_operand(operand, "reshape")
    dims = canonical_shape(new_sizes, "reshape")
    if dimensions is not None:
        x = transpose(x, dimensions)
    if product(dims) != x.size:
        raise ShapeError(
            "reshape keeps the number of elements",
            f"{x._shape!r} ({x.size} elements) to {dims} ({product(dims)})",
            "pass sizes whose product is the operand's size",
        )
    return reshape_to(x, dims)


def squeeze(array, dimensions):
    """array without these dimensions, which have size 1. Raises ShapeError.

    >>> hl.lax.squeeze(hnp.zeros((1, 3, 1)), (0,)).shape
    (3, 1)
    """
    if type(array) is KeyArray:
        axes = canonical_axes(dimensions, array.ndim, "squeeze")
        return KeyArray(squeeze(array._data, axes), array._implementation)
    x = as_operand(array, "squeeze")
    axes = canonical_axes(dimensions, x.ndim, "squeeze")
    if any(x.shape[a] != 1 for a in axes):
        raise ShapeError(
            "squeeze removes axes of size 1", f"axes {axes} of {x._shape!r}", "name axes of size 1, or index them"
        )
    return reshape_to(x, tuple(d for k, d in enumerate(x.shape) if k not in axes))


def expand_dims(array, dimensions):
    """array with new dimensions of size 1 at these positions of the result. Raises ShapeError.

    >>> hl.lax.expand_dims(hnp.zeros((2, 3)), (0, 2)).shape
    (1, 2, 1, 3)
    """
    dimensions = tuple(dimensions) if isinstance(dimensions, (tuple, list)) else (dimensions,)
    if type(array) is KeyArray:
        axes = canonical_axes(dimensions, array.ndim + len(dimensions), "expand_dims")
        return KeyArray(expand_dims(array._data, axes), array._implementation)
    x = as_operand(array, "expand_dims")
    rank = x.ndim + len(dimensions)
    axes = canonical_axes(dimensions, rank, "expand_dims")
    rest = iter(x.shape)
    return reshape_to(x, tuple(1 if k in axes else next(rest) for k in range(rank)))


def transpose(operand, permutation):
    """Result dimension k is operand's dimension permutation[k]. Raises ShapeError.

    >>> hl.lax.transpose(hnp.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    x = as_operand(operand, "transpose")
    axes = canonical_axes(tuple(permutation), x.ndim, "transpose")
    if len(axes) != x.ndim:
        raise ShapeError(
            f"transpose takes a permutation of the {x.ndim} axes",
            f"{tuple(permutation)} for {x._shape!r}",
            "name each axis once",
        )
    if axes == tuple(range(x.ndim)):
        return x
    return bind("transpose", x, weak=x.weak, dimensions=axes)


def rev(operand, dimensions):
    """operand with the order of its elements reversed along these dimensions. Raises ShapeError.

    >>> hl.lax.rev(hnp.array([1, 2, 3]), (0,))
    Array([3, 2, 1], dtype=int32)
    """
    x = as_operand(operand, "rev")
    axes = canonical_axes(tuple(dimensions), x.ndim, "rev")
    return bind("reverse", x, weak=x.weak, dimensions=tuple(sorted(axes))) if axes else x


# --- slice, pad, concatenate --------------------------------------------------------------------------------------


def slice(operand, start_indices, limit_indices, strides=None):
    """operand[start:limit:stride] along each dimension, with 0 <= start <= limit <= size and stride > 0.

    Raises AttributeValueError.

    >>> hl.lax.slice(hnp.arange(10), (1,), (9,), (3,))
    Array([1, 4, 7], dtype=int32)
    """
    x = as_operand(operand, "slice")
    strides = strides or (1,) * x.ndim
    if not len(start_indices) == len(limit_indices) == len(strides) == x.ndim:
        raise AttributeValueError(
            "slice takes a start, a limit and a stride for each dimension",
            f"{len(start_indices)} starts, {len(limit_indices)} limits, {len(strides)} strides for {x._shape!r}",
            "name them all",
        )
    bounds = tuple(
        (_bound(a), _bound(b), int(s)) for a, b, s in zip(start_indices, limit_indices, strides, strict=True)
    )
    return slice_by(x, bounds)


def _bound(size) -> Any:
    return static_size(size, "slice", "bound")


def slice_by(x, bounds):
    """The slice with these (start, limit, stride); x itself if that is all of x."""
    if all(s == 1 and is_known(a == 0) and is_known(b == d) for (a, b, s), d in zip(bounds, x.shape, strict=True)):
        return x
    return bind("slice", x, weak=x.weak, slice=bounds)


def slice_in_dim(operand, start_index, limit_index, stride: int = 1, axis: int = 0):
    """operand[start:limit:stride] along one axis; negative bounds count from the end and None is the end.

    Raises ShapeError, AttributeValueError.

    >>> hl.lax.slice_in_dim(hnp.arange(10), 2, 5)
    Array([2, 3, 4], dtype=int32)
    """
    x = as_operand(operand, "slice_in_dim")
    axis = canonical_axis(axis, x.ndim, "slice_in_dim")
    extent = x.shape[axis]
    start = 0 if start_index is None else static_size(start_index, "slice_in_dim", "start")
    limit = extent if limit_index is None else static_size(limit_index, "slice_in_dim", "limit")
    start, limit = (b + extent if b < 0 else b for b in (start, limit))
    bounds: list[Any] = [(0, d, 1) for d in x.shape]
    bounds[axis] = (start, limit, int(stride))
    return slice_by(x, tuple(bounds))


def index_in_dim(operand, index: int, axis: int = 0, keepdims: bool = True):
    """operand[index] along one axis. Raises ShapeError if the static index is out of bounds.

    >>> hl.lax.index_in_dim(hnp.array([[1, 2], [3, 4]]), 1, axis=1, keepdims=False)
    Array([2, 4], dtype=int32)
    """
    x = as_operand(operand, "index_in_dim")
    axis = canonical_axis(axis, x.ndim, "index_in_dim")
    extent, position = x.shape[axis], static_size(index, "index_in_dim", "index")
    if not -extent <= position < extent:
        raise ShapeError(
            f"index_in_dim takes element {position} of axis {axis}", f"{x._shape!r}", "index inside of the size"
        )
    position = position + extent if position < 0 else position
    result = slice_in_dim(x, position, position + 1, axis=axis)
    return result if keepdims else squeeze(result, (axis,))


def pad(operand, padding_value, padding_config):
    """operand with (low, high, interior) elements of padding_value along each dimension; negative low, high remove.

    Raises ShapeError, AttributeValueError, DTypeError.

    >>> hl.lax.pad(hnp.array([1, 2, 3]), 0, [(1, 0, 1)])
    Array([0, 1, 0, 2, 0, 3], dtype=int32)
    """
    x = as_operand(operand, "pad")
    value = constant(padding_value, x.dtype) if type(padding_value) in NUMBERS else as_operand(padding_value, "pad")
    padding = tuple(tuple(static_size(p, "pad", "padding") for p in dimension) for dimension in padding_config)
    weak = x.weak and (type(padding_value) in NUMBERS or value.weak)
    return bind("pad", x, value, weak=weak, padding=padding)


def concatenate(operands, dimension: int):
    """The arrays concatenated along `dimension`. Raises ShapeError, DTypeError, ArgumentError.

    >>> hl.lax.concatenate([hnp.array([1, 2]), hnp.array([3])], 0)
    Array([1, 2, 3], dtype=int32)
    """
    arrays = [as_operand(x, "concatenate") for x in operands]
    if not arrays:
        raise ArgumentError("concatenate takes at least one array", "none", "pass a list of arrays")
    axis = canonical_axis(dimension, arrays[0].ndim, "concatenate")
    if len(arrays) == 1:
        return arrays[0]
    return bind("concatenate", *arrays, weak=all(a.weak for a in arrays), dimensions=(axis,))


# --- dynamic slices -----------------------------------------------------------------------------------------------


def _starts(name: str, x, start_indices, negative=True) -> list:
    """Scalar start indices; negative ones count from the end if `negative` (for each dimension or for all)."""
    if isinstance(start_indices, ArrayMethods) and start_indices.ndim:
        start_indices = [index_in_dim(start_indices, k, keepdims=False) for k in range(start_indices.shape[0])]
    if len(start_indices) != x.ndim:
        raise ShapeError(
            f"{name} takes a start index for each dimension",
            f"{len(start_indices)} for {x._shape!r}",
            "pass one scalar a dimension",
        )
    wrapping = list(negative) if isinstance(negative, (tuple, list)) else [negative] * x.ndim
    starts = [_start(name, s, extent, w) for s, extent, w in zip(start_indices, x.shape, wrapping, strict=True)]
    dtypes = {s.dtype for s in starts}
    if len(dtypes) > 1:  # in HLO they have one dtype
        wide = any(d.itemsize == 8 or (d.itemsize == 4 and d.kind == "u") for d in dtypes)
        starts = [convert_index(s, as_dtype("s64" if wide else "s32")) for s in starts]
    return starts


def _start(name: str, start, extent: int, wraps: bool = True):
    if type(start) is int:
        start = greatest(start + extent if start < 0 and wraps else start, 0)
        return constant(least(start, extent), index_dtype(extent))
    start = as_operand(start, name)
    if start.shape or start.dtype not in INTEGERS:
        raise DTypeError(
            f"{name} takes scalar integer start indexes", f"{start._shape!r}", "index or convert it to one integer"
        )
    if start.dtype.kind == "u" or not wraps:
        return start
    start = index_of_axis(start, extent)
    negative = bind("compare", start, constant(0, start.dtype), direction="LT")
    moved = bind("add", start, constant(extent, start.dtype))
    return bind("select", negative, moved, start)


def dynamic_slice(operand, start_indices, slice_sizes, *, allow_negative_indices=True):
    """The window of static slice_sizes that starts at start_indices, which may be computed.

    Negative starts count from the end, unless allow_negative_indices (one for all or for each dimension) is False; a
    window that would exceed operand is clamped to its bounds. Raises ShapeError, AttributeValueError, DTypeError.

    >>> hl.lax.dynamic_slice(hnp.arange(10), (3,), (4,))
    Array([3, 4, 5, 6], dtype=int32)
    >>> hl.lax.dynamic_slice(hnp.arange(10), (8,), (4,))
    Array([6, 7, 8, 9], dtype=int32)
    """
    x = as_operand(operand, "dynamic_slice")
    starts = _starts("dynamic_slice", x, start_indices, allow_negative_indices)
    sizes = canonical_shape(slice_sizes, "dynamic_slice")
    return bind("dynamic-slice", x, *starts, weak=x.weak, dynamic_slice_sizes=sizes)


def dynamic_slice_in_dim(operand, start_index, slice_size: int, axis: int = 0, *, allow_negative_indices: bool = True):
    """`dynamic_slice` along one axis, with the full size of all others.

    >>> hl.lax.dynamic_slice_in_dim(hnp.arange(10), 3, 2)
    Array([3, 4], dtype=int32)
    """
    x = as_operand(operand, "dynamic_slice_in_dim")
    axis = canonical_axis(axis, x.ndim, "dynamic_slice_in_dim")
    starts, sizes = [0] * x.ndim, list(x.shape)
    starts[axis], sizes[axis] = start_index, slice_size
    return dynamic_slice(x, starts, sizes, allow_negative_indices=allow_negative_indices)


def dynamic_index_in_dim(operand, index, axis: int = 0, keepdims: bool = True, *, allow_negative_indices: bool = True):
    """operand[index] along one axis with a computed index, clamped to the size.

    >>> hl.lax.dynamic_index_in_dim(hnp.array([[1, 2], [3, 4]]), 1, keepdims=False)
    Array([3, 4], dtype=int32)
    """
    result = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    return result if keepdims else squeeze(result, (axis,))


def dynamic_update_slice(operand, update, start_indices, *, allow_negative_indices=True):
    """operand with the window that starts at start_indices replaced by update, of the same rank and dtype.

    Negative starts count from the end; a window that would exceed operand is clamped to its bounds.
    Raises ShapeError, DTypeError.

    >>> hl.lax.dynamic_update_slice(hnp.zeros(5), hnp.array([1.0, 2.0]), (2,))
    Array([0., 0., 1., 2., 0.], dtype=float32)
    """
    x = as_operand(operand, "dynamic_update_slice")
    update = convert(update, x.dtype) if type(update) in NUMBERS else as_operand(update, "dynamic_update_slice")
    starts = _starts("dynamic_update_slice", x, start_indices, allow_negative_indices)
    return bind("dynamic-update-slice", x, update, *starts, weak=x.weak and update.weak)


def dynamic_update_slice_in_dim(operand, update, start_index, axis: int, *, allow_negative_indices: bool = True):
    """`dynamic_update_slice` along one axis, from the start of all others.

    >>> hl.lax.dynamic_update_slice_in_dim(hnp.zeros(5), hnp.array([1.0, 2.0]), 3, axis=0)
    Array([0., 0., 0., 1., 2.], dtype=float32)
    """
    x = as_operand(operand, "dynamic_update_slice_in_dim")
    starts = [0] * x.ndim
    starts[canonical_axis(axis, x.ndim, "dynamic_update_slice_in_dim")] = start_index
    return dynamic_update_slice(x, update, starts, allow_negative_indices=allow_negative_indices)


def dynamic_update_index_in_dim(operand, update, index, axis: int, *, allow_negative_indices: bool = True):
    """operand[index] along one axis replaced by update, which has that axis with size 1 or lacks it.

    >>> hl.lax.dynamic_update_index_in_dim(hnp.zeros(3), 5.0, 1, axis=0)
    Array([0., 5., 0.], dtype=float32)
    """
    x = as_operand(operand, "dynamic_update_index_in_dim")
    axis = canonical_axis(axis, x.ndim, "dynamic_update_index_in_dim")
    update = convert(update, x.dtype) if type(update) in NUMBERS else as_operand(update, "dynamic_update_index_in_dim")
    if update.ndim != x.ndim:
        update = expand_dims(update, (axis,))
    return dynamic_update_slice_in_dim(x, update, index, axis, allow_negative_indices=allow_negative_indices)


def broadcast_shapes(*shapes) -> tuple[int, ...]:
    """The common shape to which these shapes broadcast. Raises ShapeError.

    >>> hl.lax.broadcast_shapes((3, 1), (1, 4))
    (3, 4)
    """
    return broadcast_dims("broadcast_shapes", [canonical_shape(s, "broadcast_shapes") for s in shapes])


def split(operand, sizes, axis: int = 0) -> list:
    """The consecutive parts of these sizes along an axis. Raises ShapeError if they do not add up.

    >>> hl.lax.split(hnp.arange(5), (2, 3))
    [Array([0, 1], dtype=int32), Array([2, 3, 4], dtype=int32)]
    """
    x = as_operand(operand, "split")
    axis = canonical_axis(axis, x.ndim, "split")
    sizes = canonical_shape(tuple(sizes), "split")
    if sum(sizes) != x.shape[axis]:
        raise ShapeError(
            f"split into {sizes}",
            f"{x._shape!r} with size {x.shape[axis]} along axis {axis}",
            "make the sizes add up",
        )
    edges = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
    return [slice_in_dim(x, a, b, axis=axis) for a, b in itertools.pairwise(edges)]


def collapse(operand, start_dimension: int, stop_dimension: int | None = None):
    """The dimensions from start to stop (by default the end) merged into one. Raises ShapeError.

    >>> hl.lax.collapse(hnp.zeros((2, 3, 4)), 0, 2).shape
    (6, 4)
    """
    x = as_operand(operand, "collapse")
    start, stop, _ = builtins.slice(start_dimension, stop_dimension).indices(x.ndim)
    return reshape_to(x, (*x.shape[:start], product(x.shape[start:stop]), *x.shape[stop:]))

"""Argument conversion for `hloom.lax`, `hloom.numpy` and `hloom.nn`: arrays, promotion, axes, shapes.

Functions of real numbers convert integers first, by `to_inexact`: 64-bit integers to f64, as NumPy and the Array API
do, all others to f32. The names of `hloom.arrays.promotion` and `hloom.tracing.conversion` are re-exported.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from hloom.arrays.base import ArrayMethods
from hloom.arrays.promotion import (
    F32,
    F64,
    NUMBERS,
    broadcast_shapes,
    check_ranks,
    default_float,
    default_int,
    dims_of,
    dtype_of,
    inexact_dtype,
    limits,
    promoted,
)
from hloom.errors import ArgumentError, DTypeError, IndexOutOfBoundsError, ShapeError, TracerConversionError
from hloom.ir.sizes.expressions import Size, SizeExpression, is_known
from hloom.ir.types import DTYPES, INEXACT, canonical_dims, scalar_dtype
from hloom.tracing.conversion import (
    broadcast_dims_to,
    conform,
    constant,
    convert,
    full,
    reshape_to,
    splat,
    with_weakness,
)
from hloom.tracing.trace import as_array, bind

__all__ = [
    "F32",
    "F64",
    "NUMBERS",
    "as_operand",
    "broadcast_dims_to",
    "broadcast_shapes",
    "canonical_axes",
    "canonical_axis",
    "canonical_shape",
    "conform",
    "constant",
    "convert",
    "convert_index",
    "default_float",
    "default_int",
    "dims_of",
    "dtype_of",
    "full",
    "holds_arrays",
    "index_dtype",
    "inexact_dtype",
    "limits",
    "product",
    "promote_operands",
    "promoted",
    "read",
    "reshape_to",
    "splat",
    "stack_nested",
    "static_size",
    "to_inexact",
    "whole_number",
    "with_weakness",
]


def as_operand(value, name: str):
    """An argument of the function `name` as an Array or Tracer. Raises ArgumentError."""
    if isinstance(value, ArrayMethods):
        return value
    if isinstance(value, (list, tuple)) and holds_arrays(value):
        return stack_nested(value)
    return as_array(value, f"an operand of {name}")


def holds_arrays(value) -> bool:
    """Whether nested lists contain an Array, a Tracer or a NumPy array."""
    if isinstance(value, (list, tuple)):
        return any(holds_arrays(v) for v in value)
    return isinstance(value, (ArrayMethods, np.ndarray, np.generic, SizeExpression))


def stack_nested(value):
    """The array of nested lists that contain arrays. Raises ArgumentError, ShapeError."""
    if not isinstance(value, (list, tuple)):
        return value if type(value) in NUMBERS else as_operand(value, "array")
    if not value:
        return full(0, default_float(), (0,))
    elements = [stack_nested(v) for v in value]
    dims = dims_of(elements[0])
    if any(dims_of(e) != dims for e in elements):
        raise ShapeError(
            "an array was to be made of nested lists",
            f"elements of the shapes {', '.join(sorted({str(dims_of(e)) for e in elements}))}",
            "give all elements one shape",
        )
    elements, _ = promote_operands("array", elements)
    rows = [reshape_to(e, (1, *dims)) for e in elements]
    return bind("concatenate", *rows, dimensions=(0,)) if len(rows) > 1 else rows[0]


def read(values, name: str) -> list:
    """Arrays, Tracers and Python scalars unchanged, everything else as an Array."""
    return [v if isinstance(v, ArrayMethods) or type(v) in NUMBERS else as_operand(v, name) for v in values]


def promote_operands(name: str, values, change=None, broadcast: bool = True):
    """(operands with a common promoted dtype and, if `broadcast`, a common shape; whether the result is weakly typed).

    change: dtype -> dtype, applied to the promoted dtype. Raises ArgumentError, DTypeError, ShapeError.
    """
    first = values[0]
    if isinstance(first, ArrayMethods):
        shape, weak = first._shape, first.weak
        for other in values:
            if not isinstance(other, ArrayMethods) or other._shape is not shape:
                break
            weak = weak and other.weak
        else:
            dtype = shape.dtype
            target = dtype if change is None else change(dtype)
            if target == dtype:
                return values, weak
            return [convert(v, target, v.weak) for v in values], weak
    values = read(values, name)
    if len(values) == 2 and type(values[1]) in NUMBERS and isinstance(values[0], ArrayMethods):
        # An array and a scalar, the most frequent case: nothing to broadcast.
        first = values[0]
        shape = first._shape
        dtype, weak = promoted((shape.dtype, first.weak), scalar_dtype(values[1]))
        if change is not None:
            dtype = change(dtype)
        dims = shape.dims if broadcast else ()
        found = [conform(first, dtype, shape.dims), conform(values[1], dtype, dims)]
        if weak and not broadcast:
            found = [with_weakness(value, True) for value in found]
        return found, weak
    return _promoted_operands(name, values, change, broadcast)


def _promoted_operands(name: str, values: list, change, broadcast: bool):
    """As `promote_operands`, for any values that `read` returns."""
    try:
        dtype, weak = promoted(*[dtype_of(v) for v in values])
    except DTypeError as error:
        raise DTypeError(f"{name}: {error.asked}", error.found, error.repair) from None
    if change is not None:
        dtype = change(dtype)
    if not broadcast:
        found = [conform(v, dtype, dims_of(v)) for v in values]
        if weak:  # then no strongly typed operand has this dtype
            found = [with_weakness(value, True) for value in found]
        return found, weak
    shapes = [dims_of(v) for v in values]
    dims = broadcast_shapes(name, shapes)
    check_ranks(name, shapes)
    return [conform(v, dtype, dims) for v in values], weak


def to_inexact(x, name: str):
    """The operand of a function of real numbers, with integers converted by `inexact_dtype`."""
    x = as_operand(x, name)
    dtype = x._shape.dtype
    if dtype in INEXACT:
        return x
    return convert(x, inexact_dtype(dtype), x.weak)


def convert_index(x, dtype):
    """Indices in another integer dtype. A u64 of 2^63 or more becomes the largest s64 and thus stays out of bounds."""
    if x.dtype == np.uint64:
        x = bind("minimum", x, full(np.iinfo(np.int64).max, x.dtype, x.shape))
    return convert(x, dtype)


def index_dtype(extent: Size) -> np.dtype:
    """The dtype of indices up to a size: s32 if it fits, as it does for the value of an unknown size."""
    return DTYPES["s64" if is_known(extent > np.iinfo(np.int32).max) else "s32"]


def index_of_axis(x, extent: int):
    """Indices in a dtype that can also represent the size of their axis, for arithmetic with both: s32 for an int8
    index into 300 elements."""
    if is_known(extent <= np.iinfo(x.dtype).max):
        return x
    if isinstance(extent, SizeExpression) and x.dtype.itemsize >= 4:
        return x
    return convert_index(x, index_dtype(extent))


# --- axes and shapes ----------------------------------------------------------------------------------------------


def whole_number(value, name: str, what: str) -> int:
    """A static Python integer. Raises ArgumentError (TracerConversionError for a traced value)."""
    try:
        return operator.index(value)
    except TracerConversionError as error:
        raise TracerConversionError(
            f"{name} takes a static integer as its {what}",
            error.found,
            "shapes are fixed when a function is compiled: mark the number as static (static_argnums), or take it from "
            "the shape of an argument (x.shape[0])",
        ) from None
    except TypeError as error:
        if isinstance(value, ArrayMethods):
            raise
        raise ArgumentError(
            f"{name} takes a static integer as its {what}",
            f"{type(value).__name__}: {value!r:.80}",
            "pass a Python integer",
        ) from error


def static_size(value, name: str, what: str = "size") -> Any:
    """A size: a static Python integer, or a dynamic size. Raises ArgumentError."""
    return value if isinstance(value, SizeExpression) else whole_number(value, name, what)


def canonical_axis(axis, rank: int, name: str) -> int:
    """An axis counted from the front. Raises IndexOutOfBoundsError (a ShapeError) if it does not exist."""
    number = whole_number(axis, name, "axis")
    if not -rank <= number < rank:
        raise IndexOutOfBoundsError(
            f"{name} along axis {number}",
            f"an array of rank {rank}" + (f", which has axes {-rank} to {rank - 1}" if rank else ", which has no axes"),
            "name an existing axis",
        )
    return number % rank


def canonical_axes(axis, rank: int, name: str) -> tuple[int, ...]:
    """Axes counted from the front in the given order; None means all of them. Raises ShapeError."""
    if axis is None:
        return tuple(range(rank))
    if not isinstance(axis, (tuple, list)):
        return (canonical_axis(axis, rank, name),)
    axes = tuple(canonical_axis(a, rank, name) for a in axis)
    if len(set(axes)) != len(axes):
        raise ShapeError(
            f"{name} takes each axis once", f"{tuple(axis)} of an array of rank {rank}", "remove the repeated axis"
        )
    return axes


def canonical_shape(shape, name: str) -> tuple[int, ...]:
    """Sizes from an integer or a sequence of integers. Raises ShapeError for a negative one."""
    if (isinstance(shape, ArrayMethods) and shape._shape.dims) or (isinstance(shape, np.ndarray) and shape.ndim):
        shape = tuple(shape)
    if not isinstance(shape, (tuple, list)):
        shape = (shape,)
    dims = canonical_dims([static_size(d, name) for d in shape])
    if any(d < 0 for d in dims):
        raise ShapeError(f"{name} takes sizes that are not negative", f"{dims}", "check the shape")
    return dims


def product(dims) -> int:
    return math.prod(dims)

"""How `hloom.lax`, `hloom.numpy` and `hloom.nn` read their arguments: constants, promotion, broadcasting, axes.

Promotion follows `hloom.ir.types.promote`: JAX's lattice, where Python numbers are weak. Functions of real numbers
convert integers first, by `to_inexact`: 64-bit integers to f64, as NumPy and the Array API do, all others to f32.
"""

from __future__ import annotations

import math
import operator
from functools import lru_cache

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.operators import ArrayMethods
from hloom.config import config
from hloom.errors import ArgumentError, DTypeError, IndexOutOfBoundsError, ShapeError
from hloom.ir.types import (
    DTYPES,
    HLO_NAME,
    INEXACT,
    INTEGERS,
    Shape,
    default_dtype,
    narrow_scalars,
    promote,
    scalar_dtype,
    set_default_width,
)
from hloom.tracing.trace import Tracer, as_array, bind, current_trace

NUMBERS = (bool, int, float, complex)
F32, F64 = DTYPES["f32"], DTYPES["f64"]
_WIDE_INTEGERS = frozenset((DTYPES["s64"], DTYPES["u64"]))

promoted = lru_cache(maxsize=4096)(promote)


def _use_width(wide: bool) -> None:
    set_default_width(64 if wide else 32)
    promoted.cache_clear()
    _cached_constant.cache_clear()


def _narrow(_=None) -> None:
    narrow_scalars(config.narrow_numpy and not config.enable_x64)


config.on_change("enable_x64", _use_width)
if config.enable_x64:
    set_default_width(64)
for _name in ("enable_x64", "narrow_numpy"):
    config.on_change(_name, _narrow)
_narrow()


def default_float() -> np.dtype:
    """f32, or f64 with `hl.config.enable_x64`."""
    return default_dtype(float)


def default_int() -> np.dtype:
    """s32, or s64 with `hl.config.enable_x64`."""
    return default_dtype(int)


def as_operand(value, name: str):
    """An Array or Tracer of an argument of the function `name`. Raises ArgumentError."""
    if isinstance(value, ArrayMethods):
        return value
    if isinstance(value, (list, tuple)) and holds_arrays(value):
        from hloom.numpy.creation import array

        return array(value)
    return as_array(value, f"an operand of {name}")


def holds_arrays(value) -> bool:
    """Whether nested lists have an Array, a Tracer or a NumPy array among their leaves."""
    if isinstance(value, (list, tuple)):
        return any(holds_arrays(v) for v in value)
    return isinstance(value, (ArrayMethods, np.ndarray, np.generic))


def dtype_of(value) -> tuple[np.dtype, bool]:
    """(dtype, weak) of an operand: an Array, a Tracer or a Python number."""
    return (value._shape.dtype, value.weak) if isinstance(value, ArrayMethods) else scalar_dtype(value)


def dims_of(value) -> tuple[int, ...]:
    return value._shape.dims if isinstance(value, ArrayMethods) else ()


# --- constants ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _cached_constant(value, dtype) -> Array:
    data = np.asarray(value).astype(dtype)
    data.flags.writeable = False  # many hold it: it is never donated
    return Array(data)


def constant(value, dtype: np.dtype) -> Array:
    """A scalar Array of a Python number; the same object each time, so that a trace holds each constant once.

    Raises DTypeError for an integer that the dtype cannot hold.
    """
    if value == 0 and not isinstance(value, int) or config.item_assignment and current_trace() is None:
        return Array(np.asarray(value).astype(dtype))  # 0.0 == -0.0, so the cache would mix them up
    if type(value) is int and dtype in INTEGERS:
        info = limits(dtype)
        if not info[0] <= value <= info[1]:
            raise DTypeError(
                f"the Python integer {value} was to take the dtype {HLO_NAME[dtype]} of the array beside it",
                f"{HLO_NAME[dtype]} holds {info[0]} to {info[1]}",
                "convert the array to a wider dtype first, for example with astype('s64')",
            )
    return _cached_constant(value, dtype)


@lru_cache(maxsize=64)
def limits(dtype) -> tuple[int, int]:
    import ml_dtypes

    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


def full(value, dtype: np.dtype, dims: tuple[int, ...]):
    """An array of one Python number."""
    scalar = constant(value, dtype)
    return splat(scalar, dims) if dims else scalar


def splat(scalar: Array, dims: tuple[int, ...]):
    """The scalar in each element of an array of these extents."""
    if current_trace() is None:
        return Array(np.full(dims, scalar._value()))
    return bind("broadcast", scalar, shape=Shape(scalar._shape.dtype, dims), dimensions=())


# --- dtype and shape of one operand -------------------------------------------------------------------------------


def convert(x, dtype: np.dtype, weak: bool = False):
    """x (Array, Tracer or Python number) with this dtype and weakness."""
    if not isinstance(x, ArrayMethods):
        x = constant(x, dtype)
    if x._shape.dtype != dtype:
        return bind("convert", x, shape=Shape(dtype, x._shape.dims), weak=weak)
    return x if x.weak == weak else with_weakness(x, weak)


def with_weakness(x, weak: bool):
    """The same array, weak or not. Records no instruction."""
    if isinstance(x, Array):
        return Array(x._value(), weak, x._device)
    return Tracer(x.trace, x.instruction, x.value, weak)


def conform(x, dtype: np.dtype, dims: tuple[int, ...]):
    """x converted to this dtype and broadcast to these extents (to which it is known to broadcast)."""
    if isinstance(x, ArrayMethods):
        shape = x._shape
        if shape.dtype != dtype:
            x = bind("convert", x, shape=Shape(dtype, shape.dims))
    else:
        x = constant(x, dtype)
        return splat(x, dims) if dims else x
    return x if shape.dims == dims else broadcast_dims_to(x, dims)


def broadcast_dims_to(x, dims: tuple[int, ...]):
    """NumPy's broadcasting of x to extents that fit: HLO's broadcast after a reshape that drops what is stretched."""
    own = x._shape.dims
    if own == dims:
        return x
    lead = len(dims) - len(own)
    kept = tuple(k for k, extent in enumerate(own) if extent == dims[lead + k])
    if len(kept) != len(own):
        x = reshape_to(x, tuple(own[k] for k in kept))
    shape = Shape(x._shape.dtype, dims)
    return bind("broadcast", x, shape=shape, weak=x.weak, dimensions=tuple(lead + k for k in kept))


def reshape_to(x, dims: tuple[int, ...]):
    """x with these extents, row-major."""
    if x._shape.dims == dims:
        return x
    return bind("reshape", x, shape=Shape(x._shape.dtype, dims), weak=x.weak)


# --- several operands ---------------------------------------------------------------------------------------------


def broadcast_shapes(name: str, shapes) -> tuple[int, ...]:
    """The extents to which all shapes broadcast by NumPy's rule. Raises ShapeError."""
    first = shapes[0]
    for other in shapes:
        if other != first:
            break
    else:
        return first
    stretched = [s for s in shapes if s]
    if all(s == stretched[0] for s in stretched):
        return stretched[0]
    rank = max(len(s) for s in shapes)
    result = []
    for k in range(-rank, 0):
        extents = {s[k] for s in shapes if len(s) >= -k} - {1}
        if len(extents) > 1:
            raise ShapeError(
                f"{name} broadcasts its operands to one shape",
                " and ".join(str(s) for s in shapes) + f", which differ in axis {k}",
                "reshape or transpose one of them so that each pair of extents is equal or holds a 1",
            )
        result.append(extents.pop() if extents else 1)
    return tuple(result)


def inexact_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which functions of real numbers compute: s64 and u64 become f64, other integers and pred f32."""
    if dtype in INEXACT:
        return dtype
    return F64 if dtype in _WIDE_INTEGERS else F32


def read(values, name: str) -> list:
    """Arrays, Tracers and Python numbers as they are, everything else as an Array."""
    return [v if isinstance(v, ArrayMethods) or type(v) in NUMBERS else as_operand(v, name) for v in values]


def promote_operands(name: str, values, change=None, broadcast: bool = True):
    """(operands of one promoted dtype and, if `broadcast`, one shape; whether the result is weak).

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
        # An array and a number, the most frequent case: nothing to broadcast.
        first = values[0]
        shape = first._shape
        dtype, weak = promoted((shape.dtype, first.weak), scalar_dtype(values[1]))
        if change is not None:
            dtype = change(dtype)
        dims = shape.dims if broadcast else ()
        return [conform(first, dtype, shape.dims), conform(values[1], dtype, dims)], weak
    try:
        dtype, weak = promoted(*[dtype_of(v) for v in values])
    except DTypeError as error:
        raise DTypeError(f"{name}: {error.asked}", error.found, error.repair) from None
    if change is not None:
        dtype = change(dtype)
    if not broadcast:
        return [conform(v, dtype, dims_of(v)) for v in values], weak
    dims = broadcast_shapes(name, [dims_of(v) for v in values])
    return [conform(v, dtype, dims) for v in values], weak


def to_inexact(x, name: str):
    """The operand of a function of real numbers: integers converted by `inexact_dtype`."""
    x = as_operand(x, name)
    dtype = x._shape.dtype
    if dtype in INEXACT:
        return x
    return convert(x, inexact_dtype(dtype), x.weak)


# --- axes and shapes ----------------------------------------------------------------------------------------------


def whole_number(value, name: str, what: str) -> int:
    """A static Python integer. Raises ArgumentError (TracerConversionError for a traced value)."""
    try:
        return operator.index(value)
    except TypeError as error:
        if isinstance(value, ArrayMethods):
            raise
        raise ArgumentError(
            f"{name} takes a static integer as its {what}",
            f"{type(value).__name__}: {value!r:.80}",
            "pass a Python integer",
        ) from error


def canonical_axis(axis, rank: int, name: str) -> int:
    """An axis counted from the front. Raises IndexOutOfBoundsError (a ShapeError) where it does not exist."""
    number = whole_number(axis, name, "axis")
    if not -rank <= number < rank:
        raise IndexOutOfBoundsError(
            f"{name} along axis {number}",
            f"an array of rank {rank}" + (f", which has axes {-rank} to {rank - 1}" if rank else ", which has no axes"),
            "name an existing axis",
        )
    return number % rank


def canonical_axes(axis, rank: int, name: str) -> tuple[int, ...]:
    """Axes counted from the front in the order given; None stands for all of them. Raises ShapeError."""
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
    """Extents from an integer or a sequence of integers. Raises ShapeError for a negative one."""
    if isinstance(shape, ArrayMethods) and shape._shape.dims or isinstance(shape, np.ndarray) and shape.ndim:
        shape = tuple(shape)
    if not isinstance(shape, (tuple, list)):
        shape = (shape,)
    dims = tuple(whole_number(d, name, "extent") for d in shape)
    if any(d < 0 for d in dims):
        raise ShapeError(f"{name} takes extents that are not negative", f"{dims}", "check the shape")
    return dims


def product(dims) -> int:
    return math.prod(dims)

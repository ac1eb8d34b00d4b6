"""One operand as an array, or with another dtype or shape: arguments, constants, conversion, broadcast, reshape."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from hloom.arrays.array import Array, Strided
from hloom.arrays.base import ArrayMethods
from hloom.arrays.promotion import are_same, limits
from hloom.config import config
from hloom.errors import ArgumentError, DTypeError, TracerError
from hloom.ir.sizes.expressions import Size, SizeExpression, dims_of
from hloom.ir.types import DTYPES, HLO_NAME, HOST_DTYPES, INTEGERS, Shape
from hloom.tracing.exact import widened
from hloom.tracing.signatures import argument_names
from hloom.tracing.trace import RefArgument, Tracer, as_array, bind, current_trace, resumed, with_weakness

_SMALL = 256  # elements up to which an array of one number is as fast as a view of it


@lru_cache(maxsize=4096)
def _cached_constant(value, dtype) -> Array:
    with np.errstate(over="ignore"):  # the exact value is kept separately
        data = np.asarray(value).astype(dtype)
    data.flags.writeable = False  # shared: it is never donated
    result = Array(data)
    if type(value) in (float, complex):
        result._exact = value
    return result


def size_array(size: SizeExpression, dtype: np.dtype | None = None) -> Tracer:
    """The value of a size as a scalar of the current trace, or of the program that the size belongs to.

    dtype: an integer type; a call with a size that does not fit in it is refused. None: the scalar is weakly typed,
    like the Python number of a fixed shape, and its twin is the same size in 64 bits. Raises TracerError outside a
    trace.
    """
    trace = current_trace()
    if trace is None:
        scopes = [dim.scope for dim in dims_of(size).values() if dim.scope is not None]
        trace = next((scope.trace for scope in scopes if scope.trace is not None), None)
    if trace is None:
        raise TracerError(
            f"the value of the size {size} outside of a traced function",
            "it is known when a program is called",
            "compute it inside of the function that is traced",
        )
    with resumed(trace):
        if dtype is not None:
            return bind("size", shape=Shape(dtype, ()), value=size)
        made = bind("size", shape=Shape(DTYPES["s32"], ()), value=size, weak=True)
        trace.exact[made.instruction] = bind("size", shape=Shape(DTYPES["s64"], ()), value=size)
    return made


SizeExpression.to_array = size_array


def size_as(size: SizeExpression, dtype: np.dtype) -> Any:
    """The value of a size as a number that adopts a dtype, as `constant` is of an integer."""
    scalar: Any = size_array(size, dtype if dtype in INTEGERS and dtype not in HOST_DTYPES else None)
    return convert(scalar, dtype)


def constant(value, dtype: np.dtype) -> Array:
    """A scalar Array of a Python number; the same object each time, so that a trace holds each constant once.

    Raises DTypeError for an integer that the dtype cannot hold.
    """
    if isinstance(value, SizeExpression):
        return size_as(value, dtype)
    if (value == 0 and not isinstance(value, int)) or (config.item_assignment and current_trace() is None):
        return Array(np.asarray(value).astype(dtype))  # 0.0 == -0.0, so the cache would mix them up
    if type(value) is int and dtype in INTEGERS:
        info = limits(dtype)
        if not info[0] <= value <= info[1]:
            raise DTypeError(
                f"the Python integer {value} with the dtype {HLO_NAME[dtype]} of the other operand",
                f"{HLO_NAME[dtype]} holds {info[0]} to {info[1]}",
                "convert the array to a wider dtype first, for example with astype('s64')",
            )
    return _cached_constant(value, dtype)


def full(value, dtype: np.dtype, dims: tuple[int, ...]):
    """An array of one Python number."""
    scalar = constant(value, dtype)
    return splat(scalar, dims) if dims else scalar


def splat(scalar: Array, dims: tuple[int, ...]):
    """An array of this shape filled with the scalar."""
    if current_trace() is None:
        return Array(np.full(dims, scalar._value()))
    return bind("broadcast", scalar, shape=Shape(scalar._shape.dtype, dims), dimensions=())


def _splat_operand(scalar: Array, dims: tuple[int, ...]):
    """`splat` for an operand: eagerly a large one is a view of the scalar."""
    if not dims:
        return scalar
    if current_trace() is not None or math.prod(dims) <= _SMALL:
        return splat(scalar, dims)
    return Array(Strided(np.broadcast_to(scalar._value(), dims)), shape=Shape(scalar._shape.dtype, dims))


def convert(x, dtype: np.dtype, weak: bool = False):
    """x (Array, Tracer or Python number) with this dtype and weakness."""
    if not isinstance(x, ArrayMethods):
        x = constant(x, dtype)
    if x._shape.dtype != dtype:
        exact = widened(x, dtype)
        if exact is not None:
            if exact._shape.dtype == dtype:
                return with_weakness(exact, True) if weak else exact
            x = exact
        return bind("convert", x, shape=Shape(dtype, x._shape.dims), weak=weak)
    return with_weakness(x, weak)


def conform(x, dtype: np.dtype, dims: tuple[int, ...]):
    """x converted to this dtype and broadcast to this shape (known to be compatible)."""
    if isinstance(x, ArrayMethods):
        shape = x._shape
        if shape.dtype != dtype and isinstance(x, Tracer) and x.weak and x.instruction.opcode == "size":
            x = size_as(x.instruction["value"], dtype)
        elif shape.dtype != dtype:
            x = convert(x, dtype)
    else:
        return _splat_operand(constant(x, dtype), dims)
    return x if dims.__class__ is tuple and shape.dims == dims else broadcast_dims_to(x, dims)


def broadcast_dims_to(x, dims: tuple[int, ...]):
    """NumPy's broadcasting to a compatible shape: HLO's broadcast after a reshape that drops stretched dimensions."""
    own = x._shape.dims
    if are_same(own, dims):
        return x if dims.__class__ is tuple else reshape_to(x, dims)  # equal sizes may be written in two ways
    lead = len(dims) - len(own)
    kept = tuple(k for k, size in enumerate(own) if not _is_stretched(size, dims[lead + k]))
    if len(kept) != len(own):
        x = reshape_to(x, tuple(own[k] for k in kept))
    shape = Shape(x._shape.dtype, dims)
    return bind("broadcast", x, shape=shape, weak=x.weak, dimensions=tuple(lead + k for k in kept))


def _is_stretched(size: Size, wanted: Size) -> bool:
    """Whether a size is repeated. One of 1 is for every size that is not known."""
    if isinstance(wanted, SizeExpression) and not isinstance(size, SizeExpression):
        return size == 1
    return size != wanted


def reshape_to(x, dims: tuple[int, ...]):
    """x with this shape, row-major."""
    shape = Shape(x._shape.dtype, dims)
    if x._shape is shape:
        return x
    return bind("reshape", x, shape=shape, weak=x.weak)


# --- arguments of users' functions that are not arrays: repairs for a text or a function ---------------------------


def argument_array(value, hint: str, what: str):
    """An Array or Tracer of an argument of a transformed function. hint: its name. Raises ArgumentError."""
    try:
        return as_array(value, f"argument '{hint}' of {what}")
    except RefArgument:
        raise
    except ArgumentError as error:
        if not _is_static(value):
            raise
        repair = f"bind it before: functools.partial(function, {hint}={_short(value)})"
        raise ArgumentError(error.asked, error.found, repair) from None


def refused_argument(function, name: str, structure, leaves, static, error: ArgumentError) -> ArgumentError:
    """The error for a jitted function with a non-array argument, which it names.

    structure, leaves: of (args, kwargs) without the arguments at the positions `static`.
    """
    places = zip(argument_names(function, structure, static), structure.accessors(), leaves, strict=True)
    for path, place, leaf in places:
        try:
            as_array(leaf)
        except ArgumentError:
            repair = error.repair
            if _is_static(leaf) and len(place) > 2:
                repair = "take it out of the tree: a separate argument can be marked as static (static_argnames)"
            elif _is_static(leaf):
                by_name = f"static_argnames={path!r}" if path.isidentifier() else f"static_argnums={place[1].entry}"
                repair = f"mark it as static: hl.jit({name}, {by_name})"
            return ArgumentError(f"argument '{path}' of '{name}' must be an array", error.found, repair)
    return error


def _is_static(value) -> bool:
    """Whether it is a value that selects what a function computes."""
    return isinstance(value, (str, bytes, type)) or callable(value)


def _short(value) -> str:
    return f"{value!r:.40}" if isinstance(value, (str, bytes)) else getattr(value, "__name__", "...")

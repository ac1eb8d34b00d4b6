"""Creation of arrays: filled, from Python values, and like other arrays."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hloom import lax
from hloom.arrays.array import Array
from hloom.arrays.base import ArrayMethods
from hloom.arrays.digits import has_twin
from hloom.arrays.eager import log_placement
from hloom.arrays.interchange import from_python
from hloom.arrays.keys import KeyArray
from hloom.arrays.sharded import ShardedData
from hloom.config import config
from hloom.dispatch.sharded import laid_out, laid_out_as
from hloom.errors import ArgumentError, ShapeError, TracerConversionError
from hloom.ir.sizes.expressions import Size, SizeExpression, greatest
from hloom.ir.source import device_scope, device_scopes
from hloom.ir.types import COMPLEX, DTYPES, FLOATS, INTEGERS, PRED, Shape, as_dtype
from hloom.lax.operands import (
    NUMBERS,
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
    canonical_axis,
    canonical_shape,
    convert,
    default_float,
    default_int,
    dtype_of,
    holds_arrays,
    inexact_dtype,
    promote_operands,
    promoted,
    read,
    reshape_to,
    stack_nested,
    static_size,
    with_weakness,
)
from hloom.lax.operands import full as full_constant
from hloom.lax.transfer import put_all
from hloom.numpy.elementwise.ufuncs import power
from hloom.platforms.device import scoped_device
from hloom.sharding.shardings import NamedSharding, PartitionSpec, device_of
from hloom.tracing.concrete import PIECE, at_once
from hloom.tracing.exact import created, strongly_typed
from hloom.tracing.trace import Tracer, beside, bind, current_trace
from hloom.tree import pytrees as tree

# --- from values --------------------------------------------------------------------------------------------------


def on_device(make):
    """A creation function that honors the arguments `device` and `out_sharding`, or the enclosing `hl.device` scope."""

    @functools.wraps(make)
    def placed(*args, device=None, out_sharding=None, **options):
        if out_sharding is not None:
            return laid_out(make, out_sharding, *args, **options)
        if device is None and not device_scopes.device:
            return make(*args, **options)

        if isinstance(device, (NamedSharding, PartitionSpec)):
            return put_all(make(*args, **options), device)
        with device_scope(device_scopes.device if device is None else str(device_of(device))):
            result = make(*args, **options)
            return result if device is None and getattr(result, "_device", None) else put_all(result, device)

    return placed


@on_device
def array(
    object, dtype=None, copy: bool = True, order: str | None = None, ndmin: int = 0, *, device=None, out_sharding=None
):
    """An array from a scalar, a NumPy array, an array of another library (DLPack), or nested lists of all of these.

    Without a dtype NumPy and hloom arrays keep theirs; Python scalars become pred, s32, f32 or c64, and a single one is
    weakly typed. `copy` and `order` are accepted for compatibility with NumPy: arrays are immutable and row-major.
    Raises ArgumentError, DTypeError, ShapeError.

    >>> hnp.array([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    >>> hnp.array([1, 2], dtype="bf16")
    Array([1, 2], dtype=bfloat16)
    """
    if isinstance(object, KeyArray) and dtype in (None, object.dtype):
        return object[(None,) * (ndmin - object.ndim)] if object.ndim < ndmin else object
    target = None if dtype is None else as_dtype(dtype)
    if isinstance(object, ArrayMethods):
        result = object if target is None else convert(object, target)
        result = _own(result, object) if copy else result
    elif isinstance(object, (list, tuple)) and holds_arrays(object):
        result = stack_nested(object)
        leaves = [x for x in tree.leaves(object) if isinstance(x, ArrayMethods)]
        result = strongly_typed(result, "array", *leaves) if target is None else convert(result, target)
    else:
        result = from_python(object, target)
        _log_constant()
    if result.ndim < ndmin:
        result = reshape_to(result, (1,) * (ndmin - result.ndim) + result.shape)
    return result


@on_device
def asarray(a, dtype=None, order: str | None = None, *, copy: bool | None = None, device=None, out_sharding=None):
    """As `array`; an Array of that dtype is returned as it is. Raises ArgumentError, DTypeError, ShapeError.

    >>> x = np.arange(3, dtype=np.float32)
    >>> hnp.asarray(x)
    Array([0., 1., 2.], dtype=float32)
    """
    return array(a, dtype, copy is True)


@on_device
def astype(x, dtype, /, *, copy: bool | None = None, device=None):
    """x with another dtype. Floats to integers truncate and saturate; complex to real drops the imaginary part.

    >>> hnp.astype(hnp.array([1.7, -1.7]), hnp.int32)
    Array([ 1, -1], dtype=int32)
    """
    if isinstance(x, KeyArray):
        return x.astype(dtype)
    x = as_operand(x, "astype")
    result = convert(x, as_dtype(dtype))
    return result if copy is False else _own(result, x)


def _own(result, x):
    """A result that is x itself as a new array, if assignments could distinguish them."""
    if result is x and isinstance(x, Tracer) and config.item_assignment:
        return bind("copy", x, weak=x.weak)
    if result is x and isinstance(x, Array) and config.item_assignment:
        return _with_digits_of(Array(x._held(), x.weak, x._device, x._shape), x)
    return result


def _with_digits_of(result: Array, x: Array) -> Array:
    """A copy of x, including digits beyond its dtype."""
    if has_twin(x):
        result._exact = x._exact
    return result


def copy(a, order: str | None = None):
    """A new array of the same elements, which remains valid when a is donated. For arrays on a GPU, a itself.

    >>> x = hnp.array([1, 2])
    >>> y = hnp.copy(x)
    >>> y is x
    False
    """
    x = as_operand(a, "copy")
    if isinstance(x, Array) and isinstance(data := x._held(), (np.ndarray, ShardedData)):
        return _with_digits_of(Array(data.copy(), x.weak, x._device, x._shape), x)
    return _own(x, x)


@on_device
def from_dlpack(x, /, *, device=None, copy=None):
    """An array from another library, through DLPack. On a GPU it shares the memory; on the host it is copied if the
    other library may write to it. Raises ArgumentError, CudaError, DeviceError.

    >>> hnp.from_dlpack(np.array([1.0, 2.0], np.float32))
    Array([1., 2.], dtype=float32)
    """
    return from_python(x)


def frombuffer(buffer, dtype=float, count: int = -1, offset: int = 0):
    """A vector of the elements in a buffer of bytes, copied. Raises DTypeError.

    >>> hnp.frombuffer(np.int32([1, 2, 3]).tobytes(), dtype=hnp.int32)
    Array([1, 2, 3], dtype=int32)
    """
    return Array(np.frombuffer(buffer, as_dtype(dtype), count, offset).copy())


# --- filled -------------------------------------------------------------------------------------------------------


@on_device
def zeros(shape, dtype=None, *, device=None, out_sharding=None):
    """Zeros, by default f32. Raises ShapeError, DTypeError.

    >>> hnp.zeros((2, 2), dtype="s32")
    Array([[0, 0],
           [0, 0]], dtype=int32)
    """
    return _constant(0, default_float() if dtype is None else as_dtype(dtype), canonical_shape(shape, "zeros"))


@on_device
def ones(shape, dtype=None, *, device=None, out_sharding=None):
    """Ones, by default f32. Raises ShapeError, DTypeError.

    >>> hnp.ones((2, 3))
    Array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float32)
    """
    return _constant(1, default_float() if dtype is None else as_dtype(dtype), canonical_shape(shape, "ones"))


empty = zeros


@on_device
def full(shape, fill_value, dtype=None, *, device=None, out_sharding=None):
    """fill_value broadcast to this shape; it keeps its weak type if no dtype is given.

    Raises ShapeError, DTypeError.

    >>> hnp.full((2, 2), 7, dtype="f32")
    Array([[7., 7.],
           [7., 7.]], dtype=float32)
    """
    dims = canonical_shape(shape, "full")
    (value,) = read((fill_value,), "full")
    dtype, weak = dtype_of(value) if dtype is None else (as_dtype(dtype), False)
    if type(value) in NUMBERS:
        result = _constant(_plain(value, dtype), dtype, dims)
        return _weak_full(result, value) if weak else result
    if broadcast_shapes("full", [value.shape, dims]) != dims:
        raise ShapeError(
            f"full broadcasts its value to {dims}", f"a value {value._shape!r}", "pass a value that fits into the shape"
        )
    return with_weakness(broadcast_dims_to(convert(value, dtype), dims), weak)


def _constant(value, dtype, dims):
    _log_constant()
    return full_constant(value, dtype, dims)


def _log_constant() -> None:
    if current_trace() is None:
        log_placement("constant", scoped_device())


def _weak_full(result, value):
    """A weakly typed array of one Python scalar, which keeps full precision when combined with double precision."""
    result = with_weakness(result, True)
    if isinstance(result, Array):
        result._exact = value
    return result


def _plain(value, dtype):
    """A Python number as the dtype's kind, by Python's own conversion (an f32 of an int keeps its sign and size)."""
    if dtype == PRED:
        return bool(value)
    return int(value) if dtype in INTEGERS and not isinstance(value, complex) else value


def _like(x, dtype, shape, name: str):
    if isinstance(x, (np.ndarray, np.generic)) or not (hasattr(x, "shape") and hasattr(x, "dtype")):
        x = as_operand(x, name)
    elif not isinstance(x, ArrayMethods):  # any object with a shape and a dtype, not only an array
        shape = x.shape if shape is None else shape
    return x.shape if shape is None else canonical_shape(shape, name), x.dtype if dtype is None else as_dtype(dtype)


def _filled(name: str, a, value, dtype, shape):
    weak = dtype is None and (a.weak if isinstance(a, ArrayMethods) else type(a) in (int, float, complex))
    dims, dtype = _like(a, dtype, shape, name)
    with beside(a):
        result = _as_model(_constant(value, dtype, dims), a)
    return with_weakness(result, True) if weak else result


def _as_model(result, a):
    """A result with the layout of its prototype."""
    return laid_out_as(result, a) if isinstance(a, ArrayMethods) and not device_scopes.device else result


@on_device
def zeros_like(a, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Zeros with the shape and dtype (and weak type) of a unless given.

    >>> hnp.zeros_like(hnp.array([[1.5, 2.5]]))
    Array([[0., 0.]], dtype=float32)
    """
    return _filled("zeros_like", a, 0, dtype, shape)


@on_device
def ones_like(a, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Ones with the shape and dtype (and weak type) of a unless given.

    >>> hnp.ones_like(hnp.array([3, 4]))
    Array([1, 1], dtype=int32)
    """
    return _filled("ones_like", a, 1, dtype, shape)


empty_like = zeros_like


@on_device
def full_like(a, fill_value, dtype=None, shape=None, *, device=None, out_sharding=None):
    """fill_value with the shape and dtype (and weak type) of a unless given. Raises ShapeError.

    >>> hnp.full_like(hnp.array([1.5, 2.5]), 3)
    Array([3., 3.], dtype=float32)
    """
    weak = dtype is None and (a.weak if isinstance(a, ArrayMethods) else type(a) in (int, float, complex))
    dims, dtype = _like(a, dtype, shape, "full_like")
    with beside(a):
        result = _as_model(full(dims, fill_value, dtype), a)
    return with_weakness(result, True) if weak else result


# --- ranges -------------------------------------------------------------------------------------------------------


def _static(value, name: str):
    """A Python number of a static argument."""
    if type(value) in NUMBERS or isinstance(value, SizeExpression):
        return value
    if isinstance(value, (np.generic, np.ndarray, ArrayMethods)):
        try:
            return value.item()
        except TracerConversionError as error:
            raise TracerConversionError(
                f"{name} takes static numbers",
                error.found,
                "shapes are fixed when a function is compiled: mark the number as static (static_argnums)",
            ) from None
    raise ArgumentError(f"{name} takes numbers", f"{type(value).__name__}: {value!r:.80}", "pass Python numbers")


@on_device
def arange(start, stop=None, step=None, dtype=None, *, device=None, out_sharding=None):
    """start, start + step, ..., excluding stop: ceil((stop - start) / step) values.

    All arguments are static. The dtype is s32 for integers and f32 otherwise, or that of array arguments. Raises
    ArgumentError.

    >>> hnp.arange(3)
    Array([0, 1, 2], dtype=int32)
    >>> hnp.arange(1, 2, 0.25)
    Array([1.  , 1.25, 1.5 , 1.75], dtype=float32)
    """
    if stop is None:
        start, stop = 0, start
    given = [v for v in (start, stop, step) if v is not None]
    by_default = dtype is None and all(type(v) in NUMBERS for v in given)
    if dtype is None:
        dtype = promoted(*[dtype_of(v) for v in read(given, "arange")])[0]
    dtype = as_dtype(dtype)
    start, stop = _static(start, "arange"), _static(stop, "arange")
    step = 1 if step is None else _static(step, "arange")
    if step == 0:
        raise ArgumentError("arange takes a step other than 0", "0", "pass a positive or negative step")
    if any(isinstance(v, SizeExpression) for v in (start, stop, step)):
        count: Any = greatest(-((start - stop) // step), 0)
    else:
        count = max(math.ceil((stop - start) / step), 0)
    work = DTYPES["s32"] if dtype == PRED else dtype
    result = lax.iota(work, count)
    if step != 1:
        result = lax.mul(result, _plain(step, work))
    if start != 0:
        result = lax.add(
            result, convert(start.as_array(), work) if isinstance(start, SizeExpression) else _plain(start, work)
        )
    result = convert(result, dtype)
    return created(result, "arange", (start, step)) if by_default else result


def _spaced(first, last, position, parts: Size, endpoint: bool):
    """The points between first and last at these positions, all of one shape."""
    work, shape = first.dtype, first.shape
    # One division each, so that integers are exact; scaled by a power of two to avoid intermediate overflow.
    scale = 2.0**-24 if isinstance(parts, SizeExpression) else 2.0 ** -parts.bit_length()
    distance = lax.sub(lax.mul(last, scale), lax.mul(first, scale))

    whole = full_constant(parts, work, shape)

    def moved(count):
        return lax.div(lax.div(lax.mul(count, distance), whole), scale)

    result = lax.add(first, moved(position))
    # If even the distance overflows the dtype, the second half is computed from the end.
    from_last = lax.sub(last, moved(lax.sub(whole, position)))
    finite = lax.is_finite(lax.real(result) if work in COMPLEX else result)
    result = lax.select(finite, result, from_last)
    if isinstance(parts, SizeExpression):  # of one point, the first
        last = lax.select(lax.eq(whole, full_constant(0, work, shape)), first, last)
    return lax.select(lax.eq(position, whole), last, result) if endpoint else result


def _line(first: np.ndarray, last: np.ndarray, num: int, parts: int) -> np.ndarray:
    """`_spaced` of two scalars, computed in blocks that fit in the cache."""
    work = first.dtype.type
    scale = work(2.0 ** -parts.bit_length())
    distance = last * scale - first * scale
    finite = np.isfinite(first + work(parts) * distance / work(parts) / scale)  # the largest intermediate value
    numbers = np.arange(min(num, PIECE)).astype(first.dtype)
    result = np.empty(num, first.dtype)
    for k in range(0, num, PIECE):
        position = numbers[: num - k] + work(k)
        piece = np.multiply(position, distance, out=result[k : k + PIECE])
        piece /= work(parts)
        piece *= 1 / scale
        piece += first
        if not finite:
            from_last = last - (parts - position) * distance / work(parts) / scale
            np.copyto(piece, from_last, where=~np.isfinite(piece))
    if parts < num:  # in f32 several positions may round to the last one
        np.copyto(piece, last, where=position == parts)
    return result


def _points(start, stop, num: int, endpoint: bool, axis: int):
    """The values of `linspace` in the dtype of start and stop, which have equal shapes."""
    work, dims = start.dtype, start.shape
    parts = num - 1 if endpoint else num
    if parts > 0 and not dims and work in FLOATS:
        result = at_once("linspace", lambda first, last: _line(first, last, num, parts), start, stop)
        if result is not None:
            return result
    shape = (*dims[:axis], num, *dims[axis:])
    kept = tuple(k for k in range(len(shape)) if k != axis)
    first, last = (bind("broadcast", v, shape=Shape(work, shape), dimensions=kept) for v in (start, stop))
    if parts <= 0:
        return first
    return _spaced(first, last, lax.broadcasted_iota(work, shape, axis), parts, endpoint)


@on_device
def linspace(
    start,
    stop,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype=None,
    axis: int = 0,
    *,
    device=None,
):
    """num evenly spaced values from start to stop (excluding stop unless endpoint), along a new axis.

    start and stop broadcast and may be traced. f32 or the dtype of array arguments. With retstep also returns the step.
    Raises ShapeError, DTypeError, ArgumentError.

    >>> hnp.linspace(0, 1, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    num = static_size(num, "linspace", "num")
    if num < 0:
        raise ShapeError("linspace takes a number of points that is not negative", f"num={num}", "pass num >= 0")
    target = None if dtype is None else as_dtype(dtype)
    by_default = target is None and type(start) in NUMBERS and type(stop) in NUMBERS
    by_default = by_default and not isinstance(num, SizeExpression)
    ends = (start, stop, (stop - start) / max(num - endpoint, 1)) if by_default else ()
    change = inexact_dtype if target is None else lambda _: inexact_dtype(target)
    (start, stop), _ = promote_operands("linspace", (start, stop), change)
    work, dims = start.dtype, start.shape
    if isinstance(num, SizeExpression) and work.itemsize < 4 and work in FLOATS:
        # 16-bit dtypes may not represent all positions.
        target = work if target is None else target
        work = DTYPES["f32"]
        start, stop = convert(start, work), convert(stop, work)
    axis = canonical_axis(axis, len(dims) + 1, "linspace")
    parts = num - 1 if endpoint else num
    result = _points(start, stop, num, endpoint, axis)
    if target is not None and target in INTEGERS:
        result = lax.floor(result)
    result = with_weakness(result if target is None else convert(result, target), False)
    if by_default:
        created(result, "linspace", ends)
    if not retstep:
        return result
    step = lax.div(lax.sub(stop, start), parts) if parts > 0 else full_constant(math.nan, work, dims)
    return result, step


def logspace(start, stop, num: int = 50, endpoint: bool = True, base=10.0, dtype=None, axis: int = 0):
    """base to the power of `linspace(start, stop, ...)`. Raises ShapeError, DTypeError.

    >>> hnp.logspace(0, 2, 3, base=2)
    Array([1., 2., 4.], dtype=float32)
    """
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    result = power(base, exponents)
    if dtype is None and type(start) in NUMBERS and type(stop) in NUMBERS:
        created(result, "logspace", None)
    return result if dtype is None else astype(result, dtype)


def geomspace(start, stop, num: int = 50, endpoint: bool = True, dtype=None, axis: int = 0):
    """num values from start to stop in geometric progression; start and stop are nonzero and have the same sign. Raises
    ShapeError.

    >>> hnp.geomspace(1, 1000, 4).round(2)
    Array([   1.,   10.,  100., 1000.], dtype=float32)
    """
    by_default = dtype is None and type(start) in NUMBERS and type(stop) in NUMBERS
    (start, stop), _ = promote_operands("geomspace", (start, stop), inexact_dtype)
    signs = lax.sign(start)
    exponents = linspace(lax.log(lax.mul(start, signs)), lax.log(lax.mul(stop, signs)), num, endpoint, axis=axis)
    axis = canonical_axis(axis, exponents.ndim, "geomspace")
    kept = tuple(k for k in range(exponents.ndim) if k != axis)

    def spread(x):
        return bind("broadcast", x, shape=exponents._shape, dimensions=kept)

    result = lax.mul(spread(signs), lax.exp(exponents))
    position = lax.broadcasted_iota(result.dtype, result.shape, axis)
    if num:
        result = lax.select(lax.eq(position, 0), spread(start), result)
    if endpoint and num > 1:
        result = lax.select(lax.eq(position, num - 1), spread(stop), result)
    if by_default:
        created(result, "geomspace", None)
    return result if dtype is None else astype(result, dtype)


def indices(dimensions, dtype=None, sparse: bool = False):
    """The index of every element along each axis: sizes (rank, *dimensions), or a tuple of broadcastable arrays.

    >>> rows, columns = hnp.indices((2, 3))
    >>> rows
    Array([[0, 0, 0],
           [1, 1, 1]], dtype=int32)
    """
    dims = canonical_shape(dimensions, "indices")
    dtype = default_int() if dtype is None else as_dtype(dtype)
    if sparse:
        return tuple(
            reshape_to(lax.iota(dtype, d), (1,) * k + (d,) + (1,) * (len(dims) - 1 - k)) for k, d in enumerate(dims)
        )
    if not dims:
        return full_constant(0, dtype, (0,))
    return lax.concatenate([lax.broadcasted_iota(dtype, (1, *dims), k + 1) for k in range(len(dims))], 0)


def meshgrid(*xi, copy: bool = True, sparse: bool = False, indexing: str = "xy"):
    """A list of coordinate arrays from coordinate vectors. 'xy' puts the first vector along axis 1, 'ij' along axis 0.

    Raises ShapeError, ArgumentError.

    >>> x, y = hnp.meshgrid(hnp.arange(3), hnp.arange(2))
    >>> x
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    >>> y
    Array([[0, 0, 0],
           [1, 1, 1]], dtype=int32)
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError("meshgrid takes indexing 'xy' or 'ij'", f"{indexing!r}", "pass one of the two")
    vectors = [as_operand(x, "meshgrid") for x in xi]
    if any(v.ndim > 1 for v in vectors):
        raise ShapeError(
            "meshgrid takes vectors", ", ".join(repr(v._shape) for v in vectors), "flatten them with hnp.ravel"
        )
    order = list(range(len(vectors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = 1, 0
    sizes = [v.size for v in vectors]
    dims = [0] * len(vectors)
    for k, axis in enumerate(order):
        dims[axis] = sizes[k]
    grids = []
    for vector, axis, size in zip(vectors, order, sizes, strict=True):
        own = tuple(size if k == axis else 1 for k in range(len(dims)))
        grid = reshape_to(vector, own)
        grids.append(grid if sparse else broadcast_dims_to(grid, tuple(dims)))
    return grids

"""Numbers and their bits: mantissa and exponent, neighbours, divisors, bytes and packed booleans."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from hloom import lax
from hloom.errors import ArgumentError, DTypeError, IndexOutOfBoundsError, ShapeError
from hloom.ir.types import COMPLEX, DTYPES, HLO_NAME, INTEGERS, PRED, as_dtype
from hloom.lax.operands import (
    as_operand,
    canonical_axis,
    canonical_shape,
    convert,
    default_int,
    full,
    index_of_axis,
    inexact_dtype,
    product,
    promote_operands,
    reshape_to,
    to_inexact,
)
from hloom.numpy.elementwise.logic import truth
from hloom.numpy.elementwise.table import refuse, weakly
from hloom.numpy.elementwise.ufuncs import remainder
from hloom.tracing.concrete import at_once
from hloom.tracing.trace import bind, current_trace

# --- floats -------------------------------------------------------------------------------------------------------

# Name: unsigned integer of its size, bits of the mantissa, bias of the exponent.
_LAYOUT = {"f16": ("u16", 10, 15), "bf16": ("u16", 7, 127), "f32": ("u32", 23, 127), "f64": ("u64", 52, 1023)}


def frexp(x, /):
    """(mantissa, exponent), x = mantissa * 2**exponent with 0.5 <= |mantissa| < 1; floats and s32.

    0, infinities and NaN are their own mantissa, with exponent 0. Raises DTypeError for complex x.

    >>> hnp.frexp(hnp.array([8.0, 0.75]))
    (Array([0.5 , 0.75], dtype=float32), Array([4, 0], dtype=int32))
    """
    x = to_inexact(x, "frexp")
    if HLO_NAME[x.dtype] not in _LAYOUT:
        raise refuse("frexp", x, "convert the operand to f32")
    if (found := at_once("frexp", np.frexp, x, weak=x.weak)) is not None:
        return found
    unsigned, bits, bias = _LAYOUT[HLO_NAME[x.dtype]]
    special = lax.bitwise_or(lax.eq(x, 0.0), lax.bitwise_not(lax.is_finite(x)))
    # Subnormal numbers are scaled up first, so that their exponent is in the bits.
    tiny = lax.lt(lax.abs(x), float(np.float64(2.0) ** (1 - bias)))
    scaled = lax.select(tiny, lax.mul(x, float(2.0**bits)), x)
    pattern = lax.bitcast_convert_type(scaled, unsigned)
    mask = (1 << (8 * x.dtype.itemsize - 1 - bits)) - 1
    raw = lax.bitwise_and(lax.shift_right_logical(pattern, full(bits, pattern.dtype, x.shape)), mask)
    exponent = lax.sub(convert(raw, DTYPES["s32"]), bias - 1)
    exponent = lax.select(tiny, lax.sub(exponent, bits), exponent)
    kept = lax.bitwise_and(pattern, ((1 << (8 * x.dtype.itemsize)) - 1) ^ (mask << bits))
    mantissa = lax.bitcast_convert_type(lax.bitwise_or(kept, (bias - 1) << bits), x.dtype)
    if current_trace() is not None:
        # Bit operations have no derivative: adding a zero gives the mantissa that of x / 2**exponent.
        one, largest = full(1, x.dtype, x.shape), full(float(ml_dtypes.finfo(x.dtype).max), x.dtype, x.shape)
        safe = lax.select(special, one, x)
        slope = lax.min(lax.abs(lax.div(mantissa, safe)), largest)
        mantissa = lax.add(mantissa, lax.mul(lax.sub(safe, lax.stop_gradient(safe)), lax.stop_gradient(slope)))
    zero = full(0, exponent.dtype, x.shape)
    return lax.select(special, x, mantissa), lax.select(special, zero, exponent)


def nextafter(x1, x2, /):
    """The next representable value after x1 towards x2; floats. Raises ShapeError, DTypeError for complex operands.

    >>> hnp.nextafter(hnp.array([1.0]), 2.0)
    Array([1.0000001], dtype=float32)
    """
    (a, b), weak = promote_operands("nextafter", (x1, x2), inexact_dtype)
    if a.dtype in COMPLEX:
        raise refuse("nextafter", a, "take the real or the imaginary part")
    return weakly(lax.nextafter(a, b), weak)


def spacing(x, /):
    """The distance from x to the next representable value away from 0, negative for negative x; floats.

    NaN for infinities and NaN. Raises DTypeError for complex x.

    >>> hnp.spacing(hnp.array([1.0, 1024.0]))
    Array([1.1920929e-07, 1.2207031e-04], dtype=float32)
    """
    x = to_inexact(x, "spacing")
    if x.dtype in COMPLEX:
        raise refuse("spacing", x, "take the real or the imaginary part")

    outward = lax.select(lax.lt(x, 0.0), full(-np.inf, x.dtype, x.shape), full(np.inf, x.dtype, x.shape))
    distance = lax.sub(lax.nextafter(x, outward), x)
    # For the largest finite value, the distance towards 0.
    inward = lax.sub(x, lax.nextafter(x, full(0.0, x.dtype, x.shape)))
    distance = lax.select(lax.is_finite(distance), distance, inward)
    return lax.select(lax.is_finite(x), distance, full(np.nan, x.dtype, x.shape))


# --- divisors -----------------------------------------------------------------------------------------------------


def gcd(x1, x2):
    """The greatest common divisor of integers, not negative, element-wise. Raises ShapeError, DTypeError.

    Euclid's algorithm, vectorized over all elements until every remainder is 0.

    >>> hnp.gcd(hnp.array([12, 18]), 8)
    Array([4, 2], dtype=int32)
    """
    (a, b), weak = _integers("gcd", x1, x2)
    return weakly(lax.bitcast_convert_type(_divisor(_magnitude(a), _magnitude(b)), a.dtype), weak)


def _magnitude(x):
    """|x| as an unsigned integer, which also represents that of the minimum."""
    return lax.bitcast_convert_type(lax.abs(x), np.dtype(f"u{x.dtype.itemsize}")) if x.dtype.kind == "i" else x


def _divisor(a, b):
    """The greatest common divisor of unsigned integers."""

    def step(pair):
        larger, smaller = pair
        ended = lax.eq(smaller, 0)
        rest = lax.rem(larger, lax.select(ended, full(1, larger.dtype, larger.shape), smaller))
        zero = full(0, larger.dtype, larger.shape)
        return lax.select(ended, larger, smaller), lax.select(ended, zero, rest)

    found, _ = lax.while_loop(lambda pair: lax.reduce_or(lax.ne(pair[1], 0), None), step, (a, b))
    return found


def lcm(x1, x2):
    """The least common multiple of integers, not negative, 0 where one is 0. Raises ShapeError, DTypeError.

    >>> hnp.lcm(hnp.array([4, 6]), 10)
    Array([20, 30], dtype=int32)
    """
    (x1, x2), weak = _integers("lcm", x1, x2)
    a, b = _magnitude(x1), _magnitude(x2)
    divisor = _divisor(a, b)
    safe = lax.select(lax.eq(divisor, 0), full(1, a.dtype, a.shape), divisor)
    return weakly(lax.bitcast_convert_type(lax.mul(lax.div(a, safe), b), x1.dtype), weak)


def _integers(name, x1, x2):
    (a, b), weak = promote_operands(name, (x1, x2))
    if a.dtype not in INTEGERS:
        raise refuse(name, a, "convert the operands to integers")
    return (a, b), weak


# --- bits and bytes -----------------------------------------------------------------------------------------------


def view(a, dtype):
    """The same bits as another dtype; the last size follows from the sizes of the elements.

    Python's float, int and complex are the 64-bit types (complex128) if the elements have 64 bits. Raises ShapeError if
    the last axis cannot be split or joined, DTypeError.

    >>> hnp.view(hnp.array([1.0]), hnp.int32)
    Array([1065353216], dtype=int32)
    """
    x, target = as_operand(a, "view"), as_dtype(dtype)
    if x.dtype.itemsize >= 8 and x.dtype != DTYPES["c64"]:
        wide = next((n for python, n in ((int, "s64"), (float, "f64"), (complex, "c128")) if dtype is python), None)
        target = target if wide is None else DTYPES[wide]
    if x.dtype == target:
        return x
    if PRED in (x.dtype, target) and target.itemsize == x.dtype.itemsize:
        return lax.ne(x, 0) if target == PRED else bind("convert", x, shape=x._shape.with_dtype(target))
    if x.dtype == PRED:
        x = convert(x, DTYPES["u8"])
    old, new = x.dtype.itemsize, target.itemsize
    if old == new:
        return lax.bitcast_convert_type(x, target)
    if not x.ndim or (old < new and x.shape[-1] * old % new):
        raise ShapeError(
            f"a view as {HLO_NAME[target]}",
            f"{x._shape!r}: its last axis does not hold whole elements of {new} bytes",
            "pad or reshape the operand",
        )
    if x.dtype in COMPLEX or target in COMPLEX:
        return _complex_view(x, target)
    if old < new:
        parts = reshape_to(x, (*x.shape[:-1], x.shape[-1] * old // new, new // old))
        return lax.bitcast_convert_type(parts, target)
    parts = lax.bitcast_convert_type(x, target)
    return reshape_to(parts, (*x.shape[:-1], x.shape[-1] * (old // new)))


def _complex_view(x, target):
    """Through the real dtype of half the size: a complex number is its real part, then its imaginary part."""
    if x.dtype in COMPLEX:
        pairs = lax.concatenate([reshape_to(p, (*x.shape, 1)) for p in (lax.real(x), lax.imag(x))], x.ndim)
        return view(reshape_to(pairs, (*x.shape[:-1], 2 * x.shape[-1])), target)
    real = view(x, "f32" if target == DTYPES["c64"] else "f64")
    pairs = reshape_to(real, (*real.shape[:-1], real.shape[-1] // 2, 2))
    re, im = (reshape_to(lax.slice_in_dim(pairs, k, k + 1, axis=-1), pairs.shape[:-1]) for k in (0, 1))
    return lax.complex(re, im)


def byteswap(a, inplace: bool = False):
    """The bytes of each element in reverse order. inplace=True is rejected. Raises ArgumentError.

    >>> hnp.byteswap(hnp.array([1], dtype=hnp.int16))
    Array([256], dtype=int16)
    """
    if inplace:
        raise ArgumentError("byteswap makes a new array", "inplace=True", "leave it out")
    x = as_operand(a, "byteswap")
    if x.dtype.itemsize == 1:
        return x
    parts = view(reshape_to(x, (*x.shape, 1)), "u8")
    if x.dtype in COMPLEX:
        half = x.dtype.itemsize // 2
        parts = reshape_to(lax.rev(reshape_to(parts, (*x.shape, 2, half)), (x.ndim + 1,)), (*x.shape, 2 * half))
    else:
        parts = lax.rev(parts, (x.ndim,))
    return reshape_to(view(parts, x.dtype), x.shape)


def _bit_order(name: str, order: str) -> list[int]:
    """The shift of each bit, in bit order."""
    if order not in ("big", "little"):
        raise ArgumentError(f"{name} takes bitorder 'big' or 'little'", f"{order!r}", "pass one of the two")
    return list(range(7, -1, -1) if order == "big" else range(8))


def packbits(a, axis: int | None = None, bitorder: str = "big"):
    """Booleans packed eight to a u8 along an axis (of the flat array); the last one is padded with zeros. Raises
    ShapeError.

    >>> hnp.packbits(hnp.array([1, 0, 0, 0, 0, 0, 1, 1], dtype=hnp.uint8))
    Array([131], dtype=uint8)
    """
    x = as_operand(a, "packbits")
    if x.dtype != PRED and x.dtype not in INTEGERS:
        raise DTypeError("packbits takes booleans or integers", f"{x._shape!r}", "compare the operand with 0 first")
    x = truth(x)
    shifts = _bit_order("packbits", bitorder)
    if axis is None:
        x, axis = reshape_to(x, (x.size,)), 0
    axis = canonical_axis(axis, x.ndim, "packbits")
    count = -(-x.shape[axis] // 8)
    bits = convert(x, DTYPES["u8"])
    fill = 8 * count - x.shape[axis]
    bits = lax.pad(bits, 0, [(0, fill if k == axis else 0, 0) for k in range(x.ndim)])
    split = reshape_to(bits, (*x.shape[:axis], count, 8, *x.shape[axis + 1 :]))
    weights = lax.broadcast_in_dim(as_operand(np.uint8(1 << np.array(shifts)), "packbits"), split.shape, (axis + 1,))
    return lax.reduce_or(lax.mul(split, weights), (axis + 1,))


def unpackbits(a, axis: int | None = None, count: int | None = None, bitorder: str = "big"):
    """The bits of u8 values as u8 values 0 and 1 along an axis (of the flat array).

    count: the number of bits per row; if negative, the number to omit; if larger than available, the row is padded with
    zeros. Raises ShapeError, DTypeError.

    >>> hnp.unpackbits(hnp.array([131], dtype=hnp.uint8))
    Array([1, 0, 0, 0, 0, 0, 1, 1], dtype=uint8)
    """
    x = as_operand(a, "unpackbits")
    if x.dtype != DTYPES["u8"]:
        raise DTypeError("unpackbits takes u8", f"{x._shape!r}", "convert the operand with astype('u8')")
    shifts = _bit_order("unpackbits", bitorder)
    if axis is None:
        x, axis = reshape_to(x, (x.size,)), 0
    axis = canonical_axis(axis, x.ndim, "unpackbits")
    dims = (*x.shape[: axis + 1], 8, *x.shape[axis + 1 :])
    spread = lax.broadcast_in_dim(x, dims, tuple(k for k in range(len(dims)) if k != axis + 1))
    places = lax.broadcast_in_dim(as_operand(np.array(shifts, np.uint8), "unpackbits"), dims, (axis + 1,))
    bits = lax.bitwise_and(lax.shift_right_logical(spread, places), 1)
    total = 8 * x.shape[axis]
    bits = reshape_to(bits, (*x.shape[:axis], total, *x.shape[axis + 1 :]))
    if count is None:
        return bits
    wanted = count if count >= 0 else max(total + count, 0)
    if wanted > total:
        return lax.pad(bits, 0, [(0, wanted - total if k == axis else 0, 0) for k in range(x.ndim)])
    return lax.slice_in_dim(bits, 0, wanted, axis=axis)


# --- flat indices -------------------------------------------------------------------------------------------------


def unravel_index(indices, shape):
    """The index along each axis, a tuple of arrays, of positions in the row-major order of this shape.

    Negative positions count from the end; positions out of bounds are clamped. Raises ShapeError, DTypeError.

    >>> hnp.unravel_index(hnp.array([4, 11]), (3, 4))
    (Array([1, 2], dtype=int32), Array([0, 3], dtype=int32))
    """
    dims = canonical_shape(shape, "unravel_index")
    position = as_operand(indices, "unravel_index")
    if position.dtype not in INTEGERS:
        raise refuse("unravel_index", position, "convert the positions to integers")
    if HLO_NAME[position.dtype] not in ("s32", "s64"):
        position = convert(position, default_int())
    size = product(dims)
    position = lax.select(lax.lt(position, 0), lax.add(position, size), position)
    position = lax.clamp(0, position, max(size - 1, 0))
    found = []
    for extent in reversed(dims):
        found.append(lax.rem(position, max(extent, 1)))
        position = lax.div(position, max(extent, 1))
    return tuple(reversed(found))


def ravel_multi_index(multi_index, dims, mode: str = "raise", order: str = "C"):
    """The position in row-major order (order 'F': column-major) of indexes, one array for each axis.

    mode 'wrap' and 'clip' define the treatment of indices out of bounds; 'raise' needs concrete values, which are not
    available inside of jit. Raises ShapeError, ArgumentError, DTypeError.

    >>> hnp.ravel_multi_index((hnp.array([1, 2]), hnp.array([0, 3])), (3, 4))
    Array([ 4, 11], dtype=int32)
    """
    extents = canonical_shape(dims, "ravel_multi_index")
    given = [as_operand(i, "ravel_multi_index") for i in multi_index]
    if len(given) != len(extents) or mode not in ("raise", "wrap", "clip") or order not in ("C", "F"):
        raise ArgumentError(
            "ravel_multi_index takes an index for each axis, mode 'raise', 'wrap' or 'clip', order 'C' or 'F'",
            f"{len(given)} indexes for sizes {extents}, {mode=}, {order=}",
            "match them",
        )
    given, _ = promote_operands("ravel_multi_index", given)
    if given and given[0].dtype not in INTEGERS:
        raise refuse("ravel_multi_index", given[0], "convert the indexes to integers")
    given = [index_of_axis(index, product(extents)) for index in given]  # positions, and their summands
    total, stride = None, 1
    pairs = list(zip(given, extents, strict=True))
    for index, extent in pairs if order == "F" else reversed(pairs):
        if mode == "wrap":
            index = remainder(index, extent)
        elif mode == "clip":
            index = lax.clamp(0, index, extent - 1)
        else:
            values = np.asarray(index)  # a traced index raises here: its value cannot be checked
            if values.size and not (values.min() >= 0 and values.max() < extent):
                raise IndexOutOfBoundsError(
                    f"an index along an axis of size {extent}",
                    f"{values.min()} to {values.max()}",
                    "pass mode='clip' or mode='wrap'",
                )
        part = lax.mul(index, stride)
        total = part if total is None else lax.add(total, part)
        stride *= extent
    return full(0, default_int(), ()) if total is None else total

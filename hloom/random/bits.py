"""Random bits from keys: seed, split, fold_in, bits. With threefry2x32, those of JAX with partitionable threefry.

Element i of an array is computed from the key and the counter i alone, so elements are independent and any loop can
compute the ones it needs. Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from hloom import lax
from hloom.arrays.keys import KeyArray
from hloom.config import config
from hloom.dispatch.jit import jit
from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import DTypeError, ShapeError, UndecidedSizeError
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.types import (
    DTYPES,
    FLOATS,
    HLO_NAME,
    INTEGERS,
    UNSIGNED,
    Shape,
    TupleShape,
    as_dtype,
    bit_width,
    default_dtype,
)
from hloom.lax.operands import as_operand, broadcast_shapes, canonical_shape, full, reshape_to
from hloom.random.keys import take_key
from hloom.tracing.trace import bind

U8, U16, U32, U64 = (DTYPES[n] for n in ("u8", "u16", "u32", "u64"))
UINT_OF_BITS = {8: U8, 16: U16, 32: U32, 64: U64}


@functools.lru_cache(maxsize=8192)
def _program(body, statics: tuple):
    @functools.wraps(body)
    def program(*arrays):
        return body(*arrays, *statics)

    del program.__wrapped__  # its signature would be the body's, with arguments other than arrays
    return jit(program)


def run(body, statics: tuple, *arrays):
    """body(*arrays, *statics), compiled once for each shape and set of statics, which must be hashable."""
    try:
        program = _program(body, statics)
    except UndecidedSizeError:  # sizes that refuse to be keys
        program = _program.__wrapped__(body, statics)
    return program(*arrays)


# --- threefry on arrays -------------------------------------------------------------------------------------------


def threefry(data, high, low):
    """Both words for a key u32[2] and counters (high, low) of one shape."""
    dims = low.shape
    k0, k1 = (lax.broadcast(lax.index_in_dim(data, k, keepdims=False), dims) for k in (0, 1))
    return tuple(bind(f"threefry2x32-{word}", k0, k1, high, low) for word in ("first", "second"))


def counters(size: int):
    """(high, low) words of 0, 1, ..., size - 1."""
    if not isinstance(size, SizeExpression) and size <= 2**32:  # the same numbers, with fewer instructions
        return full(0, U32, (size,)), bind("iota", shape=Shape(U32, (size,)), iota_dimension=0)
    numbers = bind("iota", shape=Shape(U64, (size,)), iota_dimension=0)
    high = lax.shift_right_logical(numbers, full(32, U64, (size,)))
    return lax.convert_element_type(high, U32), lax.convert_element_type(numbers, U32)


def _halves(data):
    """The two threefry keys of which an rbg key u32[4] is made."""
    return lax.slice_in_dim(data, 0, 2), lax.slice_in_dim(data, 2, 4)


def raw_bits(data, implementation: str, width: int, dims: tuple[int, ...]):
    """Random bits of a traced key: unsigned integers of this width and shape."""
    dtype, size = UINT_OF_BITS[width], math.prod(dims)
    if implementation != "threefry2x32":
        state = lax.bitcast_convert_type(reshape_to(data, (2, 2)), U64)

        asked = TupleShape([state._shape, Shape(dtype, dims)])
        return bind("rng-bit-generator", state, shape=asked, algorithm="rng_default")[1]
    first, second = threefry(data, *counters(size))
    if width == 64:
        first, second = (lax.convert_element_type(w, U64) for w in (first, second))
        result = lax.bitwise_or(lax.shift_left(first, full(32, U64, (size,))), second)
    else:
        result = lax.convert_element_type(lax.bitwise_xor(first, second), dtype)
    return reshape_to(result, dims)


def raw_split(data, implementation: str, dims: tuple[int, ...]):
    """u32[*dims, words]: new keys from a traced one."""
    if implementation == "unsafe_rbg":
        bits = raw_bits(data, "rbg", 32, (math.prod(dims) * 10, 4))
        return reshape_to(lax.slice(bits, (0, 0), bits.shape, (10, 1)), (*dims, 4))
    parts = (data,) if implementation == "threefry2x32" else _halves(data)
    size = math.prod(dims)
    keys = []
    for part in parts:
        keys.append(lax.concatenate([reshape_to(w, (size, 1)) for w in threefry(part, *counters(size))], 1))
    if len(keys) == 1:
        return reshape_to(keys[0], (*dims, 2))
    return reshape_to(lax.concatenate(keys, 1), (*dims, 4))


def raw_fold_in(data, implementation: str, number):
    """A new key from a traced one and a traced u32 number."""
    if implementation == "unsafe_rbg":
        bits = raw_bits(raw_seed(number, "rbg"), "rbg", 32, (10, 4))
        return lax.bitwise_xor(data, lax.index_in_dim(bits, 9, keepdims=False))
    parts = (data,) if implementation == "threefry2x32" else _halves(data)
    low = reshape_to(number, (1,))
    words = [w for part in parts for w in threefry(part, full(0, U32, (1,)), low)]
    return lax.concatenate(words, 0)


def raw_seed(seed, implementation: str):
    """The words of the key of a traced integer."""
    dtype = seed.dtype
    if dtype.itemsize == 8:
        unsigned = lax.convert_element_type(seed, U64)
        high = lax.convert_element_type(lax.shift_right_logical(unsigned, full(32, U64, ())), U32)
        low = lax.convert_element_type(unsigned, U32)
    else:
        high, low = full(0, U32, ()), lax.convert_element_type(seed, U32)
    words = [reshape_to(w, (1,)) for w in (high, low)]
    return lax.concatenate(words if implementation == "threefry2x32" else words * 2, 0)


def _seed_body(seed, implementation):
    return raw_seed(seed, implementation)


def seed_data(seed, implementation: str):
    """The words of the key of an integer array without dimensions."""
    return run(_seed_body, (implementation,), seed)


# --- the functions ------------------------------------------------------------------------------------------------


def _bits_body(data, implementation, width, dims):
    return raw_bits(data, implementation, width, dims)


@takes_out_sharding
def bits(key, shape=(), dtype=None, *, out_sharding=None):
    """Random bits, u8, u16, u32 or u64, of this shape. dtype: u32 (u64 with enable_x64) by default.

    Raises ArgumentError, DTypeError, ShapeError.

    >>> hl.random.bits(hl.random.key(0), (2, 3), "u8").shape
    (2, 3)
    """
    data, implementation = take_key(key, "bits")
    if dtype is None:
        dtype = DTYPES["u64" if config.enable_x64 else "u32"]
    dtype = as_dtype(dtype)
    if dtype not in UNSIGNED or dtype not in UINT_OF_BITS.values():
        raise DTypeError("random.bits makes unsigned integers", HLO_NAME[dtype], "take dtype='u32' and convert")
    return run(_bits_body, (implementation, 8 * dtype.itemsize, dims_of(shape, "bits")), data)


def _split_body(data, implementation, dims):
    return raw_split(data, implementation, dims)


def split(key, num=2):
    """New keys, independent of each other: as many as `num` says, or in an array of that shape.

    The key should not be used for anything else. Raises ArgumentError, ShapeError.

    >>> first, second = hl.random.split(hl.random.key(0))
    >>> hl.random.split(hl.random.key(0), (2, 3)).shape
    (2, 3)
    """
    data, implementation = take_key(key, "split")
    result = run(_split_body, (implementation, dims_of(num, "split")), data)
    return KeyArray(result, implementation) if isinstance(key, KeyArray) else result


def _fold_in_body(data, number, implementation):
    return raw_fold_in(data, implementation, lax.convert_element_type(number, U32))


def fold_in(key, data):
    """A new key from a key and an integer, such as the number of a step. Raises ArgumentError, DTypeError.

    >>> key = hl.random.key(0)
    >>> bool(hl.random.fold_in(key, 1) == hl.random.fold_in(key, 2))
    False
    """
    words, implementation = take_key(key, "fold_in")
    if isinstance(data, int) and not isinstance(data, bool):
        number = as_operand(np.array(data & 0xFFFFFFFF, np.uint32), "fold_in")
    else:
        number = as_operand(data, "fold_in")
    if number.dtype not in INTEGERS:
        raise DTypeError("random.fold_in takes an integer", f"{number._shape!r}", "pass the number of a step or a part")
    if number.shape:
        raise ShapeError("random.fold_in takes one integer", f"{number._shape!r}", "use hl.vmap over the integers")
    result = run(_fold_in_body, (implementation,), words, number)
    return KeyArray(result, implementation) if isinstance(key, KeyArray) else result


# --- what the distributions share ---------------------------------------------------------------------------------


def dims_of(shape, name: str) -> tuple[int, ...]:
    """Static sizes. Raises ArgumentError, ShapeError."""
    return canonical_shape(shape, f"random.{name}")


def float_dtype(dtype, name: str, complex_too: bool = False) -> np.dtype:
    """f32 for None, otherwise a float dtype that random numbers can be made in. Raises DTypeError."""
    found = default_dtype(float) if dtype is None else as_dtype(dtype)
    has_fraction = found in FLOATS and bit_width(found) >= 8 and HLO_NAME[found] != "f8e8m0fnu"
    if has_fraction or (complex_too and found.kind == "c"):
        return found
    raise DTypeError(f"random.{name} makes floats", HLO_NAME[found], "take dtype='f32'")


def parameters(name: str, shape, values, dtype, trailing: int = 0):
    """(static sizes of the result, the parameters as arrays of `dtype`).

    shape: None for what the parameters broadcast to; otherwise they must broadcast to it. trailing: how many last
    dimensions of the parameters belong to one problem. Raises ShapeError.
    """
    arrays = [lax.convert_element_type(as_operand(v, f"random.{name}"), dtype) for v in values]
    own = broadcast_shapes(name, [a.shape[: len(a.shape) - trailing] for a in arrays])
    if shape is None:
        return own, arrays
    dims = dims_of(shape, name)
    try:
        fits = broadcast_shapes(name, [own, dims]) == dims
    except ShapeError:
        fits = False
    if not fits:
        raise ShapeError(
            f"random.{name} makes an array of shape {dims}",
            f"its parameters have the shape {own}",
            "leave shape out, or pass one to which the parameters broadcast",
        )
    return dims, arrays

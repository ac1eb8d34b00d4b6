"""Random bits of `hloom.lax`: HLO's rng-bit-generator."""

from __future__ import annotations

import enum

from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import DTYPES, Shape, TupleShape, as_dtype
from hloom.lax.elementwise import bitcast_convert_type
from hloom.lax.operands import as_operand, canonical_shape, reshape_to
from hloom.tracing.trace import bind


class RandomAlgorithm(enum.IntEnum):
    """The generators of `rng_bit_generator`, as in `jax.lax`."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


_OPCODE_NAMES = {0: "rng_default", 1: "rng_three_fry", 2: "rng_philox"}


def rng_bit_generator(key, shape, dtype="u32", algorithm=RandomAlgorithm.RNG_DEFAULT):
    """(the next state, random bits of this shape).

    key: u32[4], or u64[2]: a key and a counter; for Philox also u32[6] or u64[3]. dtype: u8, u16, u32 or u64. The bits
    are those of XLA on a CPU. Raises ShapeError, DTypeError, ArgumentError.

    >>> key, bits = hl.lax.rng_bit_generator(hnp.zeros(4, dtype=hnp.uint32), (2, 3))
    >>> bits.shape, bits.dtype
    ((2, 3), dtype('uint32'))
    """
    key = as_operand(key, "rng_bit_generator")
    dims = canonical_shape(shape, "rng_bit_generator")
    number = int(algorithm)
    if number not in _OPCODE_NAMES:
        raise ArgumentError(
            "rng_bit_generator has no such algorithm", f"{algorithm!r}", "take one of lax.RandomAlgorithm"
        )
    words = key.dtype == DTYPES["u32"]
    if len(key.shape) != 1 or (words and key.shape[0] % 2):
        raise ShapeError(
            "rng_bit_generator takes a key of shape u32[4], u32[6], u64[2] or u64[3]",
            repr(key._shape),
            "pass the data of one key",
        )
    state = bitcast_convert_type(reshape_to(key, (key.shape[0] // 2, 2)), DTYPES["u64"]) if words else key
    asked = TupleShape([state._shape, Shape(as_dtype(dtype), dims)])
    following, bits = bind("rng-bit-generator", state, shape=asked, algorithm=_OPCODE_NAMES[number])
    if words:
        following = reshape_to(bitcast_convert_type(following, DTYPES["u32"]), key.shape)
    return following, bits

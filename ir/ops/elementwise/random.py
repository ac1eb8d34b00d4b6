"""Random bits: rng-bit-generator with its algorithms, and its counter-based generators.

Source: HLO operation semantics; Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011).
"""

from __future__ import annotations

import math

import numpy as np

from hloom.ir.build import Builder, Value
from hloom.ir.errors import AttributeValueError, DTypeError, ShapeError
from hloom.ir.interpret import evaluate
from hloom.ir.op_table import No, op
from hloom.ir.ops.rules import elementwise, require_count, zero_jvp
from hloom.ir.spmd.factors import leading
from hloom.ir.types import DTYPES, HLO_NAME, Shape, TupleShape

U32, U64 = DTYPES["u32"], DTYPES["u64"]
NO_TANGENT = No("its operands have no tangents")
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_MULTIPLIERS, _WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


# --- the generators -----------------------------------------------------------------------------------------------


def threefry2x32(k0, k1, x, y):
    """Both words of Threefry-2x32 with 20 rounds, of key (k0, k1) and counter (x, y): arrays of u32, or anything with
    their operators (`hloom.ir.build.Value`)."""
    keys = (k0, k1, k0 ^ k1 ^ _PARITY)
    x, y = x + keys[0], y + keys[1]
    for group in range(5):
        for count in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ ((y << count) | (y >> (32 - count)))
        x, y = x + keys[(group + 1) % 3], y + keys[(group + 2) % 3] + (group + 1)
    return x, y


def philox4x32(key, low, high):
    """Words (0, 1) and (2, 3) of Philox-4x32 with 10 rounds, packed in u64, the first one low. Arrays of u64."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    k0, k1 = key & mask, key >> half
    for _ in range(10):
        products = ((low & mask) * np.uint64(_MULTIPLIERS[0]), (high & mask) * np.uint64(_MULTIPLIERS[1]))
        low, high = (
            ((products[1] >> half) ^ (low >> half) ^ k0) | (products[1] << half),
            ((products[0] >> half) ^ (high >> half) ^ k1) | (products[0] << half),
        )
        k0, k1 = (k0 + np.uint64(_WEYL[0])) & mask, (k1 + np.uint64(_WEYL[1])) & mask
    return low, high


def _generator(name: str, arity: int, dtype, function, which: int, kernel: str, flops: float) -> None:
    same = elementwise(name, arity, ("unsigned",))

    def infer(operands, attributes, shape):
        found = same(operands, attributes, shape)
        if found.dtype != dtype:
            raise DTypeError(f"{name} takes {HLO_NAME[dtype]} elements", repr(found), "convert them with astype")
        return found

    def reference(*arrays, shape):
        with np.errstate(over="ignore"):
            return np.asarray(function(*arrays)[which])

    arguments = ", ".join(f"{{{k}}}" for k in range(arity))
    op(
        name,
        family="elementwise",
        infer=infer,
        reference=reference,
        code={"any": f"{kernel}({arguments})"},
        jvp=zero_jvp,
        transpose=NO_TANGENT,
        flops=flops,
    )


_generator("threefry2x32-first", 4, U32, threefry2x32, 0, "threefry2x32_first_u32", 110)
_generator("threefry2x32-second", 4, U32, threefry2x32, 1, "threefry2x32_second_u32", 110)
_generator("philox4x32-low", 3, U64, philox4x32, 0, "philox4x32_low_u64", 100)
_generator("philox4x32-high", 3, U64, philox4x32, 1, "philox4x32_high_u64", 100)

# --- rng-bit-generator --------------------------------------------------------------------------------------------

ALGORITHMS = ("rng_default", "rng_three_fry", "rng_philox")


def _infer(operands, attributes, shape):
    require_count("rng-bit-generator", operands, 1)
    algorithm = attributes.get("algorithm", "rng_default")
    if algorithm not in ALGORITHMS:
        raise AttributeValueError(
            "rng-bit-generator has no such algorithm", repr(algorithm), f"take one of {', '.join(ALGORITHMS)}"
        )
    state = operands[0]
    sizes = (2,) if algorithm == "rng_three_fry" else (2, 3)
    if not isinstance(state, Shape) or state.dtype != U64 or state.rank != 1 or state.dims[0] not in sizes:
        raise ShapeError(
            f"rng-bit-generator with {algorithm} takes a state of shape u64[{']  or u64['.join(map(str, sizes))}]",
            repr(state),
            "make the state of the key, then the counter",
        )
    if not isinstance(shape, TupleShape) or len(shape.elements) != 2 or shape.elements[0] is not state:
        raise ShapeError(
            "rng-bit-generator returns a new state and bits",
            f"the shape {shape!r}",
            f"ask for the tuple ({state!r}, bits)",
        )
    bits = shape.elements[1]
    if not isinstance(bits, Shape) or HLO_NAME[bits.dtype] not in ("u8", "u16", "u32", "u64"):
        raise DTypeError("rng-bit-generator makes u8, u16, u32 or u64", repr(bits), "bitcast the bits afterwards")
    return shape


def split_dimension(dims) -> int:
    """The dimension along which the two 32-bit words of a block are stored: the first even one, or else the largest."""
    for k, size in enumerate(dims):
        if size % 2 == 0:
            return k
    return dims.index(max(dims))


def expand(state, shape, algorithm: str) -> list:
    """The new state and the bits of rng-bit-generator, computed with the generators above.

    state: a Value, u64[..., 2 or 3]; its leading dimensions are a batch, which also leads the results.
    shape: the tuple shape of one batch element's results.
    """
    bits, lead = shape.elements[1], state.dims[:-1]
    width = bits.dtype.itemsize * 8
    key, counter = _element(state, 0), _element(state, 1)
    if algorithm == "rng_three_fry":
        data, blocks = _threefry_bits(key, counter, bits, width)
        elements = [key, counter + blocks]
    else:
        wide = state.dims[-1] == 3
        high = _element(state, 2) if wide else key
        data, blocks = _philox_bits(key, counter, high, bits, width)
        following = counter + blocks
        elements = [key, following]
        if wide:
            elements.append(following.compare("LT", counter).where(high + 1, high))
    first, *others = (e.reshape((*lead, 1)) for e in elements)
    return [first.op("concatenate", *others, dimensions=(len(lead),)), data]


def _element(state, k: int):
    lead = state.dims[:-1]
    whole = tuple((0, size, 1) for size in lead)
    return state.op("slice", slice=(*whole, (k, k + 1, 1))).reshape(lead)


def _spread(value, dims):
    """One value per batch element, broadcast to its elements."""
    return value.broadcast((*value.dims, *dims), range(len(value.dims)))


def _numbers(value, dims):
    """0, 1, ... in row-major order, u64, for each batch element."""
    count = math.prod(dims)
    flat = value.builder.emit("iota", shape=Shape(U64, (count,)), iota_dimension=0)
    lead = value.dims
    return Value(value.builder, flat).reshape(dims).broadcast((*lead, *dims), range(len(lead), len(lead) + len(dims)))


def _limited(value, dims):
    """The first elements of each dimension."""
    if value.dims == dims:
        return value
    return value.op("slice", slice=tuple((0, size, 1) for size in dims))


def _threefry_bits(key, counter, bits, width: int):
    lead, dims = key.dims, bits.dims or (1,)
    blocks = dims
    if width < 64:
        axis = split_dimension(dims)
        blocks = (*dims[:axis], (dims[axis] + 1) // 2, *dims[axis + 1 :])
    words = [*_words(_spread(key, blocks)), *_words(_spread(counter, blocks) + _numbers(counter, blocks))]
    first = words[0].op("threefry2x32-first", *words[1:])
    second = words[0].op("threefry2x32-second", *words[1:])
    if width == 64:
        data = first.convert(U64).op("or", second.convert(U64).op("shift-left", 32))
    else:
        pair = (*lead, *blocks[: axis + 1], 1, *blocks[axis + 1 :])
        joined = first.reshape(pair).op("concatenate", second.reshape(pair), dimensions=(len(lead) + axis + 1,))
        whole = joined.reshape((*lead, *blocks[:axis], 2 * blocks[axis], *blocks[axis + 1 :]))
        data = _limited(whole, (*lead, *dims)).convert(bits.dtype)
    return data.reshape((*lead, *bits.dims)), math.prod(blocks)


def _philox_bits(key, counter, high, bits, width: int):
    lead, size = key.dims, math.prod(bits.dims)
    count = -(-size // (2 if width == 64 else 4))
    start = _spread(counter, (count,))
    low = start + _numbers(counter, (count,))
    above = _spread(high, (count,))
    above = low.compare("LT", start).where(above + 1, above)
    halves = [_spread(key, (count,)).op(name, low, above) for name in ("philox4x32-low", "philox4x32-high")]
    parts = halves if width == 64 else [w for h in halves for w in _words(h)]
    first, *others = (p.reshape((*lead, count, 1)) for p in parts)
    joined = first.op("concatenate", *others, dimensions=(len(lead) + 1,))
    flat = joined.reshape((*lead, count * len(parts)))
    return _limited(flat, (*lead, size)).convert(bits.dtype).reshape((*lead, *bits.dims)), count


def _words(value):
    """The low and the high word of u64."""
    return value.convert(U32), value.op("shift-right-logical", 32).convert(U32)


def _reference(state, shape, algorithm="rng_default"):
    builder = Builder("rng_bit_generator")
    parameter = Value(builder, builder.parameter(Shape(state.dtype, state.shape)))
    results = expand(parameter, shape, algorithm)
    return evaluate(builder.finish(builder.tuple([r.instruction for r in results])), [state])


def _batch(build, instruction, operands, mapped):
    return expand(operands[0], instruction.shape, instruction.attributes.get("algorithm", "rng_default"))


op(
    "rng-bit-generator",
    family="library",
    infer=_infer,
    reference=_reference,
    code=No("a pass makes elementwise generators of it"),
    jvp=zero_jvp,
    transpose=NO_TANGENT,
    batch=_batch,
    factors=lambda instruction: leading(instruction, 0),
    attributes={"algorithm": "enum?"},
    shaped=True,
    flops=100,
    dialects="hlo",
)

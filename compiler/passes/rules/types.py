"""Rules of conversions between element types."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np

from hloom.ir.patterns import Any, Op, as_op
from hloom.ir.rewrite import Rules, rule
from hloom.ir.types import COMPLEX, DTYPES, FLOATS, FLOATS8, INTEGERS, PRED, SIGNED, real_dtype

BYTES = frozenset(DTYPES[name] for name in ("s8", "u8"))
SUMS = frozenset(DTYPES[name] for name in ("s32", "u32"))
x, y = Any("x"), Any("y")
convert, bitcast = as_op("convert"), as_op("bitcast-convert")


@cache
def holds(wide: np.dtype, narrow: np.dtype) -> bool:
    """Whether every value of `narrow` is representable in `wide`, so that the conversion is exact."""
    if narrow in (wide, PRED):
        return True
    if wide == PRED or (narrow in COMPLEX and wide not in COMPLEX):
        return False
    if wide in COMPLEX:
        return holds(real_dtype(wide), real_dtype(narrow))
    if wide in INTEGERS:
        if narrow not in INTEGERS:
            return False
        small, large = ml_dtypes.iinfo(narrow), ml_dtypes.iinfo(wide)
        return large.min <= small.min and small.max <= large.max
    outer = ml_dtypes.finfo(wide)
    if narrow in INTEGERS:
        small = ml_dtypes.iinfo(narrow)
        return small.bits - (narrow in SIGNED) <= outer.nmant + 1 and float(small.max) <= float(outer.max)
    # 8-bit floats differ in their support of infinities, -0 and NaN.
    if wide in FLOATS8:
        return False
    inner = ml_dtypes.finfo(narrow)
    return inner.nmant <= outer.nmant and inner.minexp >= outer.minexp and inner.maxexp <= outer.maxexp


@cache
def keeps_low_bits(middle: np.dtype, target: np.dtype, source: np.dtype) -> bool:
    """Whether source -> middle -> target is source -> target: integers wrap, so only the low bits count."""
    if not {middle, target, source} <= INTEGERS:
        return False
    return ml_dtypes.iinfo(middle).bits >= ml_dtypes.iinfo(target).bits >= 8


def can_skip(root, inner, x) -> bool:
    middle, target, source = inner.shape.dtype, root.shape.dtype, x.shape.dtype
    if source in INTEGERS and target in INTEGERS and middle not in INTEGERS:
        # Conversions from floats to integers clamp, between integers they wrap.
        return holds(middle, source) and holds(target, source)
    return holds(middle, source) or keeps_low_bits(middle, target, source)


TYPES = Rules(
    [
        rule(
            convert(x),
            x,
            when=lambda root, x: root.shape is x.shape,
            name="convert-to-same",
            identity="convert(x) = x to the dtype of x",
        ),
        rule(
            convert(convert(x, name="inner")),
            lambda b, root, x: b.convert(x, root.shape.dtype),
            when=can_skip,
            name="convert-of-convert",
            identity="convert(convert(x)) = convert(x) where the dtype between loses nothing",
        ),
        rule(
            bitcast(x),
            x,
            when=lambda root, x: root.shape is x.shape,
            name="bitcast-to-same",
            identity="bitcast(x) = x to the dtype of x",
        ),
        rule(
            bitcast(bitcast(x)),
            lambda b, root, x: b.emit("bitcast-convert", x, shape=root.shape),
            when=lambda root, x: root.dims == x.dims,
            name="bitcast-of-bitcast",
            identity="bitcast(bitcast(x)) = bitcast(x) between dtypes of one width",
        ),
        rule(
            Op("negate | abs", convert(x, name="inner")),
            lambda b, root, x, inner: b.convert(b.again(root, x), inner.shape.dtype),
            when=lambda root, x, inner: (
                root.opcode != "sign"
                and root.shape is inner.shape
                and x.shape.dtype in FLOATS
                and inner.shape.dtype in FLOATS
                and x.shape.dtype.itemsize < inner.shape.dtype.itemsize
            ),
            name="sign-change-before-widening",
            identity="-convert(x) = convert(-x), |convert(x)| = convert(|x|) where the dtype widens",
        ),
        rule(
            Op("is-finite", convert(x, name="inner")),
            lambda b, x: b.emit("is-finite", x),
            when=lambda x, inner: x.shape.dtype in FLOATS and holds(inner.shape.dtype, x.shape.dtype),
            name="is-finite-before-widening",
            identity="is-finite(convert(x)) = is-finite(x) where the dtype widens",
        ),
        rule(
            Op("dot", convert(x, name="inner"), convert(y, name="other")),
            lambda b, root, x, y: b.emit("dot", x, y, shape=root.shape, **root.attributes),
            when=lambda root, x, y, inner, other: (
                BYTES.issuperset((x.shape.dtype, y.shape.dtype))
                and root.shape.dtype in SUMS
                and holds(inner.shape.dtype, x.shape.dtype)
                and holds(other.shape.dtype, y.shape.dtype)
            ),
            name="dot-before-widening",
            identity="dot(convert(x), convert(y)) = dot(x, y) of 8-bit integers, summed in 32 bits, where dtypes widen",
        ),
    ]
)

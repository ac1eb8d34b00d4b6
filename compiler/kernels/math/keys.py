"""Floats as integers in their order, for running maxima and minima.

LLVM makes a chain of six dependent instructions of an IEEE maximum; one of an integer maximum. So a loop takes the
maximum of keys, and what makes a key does not wait for the element before. -0 is below 0; a NaN is the largest key of
a maximum and the smallest of a minimum, both of which stand for NaN again.
"""

from __future__ import annotations

from hloom.compiler.kernels.math.bits import (
    bitcast_f32_s32,
    bitcast_f64_s64,
    bitcast_s32_f32,
    bitcast_s64_f64,
    s32,
    s64,
    select,
)
from hloom.compiler.kernels.math.registry import function

TOP_S32, TOP_S64 = 2**31 - 1, 2**63 - 1


@function("s32", "s32")
def flipped_s32(bits):
    """Bits of a float as its key, and back: those of negative numbers but for the sign are the other way round."""
    return s32(bits ^ ((bits >> s32(31)) & s32(TOP_S32)))


@function("s64", "s64")
def flipped_s64(bits):
    """Bits of a float as its key, and back."""
    return bits ^ ((bits >> s64(63)) & s64(TOP_S64))


@function("f32", "s32")
def maxkey_f32(x):
    """the key of an element of a maximum."""
    return select(x == x, flipped_s32(bitcast_f32_s32(x)), s32(TOP_S32))


@function("f32", "s32")
def minkey_f32(x):
    """the key of an element of a minimum."""
    return select(x == x, flipped_s32(bitcast_f32_s32(x)), s32(-TOP_S32 - 1))


@function("s32", "f32")
def keyed_f32(key):
    """the number that has a key."""
    return bitcast_s32_f32(flipped_s32(key))


@function("f64", "s64")
def maxkey_f64(x):
    """the key of an element of a maximum."""
    return select(x == x, flipped_s64(bitcast_f64_s64(x)), s64(TOP_S64))


@function("f64", "s64")
def minkey_f64(x):
    """the key of an element of a minimum."""
    return select(x == x, flipped_s64(bitcast_f64_s64(x)), s64(-TOP_S64 - 1))


@function("s64", "f64")
def keyed_f64(key):
    """the number that has a key."""
    return bitcast_s64_f64(flipped_s64(key))

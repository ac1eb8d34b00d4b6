"""Products of 8-bit integers with zero points, which several rules share.

Where DequantizeLinear makes both operands of a product, their integers are multiplied, and the scales are applied to
the sum, on processors where that is faster: what ONNX's quantized models mean. A sum of differences from zero points is
exact in s32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.compiler.targets.cpu.machine import host

DEPTH = (1 << 31) // (255 * 255)  # products of differences of which each sum fits in s32
_FLIP = 128  # the difference of an 8-bit pattern's values with and without a sign


def as_bytes(x, zero, signed: bool):
    """(x, its zero point in s32 or None where that is 0) as 8-bit integers with or without a sign: the other kind moves
    both by 128. Differences do not change."""
    wanted = np.dtype(np.int8 if signed else np.uint8)
    moves = x.dtype != wanted
    if moves:
        x = lax.bitcast_convert_type(x ^ np.array(-_FLIP if x.dtype == np.int8 else _FLIP, x.dtype), wanted)
    if zero is None:
        zero = np.zeros((), np.int32)
    wide = zero.astype(np.int32) + np.int32((-_FLIP if signed else _FLIP) * moves)
    # NumPy's sums of arrays without an axis are its scalars, not arrays.
    return x, None if isinstance(wide, (np.ndarray, np.generic)) and not wide.any() else wide


def along(zero, axis: int, rank: int):
    """A zero point of the whole, or one of each index along an axis, to broadcast over an array of that rank."""
    if zero.ndim > 1:  # of each row or column of each matrix
        return zero
    if zero.ndim == 0 or zero.shape[0] == 1:
        return hnp.reshape(zero, ())
    return hnp.reshape(zero, [-1 if k == axis % rank else 1 for k in range(rank)])


def product(a, b, a_zero, b_zero):
    """(a - a_zero) @ (b - b_zero), for zero points of the whole, of the rows of a, and of the columns of b: in s32 of
    8-bit integers, in f32 of 8-bit floats.

    The product is of these integers themselves, u8 by s8, of which processors multiply the most at a time. Sums of the
    columns of b, which are computed once if b is a weight, and of the rows of a correct it, exactly, as s32 wraps.
    """
    if a.ndim == 1:
        made = product(a[None], b, a_zero, b_zero)
        return made[..., 0, :] if b.ndim > 1 else made[0]
    if b.ndim == 1:
        return product(a, b[:, None], a_zero, b_zero)[..., 0]
    if np.dtype(a.dtype).kind not in "iu" or np.dtype(b.dtype).kind not in "iu":
        sides = ((a, a_zero, -2), (b, b_zero, -1))
        return hnp.matmul(*[x.astype(np.float32) - along(z.astype(np.float32), k, x.ndim) for x, z, k in sides])
    a, a_zero = as_bytes(a, a_zero, signed=False)
    b, b_zero = as_bytes(b, b_zero, signed=True)
    total = hnp.matmul(a, b, preferred_element_type=np.int32)
    if a_zero is not None:
        a_zero = along(a_zero, -2, a.ndim)
        total = total - a_zero * hnp.sum(b, -2, dtype=np.int32, keepdims=True)
    if b_zero is not None:
        differences = a.astype(np.int32) if a_zero is None else a.astype(np.int32) - a_zero
        total = total - hnp.sum(differences, -1, keepdims=True) * along(b_zero, -1, b.ndim)
    return total


@dataclass(frozen=True, eq=False)
class Dequantized:
    """What DequantizeLinear made `value`, of f32, of: 8-bit integers, with one scale or those of an axis."""

    value: Any
    whole: Any
    scale: Any
    zero: Any
    axis: int

    @property
    def has_one_scale(self) -> bool:
        return self.scale.size == 1

    def is_along(self, axis: int) -> bool:
        """Whether it has one scale, or those of an axis."""
        return self.has_one_scale or self.axis == axis

    @property
    def turned(self) -> Dequantized:
        """That of a transposed matrix."""
        return Dequantized(self.value.T, self.whole.T, self.scale, self.zero, 1 - self.axis)


def is_faster() -> bool:
    """Whether products of 8-bit integers are faster than those of f32, which are as many on processors without
    instructions for them."""
    return host().multiplies_bytes


def dequantized_product(a: Dequantized | None, b: Dequantized | None):
    """The product of the values in f32, by one of integers; None where they are not those of two matrices, or stacks of
    them, with one scale, and with one or those of the columns."""
    if a is None or b is None or a.whole.ndim < 2 or b.whole.ndim < 2 or a.whole.shape[-1] > DEPTH:
        return None
    if not a.has_one_scale or not b.is_along(b.whole.ndim - 1) or not is_faster():
        return None
    total = product(a.whole, b.whole, a.zero, b.zero)
    return total.astype(np.float32) * (hnp.reshape(a.scale, ()) * b.scale)

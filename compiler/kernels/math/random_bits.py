"""Counter-based random bits: Threefry-2x32 with 20 rounds and Philox-4x32 with 10.

Source: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011). Pairs of words are packed in
a u64, the first one low; LLVM takes such packings apart again, so that the rounds work on words of 32 bits.
"""

from __future__ import annotations

from hloom.compiler.kernels.math.bits import u32, u64
from hloom.compiler.kernels.math.registry import function

PARITY = 0x1BD11BDA
PHILOX_M0, PHILOX_M1, PHILOX_W0, PHILOX_W1 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85


@function("u32 u32", "u32")
def rotate_left_u32(x, count):
    """bits shifted out on the left come in on the right, 0 < count < 32."""
    return u32(u32(x << count) | u32(x >> u32(u32(32) - count)))


@function("u32 u32", "u64")
def pack_u32(low, high):
    """two words as one of 64 bits."""
    return u64(low) | (u64(high) << u64(32))


@function("u32 u32 u32 u32 u32 u32", "u64")
def threefry_rounds_u32(x, y, a, b, c, d):
    """four rounds with these rotations, packed."""
    x = u32(x + y)
    y = u32(x ^ rotate_left_u32(y, a))
    x = u32(x + y)
    y = u32(x ^ rotate_left_u32(y, b))
    x = u32(x + y)
    y = u32(x ^ rotate_left_u32(y, c))
    x = u32(x + y)
    y = u32(x ^ rotate_left_u32(y, d))
    return pack_u32(x, y)


@function("u32 u32 u32 u32", "u64")
def threefry2x32_packed_u32(k0, k1, x, y):
    """both words of Threefry-2x32."""
    k2 = u32(u32(k0 ^ k1) ^ u32(PARITY))
    p = threefry_rounds_u32(u32(x + k0), u32(y + k1), u32(13), u32(15), u32(26), u32(6))
    x, y = u32(u32(p) + k1), u32(u32(u32(p >> u64(32)) + k2) + u32(1))
    p = threefry_rounds_u32(x, y, u32(17), u32(29), u32(16), u32(24))
    x, y = u32(u32(p) + k2), u32(u32(u32(p >> u64(32)) + k0) + u32(2))
    p = threefry_rounds_u32(x, y, u32(13), u32(15), u32(26), u32(6))
    x, y = u32(u32(p) + k0), u32(u32(u32(p >> u64(32)) + k1) + u32(3))
    p = threefry_rounds_u32(x, y, u32(17), u32(29), u32(16), u32(24))
    x, y = u32(u32(p) + k1), u32(u32(u32(p >> u64(32)) + k2) + u32(4))
    p = threefry_rounds_u32(x, y, u32(13), u32(15), u32(26), u32(6))
    x, y = u32(u32(p) + k2), u32(u32(u32(p >> u64(32)) + k0) + u32(5))
    return pack_u32(x, y)


@function("u32 u32 u32 u32", "u32")
def threefry2x32_first_u32(k0, k1, x, y):
    """Threefry-2x32, 20 rounds: the first word."""
    return u32(threefry2x32_packed_u32(k0, k1, x, y))


@function("u32 u32 u32 u32", "u32")
def threefry2x32_second_u32(k0, k1, x, y):
    """Threefry-2x32, 20 rounds: the second word."""
    return u32(threefry2x32_packed_u32(k0, k1, x, y) >> u64(32))


# One round of Philox on the packed words (c0, c1) and (c2, c3): (hi(c2 M1) ^ c1 ^ k0, lo(c2 M1)) and likewise.


@function("u64 u64 u64 u32", "u64")
def philox_half_u64(same, other, multiplier, key):
    """(high word of (low word of other) * multiplier ^ high word of same ^ key, low word of the product), packed."""
    product = (other & u64(0xFFFFFFFF)) * multiplier
    word = (product >> u64(32)) ^ (same >> u64(32)) ^ u64(key)
    return word | (product << u64(32))


@function("u64 u64 u64 pred", "u64")
def philox4x32_half_u64(key, low, high, second):
    """Philox-4x32, 10 rounds: words 0 and 1, or 2 and 3, packed."""
    k0, k1 = u32(key), u32(key >> u64(32))
    for _ in range(10):
        first = philox_half_u64(low, high, u64(PHILOX_M1), k0)
        high = philox_half_u64(high, low, u64(PHILOX_M0), k1)
        low = first
        k0, k1 = u32(k0 + u32(PHILOX_W0)), u32(k1 + u32(PHILOX_W1))
    return high if second else low


@function("u64 u64 u64", "u64")
def philox4x32_low_u64(key, low, high):
    """Philox-4x32, 10 rounds, of the counter low + 2^64 high: words 0 and 1."""
    return philox4x32_half_u64(key, low, high, False)


@function("u64 u64 u64", "u64")
def philox4x32_high_u64(key, low, high):
    """Philox-4x32, 10 rounds, of the counter low + 2^64 high: words 2 and 3."""
    return philox4x32_half_u64(key, low, high, True)

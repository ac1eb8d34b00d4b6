"""Radices of Fourier transforms, and tables of roots of unity for the kernels of `fft`."""

from __future__ import annotations

import functools
import math

import numpy as np

from hloom.ir.types import DTYPES

PRIMES = (2, 3, 5, 7, 11, 13)


def radices_of(n: int) -> tuple[int, ...] | None:
    """The radices of the passes of a transform of length n >= 2; None where a prime factor is too large.

    Eights where possible: a pass of radix 8 reads and writes everything once, three of radix 2 three times.
    """
    twos = (n & -n).bit_length() - 1
    rest = n >> twos
    odd = []
    for prime in PRIMES[1:]:
        while rest % prime == 0:
            rest //= prime
            odd.append(prime)
    if rest != 1:
        return None
    if twos % 3 == 1 and twos > 1:
        even = [4, 4] + [8] * (twos // 3 - 1)
    else:
        even = [2 ** (twos % 3)] * (twos % 3 > 0) + [8] * (twos // 3)
    return tuple(odd + even)


def roots(numerators: np.ndarray, n: int, sign: float) -> np.ndarray:
    """exp(sign 2 pi i k / n), from an angle of at most an eighth of a turn: as exact as it can be."""
    k = numerators % n
    octant = 8 * k // n
    # Each eighth of a turn from its nearer axis.
    offset = k * 8 - ((octant + 1) // 2 * 2) * n
    angle = (math.pi / 4) * offset / n
    c, s = np.cos(angle), np.sin(angle)
    quarter = (octant + 1) // 2 % 4
    real = np.choose(quarter, [c, -s, -c, s])
    imag = np.choose(quarter, [s, c, -s, -c])
    return real + sign * 1j * imag


def parts(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Complex numbers as a flat array of real and imaginary parts."""
    flat = np.ascontiguousarray(numbers.reshape(-1)).view(np.float64)
    return np.ascontiguousarray(flat.astype(DTYPES[dtype]))


@functools.lru_cache(256)
def factors_of(n: int, dtype: str, sign: float) -> tuple[np.ndarray, tuple[tuple[int, int, int], ...]]:
    """(the factors of all passes but the last, then of each pass (place in them, m, s))."""
    tables, passes, place, s = [], [], 0, 1
    for radix in radices_of(n) or ():
        m = n // (s * radix)
        passes.append((place, m, s))
        if m > 1:
            powers = np.arange(m)[:, None] * np.arange(1, radix)
            tables.append(parts(roots(powers, m * radix, sign), dtype))
            place += tables[-1].size
        s *= radix
    tables.append(np.zeros(1, DTYPES[dtype]))
    return np.concatenate(tables), tuple(passes)


@functools.lru_cache(16)  # a megabyte each for the longest
def twiddles_of(n1: int, n2: int, lanes: int, dtype: str, sign: float) -> tuple[np.ndarray, np.ndarray]:
    """The roots of order n1 * n2 between the two steps, as products of those for the first of a block's columns
    (block, k) and those for each lane (k, parts, lane)."""
    k = np.arange(n1)
    blocks = np.arange(0, n2, lanes)[:, None] * k
    lane = roots(k[:, None] * np.arange(lanes), n1 * n2, sign)
    vectors = np.stack([lane.real, lane.imag], 1)
    return parts(roots(blocks, n1 * n2, sign), dtype), np.ascontiguousarray(vectors.astype(DTYPES[dtype]).reshape(-1))


@functools.lru_cache(64)
def spectrum_twiddles(m: int, dtype: str, which: str) -> np.ndarray:
    numbers = roots(np.arange(m // 2 + 1), 2 * m, -1.0 if which == "half" else 1.0)
    return parts(numbers * (0.5 if which == "half" else 1.0), dtype)


@functools.lru_cache(256)
def scale_of(count: int, dtype: str) -> np.ndarray:
    return np.full(1, 1 / count, DTYPES[dtype])

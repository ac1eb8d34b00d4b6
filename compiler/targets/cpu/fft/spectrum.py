"""Kernels for spectra of real transforms that are too long for the blocks of `transforms`: passes over memory."""

from __future__ import annotations

import functools

from hloom.compiler.kernel_ir.generic.language import Pointer, R, fma, kernel_function, quotient, s64
from hloom.compiler.kernel_ir.nodes import Var
from hloom.compiler.kernels.codegen.functions import source_of
from hloom.compiler.kernels.codegen.source import KernelSource

PIECE = 2048  # pairs of elements in an item


@kernel_function
def half(given: Pointer[R], made: Pointer[R], twiddles: Pointer[R], m: s64, pieces: s64, lo: s64, hi: s64) -> None:
    """The spectrum of 2m real numbers from the transform of m pairs; an item is a piece of a row with its mirror."""
    for item in range(lo, hi):
        row = quotient(item, pieces)
        first = (item - row * pieces) * PIECE
        x = row * m * 2
        y = row * (m + 1) * 2
        if first == 0:
            made[y] = given[x] + given[x + 1]
            made[y + 1] = R(0)
            made[y + 2 * m] = given[x] - given[x + 1]
            made[y + 2 * m + 1] = R(0)
        for k in range(max(first, 1), min(first + PIECE, quotient(m, 2) + 1)):
            low = x + 2 * k
            high = x + 2 * (m - k)
            even_real = (given[low] + given[high]) * R(0.5)
            even_imag = (given[low + 1] - given[high + 1]) * R(0.5)
            odd_real = given[low + 1] + given[high + 1]
            odd_imag = given[high] - given[low]
            c = twiddles[2 * k]
            s = twiddles[2 * k + 1]
            made[y + 2 * k] = fma(odd_real, c, fma(-odd_imag, s, even_real))
            made[y + 2 * k + 1] = fma(odd_real, s, fma(odd_imag, c, even_imag))
            made[y + 2 * (m - k)] = fma(-odd_real, c, fma(odd_imag, s, even_real))
            made[y + 2 * (m - k) + 1] = fma(odd_real, s, fma(odd_imag, c, -even_imag))


@kernel_function
def whole(given: Pointer[R], made: Pointer[R], twiddles: Pointer[R], m: s64, pieces: s64, lo: s64, hi: s64) -> None:
    """The transform of m pairs, but for a factor of 2, from the spectrum of 2m real numbers."""
    for item in range(lo, hi):
        row = quotient(item, pieces)
        first = (item - row * pieces) * PIECE
        x = row * (m + 1) * 2
        y = row * m * 2
        if first == 0:
            made[y] = given[x] + given[x + 2 * m]
            made[y + 1] = given[x] - given[x + 2 * m]
        for k in range(max(first, 1), min(first + PIECE, quotient(m, 2) + 1)):
            low = x + 2 * k
            high = x + 2 * (m - k)
            even_real = given[low] + given[high]
            even_imag = given[low + 1] - given[high + 1]
            difference_real = given[low] - given[high]
            difference_imag = given[low + 1] + given[high + 1]
            c = twiddles[2 * k]
            s = twiddles[2 * k + 1]
            made[y + 2 * k] = fma(-difference_real, s, fma(-difference_imag, c, even_real))
            made[y + 2 * k + 1] = fma(difference_real, c, fma(-difference_imag, s, even_imag))
            made[y + 2 * (m - k)] = fma(difference_real, s, fma(difference_imag, c, even_real))
            made[y + 2 * (m - k) + 1] = fma(difference_real, c, fma(-difference_imag, s, -even_imag))


@functools.cache
def spectrum_kernel(which: str, dtype: str) -> KernelSource:
    """The kernel 'half' or 'whole'."""
    params = [Var(f"*{dtype}", name) for name in ("given", "made", "twiddles")]
    params += [Var("s64", name) for name in ("m", "pieces", "lo", "hi")]
    function = half if which == "half" else whole
    given = {var.name: var for var in params}
    return source_of(function, f"fft_{which}_{dtype}", params, given, {"R": dtype})

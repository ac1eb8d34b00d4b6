"""The discrete Fourier transform with `jax.lax`'s names."""

from __future__ import annotations

import enum

from hloom.errors import ArgumentError
from hloom.lax.operands import as_operand, canonical_shape
from hloom.tracing.trace import bind


class FftType(enum.IntEnum):
    """The four transforms: complex to complex, its inverse, real to half-spectrum, and its inverse."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


def fft(x, fft_type, fft_lengths):
    """The discrete Fourier transform over the last one to three axes.

    fft_type: an FftType or its name; fft_lengths: the sizes of those axes (of the real side for RFFT and IRFFT).
    Forward transforms are not scaled, inverse ones are divided by the number of points. f32 and c64 are computed in
    single precision. Raises ShapeError, DTypeError, ArgumentError.

    >>> hl.lax.fft(hnp.array([1.0, 0.0, 0.0, 0.0]), "RFFT", (4,)).real
    Array([1., 1., 1.], dtype=float32)
    """
    x = as_operand(x, "fft")
    name = fft_type.upper() if isinstance(fft_type, str) else None
    if name is None:
        try:
            name = FftType(int(fft_type)).name
        except (TypeError, ValueError):
            name = ""
    if name not in FftType.__members__:
        raise ArgumentError(
            f"fft takes one of the types {', '.join(FftType.__members__)}", f"{fft_type!r}", "pass lax.FftType.FFT"
        )
    return bind("fft", x, fft_type=name, fft_length=canonical_shape(fft_lengths, "fft"))

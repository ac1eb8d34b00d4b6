"""`jax.scipy.signal`: convolution and correlation in any number of dimensions, detrending, and short-time spectra."""

from __future__ import annotations

import functools
import itertools
import math
import operator

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.errors import AttributeValueError, ShapeError
from hloom.ir.process.lazy import LazyModule
from hloom.lax.operands import as_operand, canonical_axes, canonical_axis, promote_operands, to_inexact
from hloom.numpy.linear.convolution import MODES, mode_padding, slide

scipy_signal = LazyModule("scipy.signal")

# --- convolution --------------------------------------------------------------------------------------------------


def _pair(name: str, in1, in2):
    (x, y), _ = promote_operands(name, [as_operand(in1, name), as_operand(in2, name)], broadcast=False)
    if x.ndim != y.ndim:
        raise ShapeError(f"{name} takes arrays of one rank", f"{x._shape!r} and {y._shape!r}", "add dimensions to one")
    if not x.size or not y.size:
        raise ShapeError(
            f"{name} takes arrays with elements", f"{x._shape!r} and {y._shape!r}", "pass non-empty arrays"
        )
    return x, y


def _checked(name: str, mode: str, choices=MODES) -> None:
    if mode not in choices:
        raise AttributeValueError(f"{name} takes one of {', '.join(choices)}", f"{mode!r}", "name one of them")


def _is_covered(name: str, x, y) -> bool:
    """For mode 'valid': whether y fits into x, and not x into y. Raises ShapeError where neither fits."""
    if all(a >= b for a, b in zip(x.shape, y.shape, strict=True)):
        return True
    if all(a <= b for a, b in zip(x.shape, y.shape, strict=True)):
        return False
    raise ShapeError(
        f"{name} with mode 'valid' takes an array that fits into the other in every dimension",
        f"{x._shape!r} and {y._shape!r}",
        "use mode 'same' or 'full'",
    )


def _turned(x):
    return lax.rev(x, tuple(range(x.ndim)))


def _conjugate(x):
    return lax.conj(x) if x.dtype.kind == "c" else x


def convolve(in1, in2, mode: str = "full", method: str = "auto", precision=None):
    """The convolution of two arrays of one rank.

    mode: 'full', 'same' (the middle, of in1's shape) or 'valid' (complete overlap only). method: 'direct', 'fft', or
    'auto', which is direct. Raises ShapeError, AttributeValueError.

    >>> hl.scipy.signal.convolve(hnp.array([1.0, 2.0, 3.0]), hnp.array([1.0, 1.0]), mode="valid")
    Array([3., 5.], dtype=float32)
    """
    _checked("convolve", mode)
    _checked("convolve (method)", method, ("auto", "direct", "fft"))
    if method == "fft":
        return fftconvolve(in1, in2, mode)
    x, y = _pair("convolve", in1, in2)
    if mode == "valid" and not _is_covered("convolve", x, y):
        x, y = y, x
    pads = [mode_padding(mode, n, "convolve") for n in y.shape]
    return slide(x, _turned(y), pads)


def correlate(in1, in2, mode: str = "full", method: str = "auto", precision=None):
    """The correlation of two arrays of one rank: the convolution of in1 with in2 conjugated and turned around.

    Arguments and errors are those of `convolve`.

    >>> hl.scipy.signal.correlate(hnp.array([1.0, 2.0, 3.0]), hnp.array([1.0, 1.0]), mode="valid")
    Array([3., 5.], dtype=float32)
    """
    _checked("correlate", mode)
    x, y = _pair("correlate", in1, in2)
    y = _conjugate(_turned(y))
    if mode == "valid" and method != "fft" and not _is_covered("correlate", x, y):
        return slide(y, _turned(x), [(0, 0)] * x.ndim)
    return convolve(x, y, mode, method)


_BOUNDARIES = {"fill": "constant", "wrap": "wrap", "symm": "symmetric"}


def _in_two_dimensions(name: str, in1, in2, mode: str, boundary: str, fillvalue):
    _checked(name, mode)
    _checked(f"{name} (boundary)", boundary, tuple(_BOUNDARIES))
    x, y = _pair(name, in1, in2)
    if x.ndim != 2:
        raise ShapeError(f"{name} takes two-dimensional arrays", f"{x._shape!r}", f"use {name.removesuffix('2d')}")
    return x, y


def _bordered(x, window, mode: str, boundary: str, fillvalue):
    pads = [mode_padding(mode, n, "convolve2d") for n in window.shape]
    if boundary == "fill" and type(fillvalue) in (int, float) and fillvalue == 0:
        return slide(x, window, pads)
    how = {"constant_values": fillvalue} if boundary == "fill" else {}
    return slide(hnp.pad(x, pads, _BOUNDARIES[boundary], **how), window, [(0, 0), (0, 0)])


def convolve2d(in1, in2, mode: str = "full", boundary: str = "fill", fillvalue=0, precision=None):
    """The convolution of two matrices.

    boundary: the values around in1: 'fill' (fillvalue), 'wrap', or 'symm' (mirrored, the edge twice). Other arguments
    and errors are those of `convolve`.

    >>> hl.scipy.signal.convolve2d(hnp.ones((3, 3)), hnp.ones((2, 2)), mode="valid")
    Array([[4., 4.],
           [4., 4.]], dtype=float32)
    """
    x, y = _in_two_dimensions("convolve2d", in1, in2, mode, boundary, fillvalue)
    if mode == "valid" and not _is_covered("convolve2d", x, y):
        x, y = y, x
    return _bordered(x, _turned(y), mode, boundary, fillvalue)


def correlate2d(in1, in2, mode: str = "full", boundary: str = "fill", fillvalue=0, precision=None):
    """The correlation of two matrices; arguments and errors are those of `convolve2d`."""
    x, y = _in_two_dimensions("correlate2d", in1, in2, mode, boundary, fillvalue)
    if mode == "valid" and not _is_covered("correlate2d", x, y):
        return _turned(_bordered(y, _conjugate(x), mode, boundary, fillvalue))
    y = _conjugate(y)
    if mode == "same":
        # Of an even window the middle is one element earlier than convolve2d's, as SciPy has it.
        pads = [((n - 1) // 2, n // 2) for n in y.shape]
        if boundary == "fill" and type(fillvalue) in (int, float) and fillvalue == 0:
            return slide(x, y, pads)
        how = {"constant_values": fillvalue} if boundary == "fill" else {}
        return slide(hnp.pad(x, pads, _BOUNDARIES[boundary], **how), y, [(0, 0), (0, 0)])
    return _bordered(x, y, mode, boundary, fillvalue)


def fftconvolve(in1, in2, mode: str = "full", axes=None):
    """The convolution of two arrays by Fourier transforms, along `axes` (default all; the others broadcast).

    mode: as in `convolve`. Raises ShapeError, AttributeValueError.

    >>> hl.scipy.signal.fftconvolve(hnp.array([1.0, 2.0, 3.0]), hnp.array([1.0, 1.0])).round(3)
    Array([1., 3., 5., 3.], dtype=float32)
    """
    _checked("fftconvolve", mode)
    x, y = (to_inexact(a, "fftconvolve") for a in (in1, in2))
    (x, y), _ = promote_operands("fftconvolve", [x, y], broadcast=False)
    if x.ndim != y.ndim:
        raise ShapeError("fftconvolve takes arrays of one rank", f"{x._shape!r} and {y._shape!r}", "add dimensions")
    axes = canonical_axes(axes if axes is None or isinstance(axes, int) else tuple(axes), x.ndim, "fftconvolve")
    for d in range(x.ndim):
        if d not in axes and x.shape[d] != y.shape[d] and 1 not in (x.shape[d], y.shape[d]):
            raise ShapeError(
                "fftconvolve broadcasts the dimensions that are not in axes",
                f"dimension {d} is {x.shape[d]} and {y.shape[d]}",
                "name it in axes",
            )
    if mode == "valid":
        fits = [x.shape[d] >= y.shape[d] for d in axes]
        if not all(fits):
            if any(x.shape[d] > y.shape[d] for d in axes):
                _is_covered("fftconvolve", x, y)
            x, y = y, x
    sizes = [x.shape[d] + y.shape[d] - 1 for d in axes]
    if not axes:
        return x * y
    fast = [_smooth(n) for n in sizes]
    if x.dtype.kind == "c":
        made = hnp.fft.ifftn(hnp.fft.fftn(x, fast, axes) * hnp.fft.fftn(y, fast, axes), fast, axes)
    else:
        made = hnp.fft.irfftn(hnp.fft.rfftn(x, fast, axes) * hnp.fft.rfftn(y, fast, axes), fast, axes)
    bounds = [slice(None)] * made.ndim
    for d, full in zip(axes, sizes, strict=True):
        count = {"full": full, "same": x.shape[d], "valid": x.shape[d] - y.shape[d] + 1}[mode]
        start = (full - count) // 2
        bounds[d] = slice(start, start + count)
    return made[tuple(bounds)].astype(x.dtype)


def _smooth(size: int) -> int:
    """The smallest number from `size` on with no prime factor above 5: fast to transform."""
    while True:
        rest = size
        for prime in (2, 3, 5):
            while rest % prime == 0 and rest > 1:
                rest //= prime
        if rest <= 1:
            return size
        size += 1


# --- trends -------------------------------------------------------------------------------------------------------


def detrend(data, axis: int = -1, type: str = "linear", bp=0, overwrite_data=None):
    """data without its mean ('constant') or its least-squares line ('linear') along an axis.

    bp: positions at which a new line begins. Raises ShapeError, AttributeValueError.

    >>> hl.scipy.signal.detrend(hnp.array([1.0, 2.0, 3.0]), type="constant")
    Array([-1.,  0.,  1.], dtype=float32)
    """
    x = to_inexact(data, "detrend")
    axis = canonical_axis(axis, x.ndim, "detrend")
    if type in ("constant", "c"):
        return x - hnp.mean(x, axis=axis, keepdims=True)
    if type not in ("linear", "l"):
        raise AttributeValueError("detrend takes type 'linear' or 'constant'", f"{type!r}", "name one of them")
    extent = x.shape[axis]
    breaks = sorted({0, extent, *(int(b) for b in np.atleast_1d(bp))})
    if breaks[0] < 0 or breaks[-1] > extent:
        raise AttributeValueError("detrend takes break points inside of the axis", f"{bp}", f"stay below {extent}")
    x = hnp.moveaxis(x, axis, -1)
    pieces = []
    for start, stop in itertools.pairwise(breaks):
        piece, count = x[..., start:stop], stop - start
        steps = np.arange(count) - (count - 1) / 2
        line = hnp.asarray(steps.astype(np.dtype(x.real.dtype) if x.dtype.kind == "c" else x.dtype))
        mean = hnp.mean(piece, axis=-1, keepdims=True)
        square = float((steps * steps).sum())
        slope = hnp.sum(piece * line, axis=-1, keepdims=True) / (square or 1.0)
        pieces.append(piece - mean - slope * line)
    return hnp.moveaxis(hnp.concatenate(pieces, axis=-1), -1, axis)


# --- spectra ------------------------------------------------------------------------------------------------------


def _window_of(window, length: int, dtype):
    """The window as an array of `length` elements, periodic, as SciPy's get_window makes it."""
    if isinstance(window, (str, tuple)):
        return hnp.asarray(scipy_signal.get_window(window, length).astype(dtype))
    made = to_inexact(window, "window")
    if made.shape != (length,):
        raise ShapeError("a window is a vector of nperseg elements", f"{made._shape!r}, nperseg {length}", "cut it")
    return made


def _segments(x, length: int, step: int):
    """[..., segment, element] of overlapping parts of the last dimension."""
    count = (x.shape[-1] - (length - step)) // step
    index = np.arange(count)[:, None] * step + np.arange(length)[None, :]
    return hnp.take(x, hnp.asarray(index.astype(np.int32)), axis=-1)


def _lengths(name: str, extent: int, nperseg, noverlap, nfft) -> tuple[int, int, int]:
    length = min(256, extent) if nperseg is None else int(nperseg)
    if length < 1:
        raise AttributeValueError(f"{name} takes a positive nperseg", f"{nperseg}", "make it at least 1")
    length = min(length, extent)
    overlap = length // 2 if noverlap is None else int(noverlap)
    points = length if nfft is None else int(nfft)
    if not 0 <= overlap < length or points < length:
        raise AttributeValueError(
            f"{name} takes 0 <= noverlap < nperseg <= nfft",
            f"noverlap={noverlap}, nperseg={length}, nfft={nfft}",
            "make the segments longer, or their overlap shorter",
        )
    return length, overlap, points


def _detrended(segments, how):
    if how is False or how is None:
        return segments
    return how(segments) if callable(how) else detrend(segments, -1, how)


_EDGES = {"even": "reflect", "odd": "odd", "constant": "edge", "zeros": "constant"}


def _extended(x, width: int, boundary):
    if boundary is None:
        return x
    if boundary not in _EDGES:
        raise AttributeValueError(
            "stft takes boundary 'even', 'odd', 'constant', 'zeros' or None", f"{boundary!r}", "name one of them"
        )
    if not width:
        return x
    pads = [(0, 0)] * (x.ndim - 1) + [(width, width)]
    if boundary == "odd":
        left = 2 * x[..., :1] - hnp.flip(x[..., 1 : width + 1], -1)
        right = 2 * x[..., -1:] - hnp.flip(x[..., -width - 1 : -1], -1)
        return hnp.concatenate([left, x, right], axis=-1)
    return hnp.pad(x, pads, _EDGES[boundary])


def _spectra(x, window, points: int, length: int, overlap: int, trend, one_sided: bool):
    segments = _detrended(_segments(x, length, length - overlap), trend) * window
    if one_sided and x.dtype.kind != "c":
        return hnp.fft.rfft(segments, points, axis=-1)
    return hnp.fft.fft(segments, points, axis=-1)


def _frequencies(points: int, fs, one_sided: bool):
    return (hnp.fft.rfftfreq if one_sided else hnp.fft.fftfreq)(points, 1 / fs)


def stft(
    x, fs=1.0, window="hann", nperseg: int = 256, noverlap=None, nfft=None, detrend=False,
    return_onesided: bool = True, boundary="zeros", padded: bool = True, axis: int = -1,
):  # fmt: skip
    """The short-time Fourier transform: (frequencies, times of the segments, spectra).

    fs: samples a unit of time. Segments have nperseg elements, overlap by noverlap (default half) and are transformed
    at nfft points. boundary: how x is extended by half a segment; padded: with zeros to whole segments. The spectra
    have frequencies in place of `axis` and segments last. Raises ShapeError, AttributeValueError.

    >>> frequencies, times, values = hl.scipy.signal.stft(hnp.ones(1024), nperseg=256)
    >>> values.shape
    (129, 9)
    """
    x = to_inexact(x, "stft")
    axis = canonical_axis(axis, x.ndim, "stft")
    x = hnp.moveaxis(x, axis, -1)
    length, overlap, points = _lengths("stft", x.shape[-1], nperseg, noverlap, nfft)
    step = length - overlap
    x = _extended(x, length // 2, boundary)
    if padded:
        missing = (-(x.shape[-1] - length) % step) % length
        x = hnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)])
    real = np.dtype(np.float64 if x.dtype.itemsize >= (16 if x.dtype.kind == "c" else 8) else np.float32)
    weights = _window_of(window, length, real)
    one_sided = return_onesided and x.dtype.kind != "c"
    made = _spectra(x, weights, points, length, overlap, detrend, one_sided) / hnp.sum(weights)
    times = (hnp.arange(made.shape[-2]) * step + length / 2) / fs
    if boundary is not None:
        times = times - (length / 2) / fs
    made = hnp.moveaxis(made, -1, -2)
    if axis != x.ndim - 1:
        made = hnp.moveaxis(made, -2, axis)
    return _frequencies(points, fs, one_sided), times, made


def csd(
    x, y, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, detrend="constant",
    return_onesided: bool = True, scaling: str = "density", axis: int = -1, average: str = "mean",
):  # fmt: skip
    """The cross power spectral density by Welch's method: (frequencies, density).

    scaling: 'density' (power a unit of frequency) or 'spectrum' (power). average: 'mean' or 'median' over segments.
    Other arguments as in `stft`. Raises ShapeError, AttributeValueError.

    >>> frequencies, power = hl.scipy.signal.csd(hnp.ones(512), hnp.ones(512), nperseg=128)
    >>> power.shape
    (65,)
    """
    _checked("csd (scaling)", scaling, ("density", "spectrum"))
    _checked("csd (average)", average, ("mean", "median"))
    same = y is None or y is x
    x = to_inexact(x, "csd")
    y = x if same else to_inexact(y, "csd")
    (x, y), _ = promote_operands("csd", [x, y], broadcast=False)
    x, y = (hnp.moveaxis(a, canonical_axis(axis, a.ndim, "csd"), -1) for a in (x, y))
    extent = max(x.shape[-1], y.shape[-1])
    x, y = (hnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, extent - a.shape[-1])]) for a in (x, y))
    length, overlap, points = _lengths("csd", extent, nperseg, noverlap, nfft)
    real = np.dtype(np.float64 if x.dtype.itemsize >= (16 if x.dtype.kind == "c" else 8) else np.float32)
    weights = _window_of(window, length, real)
    one_sided = return_onesided and x.dtype.kind != "c"
    left = _spectra(x, weights, points, length, overlap, detrend, one_sided)
    right = left if same else _spectra(y, weights, points, length, overlap, detrend, one_sided)
    made = hnp.conj(left) * right
    if scaling == "density":
        made = made / (fs * hnp.sum(weights * weights))
    else:
        made = made / hnp.sum(weights) ** 2
    if one_sided:
        # Every frequency except zero and the highest also represents its negative.
        factor = np.full(made.shape[-1], 2.0, real)
        factor[0] = 1
        if points % 2 == 0:
            factor[-1] = 1
        made = made * hnp.asarray(factor)
    if average == "mean":
        made = hnp.mean(made, axis=-2)
    else:
        count = made.shape[-2]
        bias = 1 + sum(1 / (2 * k + 1) - 1 / (2 * k) for k in range(1, (count - 1) // 2 + 1))
        made = lax.complex(hnp.median(hnp.real(made), axis=-2), hnp.median(hnp.imag(made), axis=-2)) / bias
    if same:
        made = hnp.real(made)
    return _frequencies(points, fs, one_sided), hnp.moveaxis(made, -1, axis)


def welch(
    x, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, detrend="constant",
    return_onesided: bool = True, scaling: str = "density", axis: int = -1, average: str = "mean",
):  # fmt: skip
    """The power spectral density by Welch's method: (frequencies, density). Arguments and errors as in `csd`.

    >>> frequencies, power = hl.scipy.signal.welch(hnp.ones(1024), nperseg=256)
    >>> power.shape
    (129,)
    """
    return csd(x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)


def istft(
    Zxx, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, input_onesided: bool = True,
    boundary: bool = True, time_axis: int = -1, freq_axis: int = -2,
):  # fmt: skip
    """The signal of a short-time Fourier transform: (times, signal), by overlapping and adding (Griffin and Lim, 1984).

    boundary: the signal was extended by half a segment. Other arguments as in `stft`. Raises ShapeError,
    AttributeValueError.

    >>> x = hnp.ones(512)
    >>> _, _, z = hl.scipy.signal.stft(x, nperseg=128)
    >>> times, y = hl.scipy.signal.istft(z, nperseg=128)
    >>> hnp.allclose(y[:512], x, atol=1e-4)
    Array(True, dtype=bool)
    """
    z = to_inexact(Zxx, "istft")
    if z.ndim < 2:
        raise ShapeError("istft takes an array of frequencies and segments", f"{z._shape!r}", "pass what stft returns")
    time, frequency = canonical_axis(time_axis, z.ndim, "istft"), canonical_axis(freq_axis, z.ndim, "istft")
    if time == frequency:
        raise AttributeValueError("istft takes different time and frequency axes", f"both are {time}", "name two")
    others = [d for d in range(z.ndim) if d not in (time, frequency)]
    z = hnp.transpose(z, (*others, time, frequency))
    least = 2 * (z.shape[-1] - 1) if input_onesided else z.shape[-1]
    length = least if nperseg is None else int(nperseg)
    points = (length if input_onesided and length == least + 1 else least) if nfft is None else int(nfft)
    overlap = length // 2 if noverlap is None else int(noverlap)
    if not 0 <= overlap < length or points < length:
        raise AttributeValueError(
            "istft takes 0 <= noverlap < nperseg <= nfft",
            f"noverlap={noverlap}, nperseg={length}, nfft={points}",
            "pass what stft was given",
        )
    step = length - overlap
    pieces = (hnp.fft.irfft if input_onesided else hnp.fft.ifft)(z, points, axis=-1)[..., :length]
    real = np.dtype(np.float64 if z.dtype == np.complex128 else np.float32)
    weights = _window_of(window, length, real)
    signal = _overlapped(pieces * weights * hnp.sum(weights), step)
    norm = _overlapped(hnp.broadcast_to(weights * weights, pieces.shape[-2:]), step)
    signal = signal / hnp.where(norm > 1e-10, norm, 1.0)
    if boundary:
        signal = signal[..., length // 2 : signal.shape[-1] - length // 2]
    times = hnp.arange(signal.shape[-1]) / fs
    if others:
        signal = hnp.moveaxis(signal, -1, time - (frequency < time))
    return times, signal


def _overlapped(pieces, step: int):
    """The sum of [..., segment, element], each segment `step` after the one before."""
    *lead, count, length = pieces.shape
    # Cut into blocks of one step: block j of segment i is added to block i + j of the result.
    blocks = -(-length // step)
    pieces = hnp.pad(pieces, [(0, 0)] * (len(lead) + 1) + [(0, blocks * step - length)])
    pieces = hnp.reshape(pieces, (*lead, count, blocks, step))
    parts = [hnp.pad(pieces[..., j, :], [(0, 0)] * len(lead) + [(j, blocks - 1 - j), (0, 0)]) for j in range(blocks)]
    total = functools.reduce(operator.add, parts)
    flat = hnp.reshape(total, (*lead, math.prod(total.shape[-2:])))
    return flat[..., : (count - 1) * step + length]


__all__ = [
    "convolve", "convolve2d", "correlate", "correlate2d", "csd", "detrend", "fftconvolve", "istft", "stft", "welch",
]  # fmt: skip
__dir__ = __all__.copy

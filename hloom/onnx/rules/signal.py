"""Fourier transforms and related ops."""

from __future__ import annotations

import numpy as np

import hloom.numpy as hnp
from hloom.ir.sizes.expressions import Size
from hloom.onnx.reader import dtype_of
from hloom.onnx.sizes import integers
from hloom.onnx.table import op


def _transform(x, length: Size | None, axis: int, inverse: int, onesided: int):
    """x (..., 1) real or (..., 2) complex; the transform along an axis."""
    axis = axis % x.ndim
    dtype = x.dtype
    wide = x if np.dtype(dtype).name in ("float32", "float64") else x.astype(np.float32)
    signal = wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]
    if inverse and onesided:
        size = length or 2 * (x.shape[axis] - 1)
        return hnp.fft.irfft(signal, size, axis=axis)[..., None].astype(dtype)
    size = length or x.shape[axis]
    y = (hnp.fft.ifft if inverse else hnp.fft.fft)(signal, size, axis=axis)
    if onesided:
        y = y[(slice(None),) * axis + (slice(0, size // 2 + 1),)]
    return hnp.stack([hnp.real(y), hnp.imag(y)], -1).astype(dtype)


@op("DFT", static=(1,))
def dft17(x, length=None, *, axis=1, inverse=0, onesided=0):
    return _transform(x, None if length is None else integers(length)[0], axis, inverse, onesided)


@op("DFT", since=20, static=(1, 2))
def dft(x, length=None, axis=None, *, inverse=0, onesided=0):
    along = -2 if axis is None else int(integers(axis)[0])
    return _transform(x, None if length is None else integers(length)[0], along, inverse, onesided)


@op("STFT", static=(1, 3))
def stft(x, step, window=None, length=None, *, onesided=1):
    """x: (batch, time, 1 or 2); the result: (batch, frames, frequencies, 2)."""
    size = integers(length)[0] if length is not None else x.shape[1] if window is None else window.shape[0]
    hop = integers(step)[0]
    count = 1 + (x.shape[1] - size) // hop
    frames = hnp.asarray(x)[:, np.arange(int(count))[:, None] * hop + np.arange(int(size))]
    if window is not None:
        frames = frames * hnp.reshape(window, (1, 1, -1, 1))
    return _transform(frames, size, 2, 0, onesided)


@op("MelWeightMatrix", host=True)
def mel_weights(bins, length, rate, lowest, highest, *, output_datatype=1):
    count, size = integers(bins)[0], integers(length)[0]
    low, high = (2595 * np.log10(1 + float(f.reshape(-1)[0]) / 700) for f in (lowest, highest))
    edges = np.arange(count + 2) * ((high - low) / (count + 2)) + low
    edges = ((size + 1) * (700 * (10 ** (edges / 2595) - 1)) // integers(rate)[0]).astype(int)
    weights = np.zeros((size // 2 + 1, count))
    for k, (left, middle, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        if middle == left:
            weights[middle, k] = 1
        else:
            weights[left : middle + 1, k] = (np.arange(left, middle + 1) - left) / (middle - left)
        if right > middle:
            weights[middle:right, k] = (right - np.arange(middle, right)) / (right - middle)
    return weights.astype(dtype_of(output_datatype))

"""Normalizations."""

from __future__ import annotations

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.errors import UnsupportedError
from hloom.numpy.reducing.reductions import center, mean_square
from hloom.onnx.reader import dtype_of
from hloom.onnx.rules.convolutions import per_channel
from hloom.onnx.table import op


@op("BatchNormalization")
def batch_normalization(node, x, scale, bias, mean, variance, *, epsilon=1e-5, momentum=0.9, spatial=1, is_test=None,
                        consumed_inputs=()):  # fmt: skip
    if not spatial:
        raise UnsupportedError("BatchNormalization with spatial=0", "statistics per element", "export it again")
    if is_test == 0 or node.wants(1):
        raise UnsupportedError(
            "BatchNormalization of opset 13 or older in training", "running statistics", "export for opset 14"
        )
    return _normalized(x, scale, bias, mean, variance, epsilon)


@op("BatchNormalization", since=14)
def batch_normalization14(node, x, scale, bias, mean, variance, *, epsilon=1e-5, momentum=0.9, training_mode=0):
    if not training_mode:
        return _normalized(x, scale, bias, mean, variance, epsilon)
    axes = (0, *range(2, x.ndim))
    here = center(x, axes)
    spread = mean_square(x - per_channel(here, x.ndim), axes)
    y = _normalized(x, scale, bias, here, spread, epsilon)
    running = [
        (old * momentum + new * (1 - momentum)).astype(old.dtype) for old, new in ((mean, here), (variance, spread))
    ]
    return y, *running


def _normalized(x, scale, bias, mean, variance, epsilon: float):
    factor = scale / hnp.sqrt(variance + epsilon)  # one vector of channels each: the image has a product and a sum
    offset = bias - mean * factor
    return (x * per_channel(factor, x.ndim) + per_channel(offset, x.ndim)).astype(x.dtype)


def _standardized(x, axes: tuple[int, ...], epsilon: float):
    mean = center(x, axes, keepdims=True)
    centred = x - mean
    factor = lax.rsqrt(mean_square(centred, axes, keepdims=True) + epsilon)
    return centred * factor, mean, factor


@op("InstanceNormalization")
def instance_normalization(x, scale, bias, *, epsilon=1e-5, consumed_inputs=()):
    y, _, _ = _standardized(x, tuple(range(2, x.ndim)), epsilon)
    return y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)


@op("LayerNormalization")
def layer_normalization(x, scale, bias=None, *, axis=-1, epsilon=1e-5, stash_type=1):
    axes = tuple(range(axis % x.ndim, x.ndim))
    y, mean, factor = _standardized(x.astype(dtype_of(stash_type)), axes, epsilon)
    y = y.astype(x.dtype) * scale
    return y if bias is None else y + bias, mean, factor


@op("RMSNormalization")
def rms_normalization(x, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(dtype_of(stash_type))
    factor = lax.rsqrt(mean_square(wide, axes, keepdims=True) + epsilon)
    return (wide * factor).astype(scale.dtype) * scale


@op("MeanVarianceNormalization")
def mean_variance_normalization(x, *, axes=(0, 2, 3)):
    # The mean of squares less the square of the mean, as the specification writes it, cancels; this does not.
    centred = x - center(x, tuple(axes), keepdims=True)
    spread = hnp.sqrt(mean_square(centred, tuple(axes), keepdims=True))
    return centred / (spread + np.asarray(1e-9, x.dtype))


@op("LRN")
def local_response_normalization(x, *, alpha=1e-4, beta=0.75, bias=1.0, size):
    before = (size - 1) // 2
    window = (1, size, *[1] * (x.ndim - 2))
    padding = [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)]
    squares = lax.reduce_window(x * x, np.asarray(0, x.dtype), lax.add, window, (1,) * x.ndim, padding)
    return x / (bias + alpha / size * squares) ** beta


@op("LpNormalization")
def lp_normalization(x, *, axis=-1, p=2):
    if p == 1:
        norm = hnp.sum(hnp.abs(x), axis=axis, keepdims=True)
    else:
        norm = hnp.sqrt(hnp.sum(x * x, axis=axis, keepdims=True))
    return hnp.where(norm == 0, hnp.zeros((), x.dtype), x / norm)

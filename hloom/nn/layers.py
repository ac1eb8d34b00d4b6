"""Layers without state: Linear, Embedding, normalizations, Dropout, pooling, Sequential, Lambda."""

from __future__ import annotations

from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom import lax, random
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.types import INEXACT, INTEGERS
from hloom.lax.operands import as_operand
from hloom.nn import initializers
from hloom.nn.module import Module, draw_key, is_training, record, static, warn_of_wide_input
from hloom.nn.pooling import avg_pool, max_pool
from hloom.numpy.reducing.reductions import center, mean_square
from hloom.tracing.range_checks import check_in_range


def checked_features(x, features: int, layer: str, parameter=None):
    """`x` as an array whose last dimension is `features`. Raises ShapeError.

    parameter: one of the layer's; a PrecisionWarning is issued if x has more bits.
    """
    x = as_operand(x, layer)
    if x.ndim == 0 or x.shape[-1] != features:
        raise ShapeError(
            f"{layer} takes arrays with {features} features in the last dimension",
            f"{x._shape!r}",
            "reshape or transpose the input, or make the layer for its size",
        )
    if parameter is not None:
        warn_of_wide_input(x, parameter, layer)
    return x


class Linear(Module):
    """x @ kernel + bias over the last dimension. kernel: (inputs, outputs).

    >>> layer = hl.nn.Linear(4, 3, key=hl.random.key(0))
    >>> layer(hnp.ones((8, 4))).shape, layer.kernel.shape, layer.bias.shape
    ((8, 3), (4, 3), (3,))
    """

    kernel: Any
    bias: Any

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        key,
        use_bias: bool = True,
        kernel_init=initializers.lecun_normal(),  # noqa: B008  (a pure function)
        bias_init=initializers.zeros,
        dtype="f32",
    ):
        self.kernel = kernel_init(key, (inputs, outputs), dtype)
        self.bias = bias_init(key, (outputs,), dtype) if use_bias else None

    def __call__(self, x):
        x = checked_features(x, self.kernel.shape[0], "Linear", self.kernel)
        y = hnp.matmul(x, self.kernel)
        return y if self.bias is None else y + self.bias


class Embedding(Module):
    """A table of vectors: __call__(ids) looks them up, attend(x) is x @ table.T (tied output weights).

    An id out of range raises IndexOutOfBoundsError if its value is known: outside of `jit`, and everywhere under
    `hl.config.debug_checks`. Otherwise its vector is NaN.

    >>> layer = hl.nn.Embedding(1000, 64, key=hl.random.key(0))
    >>> layer(hnp.array([[1, 2, 3]])).shape
    (1, 3, 64)
    """

    table: Any

    def __init__(
        self,
        count: int,
        features: int,
        *,
        key,
        init=initializers.variance_scaling(1.0, "fan_in", "normal", in_axis=1, out_axis=0),  # noqa: B008
        dtype="f32",
    ):
        self.table = init(key, (count, features), dtype)

    def __call__(self, ids):
        ids = as_operand(ids, "Embedding")
        if ids.dtype not in INTEGERS:
            raise DTypeError("Embedding takes integers", f"{ids._shape!r}", "convert with astype('s32')")
        count = self.table.shape[0]
        check_in_range(
            ids,
            0,
            count,
            f"Embedding of {count} vectors takes ids from 0 to {count - 1}",
            "check the vocabulary",
        )
        rows = hnp.take(self.table, ids, axis=0, mode="clip")
        if self.table.dtype not in INEXACT:
            return rows
        # Added, not selected, so that the gradient of the table remains a plain scatter. (-0.0 + x is x for every x.)
        wrong = hnp.where((ids < 0) | (ids >= count), np.nan, -0.0).astype(rows.dtype)
        return rows + hnp.expand_dims(wrong, -1)

    def attend(self, x):
        """x @ table.T, (..., features) to (..., count): the scores of all entries. Raises ShapeError."""
        return hnp.matmul(checked_features(x, self.table.shape[1], "Embedding.attend"), self.table.T)


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the last dimension (Ba et al., 2016).

    >>> hl.nn.LayerNorm(4)(hnp.array([1.0, 2.0, 3.0, 4.0])).round(3)
    Array([-1.342, -0.447,  0.447,  1.342], dtype=float32)
    """

    scale: Any
    bias: Any
    epsilon: float = static()

    def __init__(self, features: int, *, epsilon=1e-6, use_scale: bool = True, use_bias: bool = True, dtype="f32"):
        self.scale = hnp.ones(features, dtype) if use_scale else None
        self.bias = hnp.zeros(features, dtype) if use_bias else None
        self.epsilon = epsilon

    def __call__(self, x):
        mean = center(x, -1, keepdims=True)
        centred = x - mean
        y = centred * lax.rsqrt(mean_square(centred, -1, keepdims=True) + self.epsilon)
        y = y if self.scale is None else y * self.scale
        return y if self.bias is None else y + self.bias


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + epsilon) * scale over the last dimension (Zhang and Sennrich, 2019).

    >>> hl.nn.RMSNorm(2)(hnp.array([3.0, 4.0])).round(3)
    Array([0.849, 1.131], dtype=float32)
    """

    scale: Any
    epsilon: float = static()

    def __init__(self, features: int, *, epsilon=1e-6, dtype="f32"):
        self.scale = hnp.ones(features, dtype)
        self.epsilon = epsilon

    def __call__(self, x):
        x = checked_features(x, self.scale.shape[0], "RMSNorm", self.scale)
        return x * lax.rsqrt(mean_square(x, -1, keepdims=True) + self.epsilon) * self.scale


class GroupNorm(Module):
    """Normalization over groups of channels and all positions (Wu and He, 2018). x: (batch, ..., features).

    >>> hl.nn.GroupNorm(64, groups=8)(hnp.ones((2, 7, 7, 64))).shape
    (2, 7, 7, 64)
    """

    scale: Any
    bias: Any
    groups: int = static()
    epsilon: float = static()

    def __init__(self, features: int, groups: int = 32, *, epsilon=1e-6, dtype="f32"):
        if features % groups:
            raise ArgumentError(
                "GroupNorm takes a number of groups that divides the features",
                f"{groups} groups of {features} features",
                "choose a divisor",
            )
        self.scale, self.bias = hnp.ones(features, dtype), hnp.zeros(features, dtype)
        self.groups, self.epsilon = groups, epsilon

    def __call__(self, x):
        features = self.scale.shape[0]
        x = checked_features(x, features, "GroupNorm", self.scale)
        grouped = hnp.reshape(x, (*x.shape[:-1], self.groups, features // self.groups))
        axes = (*range(1, x.ndim - 1), x.ndim)
        centred = grouped - center(grouped, axes, keepdims=True)
        y = centred * lax.rsqrt(mean_square(centred, axes, keepdims=True) + self.epsilon)
        return hnp.reshape(y, x.shape) * self.scale + self.bias


class BatchNorm(Module):
    """Normalization by the statistics of the batch (Ioffe and Szegedy, 2015). x: (..., features).

    In training (`nn.apply`) it uses the mean and variance of the batch, over all dimensions but the last, and updates
    the running ones by 1 - momentum; otherwise it uses the running ones. axis_name: a mapped axis (`hl.vmap`) over
    which the batch's statistics are also averaged.

    >>> layer = hl.nn.BatchNorm(3)
    >>> y, layer = hl.nn.apply(layer, hl.random.normal(hl.random.key(0), (16, 3)), training=True)
    >>> bool(hnp.allclose(y.mean(axis=0), 0, atol=1e-5)), layer.mean.shape
    (True, (3,))
    """

    scale: Any
    bias: Any
    mean: Any
    variance: Any
    momentum: float = static()
    epsilon: float = static()
    axis_name: str | None = static()

    def __init__(self, features: int, *, momentum=0.9, epsilon=1e-5, axis_name: str | None = None, dtype="f32"):
        self.scale, self.bias = hnp.ones(features, dtype), hnp.zeros(features, dtype)
        self.mean, self.variance = hnp.zeros(features, dtype), hnp.ones(features, dtype)
        self.momentum, self.epsilon, self.axis_name = momentum, epsilon, axis_name

    def __call__(self, x):
        x = checked_features(x, self.scale.shape[0], "BatchNorm", self.scale)
        if is_training():
            axes = tuple(range(x.ndim - 1))
            mean = center(x, axes)
            if self.axis_name is not None:
                mean = lax.pmean(mean, self.axis_name)
            variance = mean_square(x - mean, axes)
            if self.axis_name is not None:
                variance = lax.pmean(variance, self.axis_name)
            keep = self.momentum
            record(
                self,
                mean=keep * self.mean + (1 - keep) * lax.stop_gradient(mean),
                variance=keep * self.variance + (1 - keep) * lax.stop_gradient(variance),
            )
        else:
            # Running statistics are leaves, but not trainable: they have no gradient.
            mean, variance = lax.stop_gradient(self.mean), lax.stop_gradient(self.variance)
        return (x - mean) * lax.rsqrt(variance + self.epsilon) * self.scale + self.bias


class Dropout(Module):
    """In training each element is zero with probability `rate`, the others are scaled by 1 / (1 - rate)
    (Srivastava et al., 2014); otherwise the identity.

    >>> layer, x = hl.nn.Dropout(0.5), hnp.ones((2, 3))
    >>> layer(x)
    Array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float32)
    >>> y, layer = hl.nn.apply(layer, x, training=True, key=hl.random.key(0))
    >>> hnp.unique(y)
    Array([0., 2.], dtype=float32)
    """

    rate: float = static()

    def __init__(self, rate: float):
        if not 0 <= rate < 1:
            raise ArgumentError("Dropout takes a rate between 0 and 1", repr(rate), "pass for example 0.1")
        self.rate = rate

    def __call__(self, x):
        if not is_training() or self.rate == 0:
            return x

        x = as_operand(x, "Dropout")
        kept = random.bernoulli(draw_key("Dropout"), 1 - self.rate, x.shape)
        return hnp.where(kept, x / (1 - self.rate), 0)


class Lambda(Module):
    """A function as a layer.

    >>> hl.nn.Lambda(lambda x: 2 * x)(hnp.array([1, 2]))
    Array([2, 4], dtype=int32)
    """

    function: Any = static()

    def __init__(self, function):
        self.function = function

    def __call__(self, x):
        return self.function(x)


class Flatten(Module):
    """(batch, ...) to (batch, everything else).

    >>> hl.nn.Flatten()(hnp.ones((8, 4, 4, 3))).shape
    (8, 48)
    """

    def __call__(self, x):
        x = hnp.asarray(x)
        return hnp.reshape(x, (x.shape[0], -1))


class MaxPool(Module):
    """The largest element of each window. x: (batch, ..., features).

    >>> hl.nn.MaxPool((2, 2), strides=(2, 2))(hnp.ones((8, 28, 28, 3))).shape
    (8, 14, 14, 3)
    """

    window: tuple = static()
    strides: tuple = static()
    padding: Any = static()

    def __init__(self, window, strides=None, padding="VALID"):
        self.window = tuple(window)
        self.strides = self.window if strides is None else tuple(strides)
        self.padding = padding if isinstance(padding, str) else tuple(map(tuple, padding))

    def __call__(self, x):
        return max_pool(x, self.window, strides=self.strides, padding=self.padding)


class AvgPool(MaxPool):
    """The mean of each window. x: (batch, ..., features).

    >>> hl.nn.AvgPool((2, 2), strides=(2, 2))(hnp.ones((8, 28, 28, 3))).shape
    (8, 14, 14, 3)
    """

    def __call__(self, x):
        return avg_pool(x, self.window, strides=self.strides, padding=self.padding)


class Sequential(Module):
    """Layers (or functions) applied in sequence.

    >>> first, second = hl.random.split(hl.random.key(0))
    >>> model = hl.nn.Sequential(hl.nn.Linear(4, 32, key=first), hl.nn.relu, hl.nn.Linear(32, 3, key=second))
    >>> model(hnp.ones((8, 4))).shape
    (8, 3)
    """

    layers: tuple

    def __init__(self, *layers):
        if len(layers) == 1 and isinstance(layers[0], (list, tuple)):
            layers = tuple(layers[0])
        # A function is not a leaf: it becomes part of the structure.
        self.layers = tuple(x if isinstance(x, Module) else Lambda(x) for x in layers)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    def __getitem__(self, index):
        return self.layers[index]

    def __len__(self) -> int:
        return len(self.layers)

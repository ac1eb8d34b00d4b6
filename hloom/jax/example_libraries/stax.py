"""`jax.example_libraries.stax`: layers as pairs (init_fun, apply_fun).

init_fun(rng, input_shape) -> (output_shape, params); apply_fun(params, inputs, **kwargs) -> outputs. A batch dimension
of unknown size is -1 in the shapes.
"""

from __future__ import annotations

import functools
import operator

import hloom.numpy as hnp
from hloom import lax, nn, random
from hloom.errors import ArgumentError
from hloom.nn.functional import (
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    logsumexp,  # noqa: F401  (public)
    relu,
    selu,
    sigmoid,
    softmax,
    softplus,
    standardize,
)
from hloom.nn.initializers import glorot_normal, normal, ones, zeros


def Dense(out_dim, W_init=None, b_init=None):
    """x @ W + b."""
    W_init, b_init = W_init or glorot_normal(), b_init or normal()

    def init_fun(rng, input_shape):
        first, second = random.split(rng)
        return (*input_shape[:-1], out_dim), (W_init(first, (input_shape[-1], out_dim)), b_init(second, (out_dim,)))

    def apply_fun(params, inputs, **kwargs):
        W, b = params
        return hnp.dot(inputs, W) + b

    return init_fun, apply_fun


def _window_shape(shape, window, strides, padding) -> tuple[int, ...]:
    """The sizes of the results of a window over dimensions of these sizes; -1 (unknown) stays."""
    sizes = []
    pads = [(0, 0)] * len(shape) if isinstance(padding, str) else padding
    for size, width, stride, pad in zip(shape, window, strides, pads, strict=True):
        if size == -1:
            sizes.append(-1)
        elif padding == "SAME":
            sizes.append(-(-size // stride))
        else:
            sizes.append((size + sum(pad) - width) // stride + 1)
    return tuple(sizes)


def _convolution(function, result_sizes, dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init):
    """A layer of function(inputs, W, strides, padding, dimension_numbers=).

    result_sizes(spatial sizes, strides) returns the spatial sizes of the result.
    """
    lhs, rhs, out = dimension_numbers
    strides = strides or (1,) * len(filter_shape)
    W_init = W_init or glorot_normal(rhs.index("I"), rhs.index("O"))
    b_init = b_init or normal(1e-6)

    def init_fun(rng, input_shape):
        sizes = iter(filter_shape)
        kernel = [out_chan if c == "O" else input_shape[lhs.index("C")] if c == "I" else next(sizes) for c in rhs]
        spatial = [c for c in rhs if c not in "OI"]
        sizes_of_result = result_sizes([input_shape[lhs.index(c)] for c in spatial], strides)
        result = {**dict(zip(spatial, sizes_of_result, strict=True)), "N": input_shape[lhs.index("N")], "C": out_chan}
        first, second = random.split(rng)
        bias = tuple(out_chan if c == "C" else 1 for c in out)
        return tuple(result[c] for c in out), (W_init(first, tuple(kernel)), b_init(second, bias))

    def apply_fun(params, inputs, **kwargs):
        W, b = params
        return function(inputs, W, strides, padding, dimension_numbers=dimension_numbers) + b

    return init_fun, apply_fun


def GeneralConv(dimension_numbers, out_chan, filter_shape, strides=None, padding="VALID", W_init=None, b_init=None):
    """A convolution with any layout: dimension_numbers as ('NHWC', 'HWIO', 'NHWC')."""

    def sizes(given, strides):
        return _window_shape(given, filter_shape, strides, padding)

    return _convolution(
        lax.conv_general_dilated, sizes, dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init
    )


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))


def GeneralConvTranspose(
    dimension_numbers, out_chan, filter_shape, strides=None, padding="VALID", W_init=None, b_init=None
):
    """A transposed convolution with any layout."""

    def sizes(given, strides):
        overlaps = [0 if padding == "SAME" else max(w - s, 0) for w, s in zip(filter_shape, strides, strict=True)]
        return [-1 if n == -1 else n * s + o for n, s, o in zip(given, strides, overlaps, strict=True)]

    return _convolution(
        lax.conv_transpose, sizes, dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init
    )


Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(axis=(0, 1, 2), epsilon=1e-5, center=True, scale=True, beta_init=zeros, gamma_init=ones):
    """Normalization by the statistics of the batch over `axis`; it keeps no running statistics."""
    axis = (axis,) if isinstance(axis, int) else tuple(axis)

    def init_fun(rng, input_shape):
        shape = tuple(n for k, n in enumerate(input_shape) if k not in axis)
        first, second = random.split(rng)
        beta = beta_init(first, shape) if center else ()
        gamma = gamma_init(second, shape) if scale else ()
        return input_shape, (beta, gamma)

    def apply_fun(params, x, **kwargs):
        beta, gamma = params
        spread = tuple(None if k in axis else slice(None) for k in range(hnp.ndim(x)))
        z = standardize(x, axis, epsilon=epsilon)
        if scale:
            z = gamma[spread] * z
        return z + beta[spread] if center else z

    return init_fun, apply_fun


def elementwise(fun, **fun_kwargs):
    """A layer that applies a function to each element."""

    def init_fun(rng, input_shape):
        return input_shape, ()

    def apply_fun(params, inputs, **kwargs):
        return fun(inputs, **fun_kwargs)

    return init_fun, apply_fun


Tanh = elementwise(hnp.tanh)
Relu = elementwise(relu)
Exp = elementwise(hnp.exp)
LogSoftmax = elementwise(log_softmax, axis=-1)
Softmax = elementwise(softmax, axis=-1)
Softplus = elementwise(softplus)
Sigmoid = elementwise(sigmoid)
Elu = elementwise(elu)
LeakyRelu = elementwise(leaky_relu)
Selu = elementwise(selu)
Gelu = elementwise(gelu)


def _pool(pool):
    def make(window_shape, strides=None, padding="VALID", spec=None):
        """Pooling over the window dimensions of `spec`, by default 'NHWC'."""
        strides = strides or (1,) * len(window_shape)
        layout = spec or "NHWC"[0] + "DHW"[3 - len(window_shape) :] + "C"
        order = (layout.index("N"), *(k for k, c in enumerate(layout) if c not in "NC"), layout.index("C"))
        back = tuple(order.index(k) for k in range(len(order)))

        def init_fun(rng, input_shape):
            sizes = _window_shape([input_shape[k] for k in order[1:-1]], window_shape, strides, padding)
            moved = (input_shape[order[0]], *sizes, input_shape[order[-1]])
            return tuple(moved[k] for k in back), ()

        def apply_fun(params, inputs, **kwargs):
            pooled = pool(hnp.transpose(inputs, order), window_shape, strides=strides, padding=padding)
            return hnp.transpose(pooled, back)

        return init_fun, apply_fun

    return make


MaxPool, AvgPool = _pool(nn.max_pool), _pool(nn.avg_pool)
SumPool = _pool(
    lambda x, window, strides, padding: lax.reduce_window(
        x, hnp.zeros((), x.dtype), lax.add, (1, *window, 1), (1, *strides, 1), padding
    )
)


def _flatten_init(rng, input_shape):
    return (input_shape[0], functools.reduce(operator.mul, input_shape[1:], 1)), ()


Flatten = (_flatten_init, lambda params, inputs, **kwargs: hnp.reshape(inputs, (inputs.shape[0], -1)))
Identity = (lambda rng, input_shape: (input_shape, ()), lambda params, inputs, **kwargs: inputs)


def FanOut(num):
    """A list of `num` copies of the input."""
    return (
        lambda rng, input_shape: ([input_shape] * num, ()),
        lambda params, inputs, **kwargs: [inputs] * num,
    )


FanInSum = (
    lambda rng, input_shape: (input_shape[0], ()),
    lambda params, inputs, **kwargs: functools.reduce(operator.add, inputs),
)


def FanInConcat(axis=-1):
    """The list of inputs joined along `axis`."""

    def init_fun(rng, input_shape):
        where = axis % len(input_shape[0])
        total = sum(shape[where] for shape in input_shape)
        return (*input_shape[0][:where], total, *input_shape[0][where + 1 :]), ()

    return init_fun, lambda params, inputs, **kwargs: hnp.concatenate(inputs, axis)


def Dropout(rate, mode="train"):
    """Keeps each element with probability `rate`, scaled by 1 / rate. mode: 'train', or 'test' for the identity."""

    def apply_fun(params, inputs, **kwargs):
        rng = kwargs.get("rng")
        if rng is None:
            raise ArgumentError("apply_fun of Dropout requires rng", "none", "call apply_fun(params, inputs, rng=key)")
        if mode != "train":
            return inputs
        return hnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0)

    return lambda rng, input_shape: (input_shape, ()), apply_fun


def _keys(rng, count: int):
    return [None] * count if rng is None else list(random.split(rng, count))


def serial(*layers):
    """Layers one after the other."""
    inits, applies = zip(*layers, strict=True)

    def init_fun(rng, input_shape):
        params = []
        for init in inits:
            rng, own = random.split(rng)
            input_shape, param = init(own, input_shape)
            params.append(param)
        return input_shape, params

    def apply_fun(params, inputs, **kwargs):
        for fun, param, rng in zip(applies, params, _keys(kwargs.pop("rng", None), len(applies)), strict=True):
            inputs = fun(param, inputs, rng=rng, **kwargs)
        return inputs

    return init_fun, apply_fun


def parallel(*layers):
    """Parallel layers, each applied to its own element of the list of inputs."""
    inits, applies = zip(*layers, strict=True)

    def init_fun(rng, input_shape):
        keys = random.split(rng, len(inits))
        shapes, params = zip(*(init(k, s) for init, k, s in zip(inits, keys, input_shape, strict=True)), strict=True)
        return list(shapes), list(params)

    def apply_fun(params, inputs, **kwargs):
        rngs = _keys(kwargs.pop("rng", None), len(applies))
        return [f(p, x, rng=r, **kwargs) for f, p, x, r in zip(applies, params, inputs, rngs, strict=True)]

    return init_fun, apply_fun


def shape_dependent(make_layer):
    """A layer that is created when the shape of its input is known: make_layer(input_shape) -> layer."""

    def init_fun(rng, input_shape):
        return make_layer(input_shape)[0](rng, input_shape)

    def apply_fun(params, inputs, **kwargs):
        return make_layer(inputs.shape)[1](params, inputs, **kwargs)

    return init_fun, apply_fun


__all__ = [
    "AvgPool", "BatchNorm", "Conv", "Conv1DTranspose", "ConvTranspose", "Dense", "Dropout", "Elu", "Exp",
    "FanInConcat", "FanInSum", "FanOut", "Flatten", "Gelu", "GeneralConv", "GeneralConvTranspose", "Identity",
    "LeakyRelu", "LogSoftmax", "MaxPool", "Relu", "Selu", "Sigmoid", "Softmax", "Softplus", "SumPool", "Tanh",
    "elementwise", "parallel", "serial", "shape_dependent",
]  # fmt: skip
__dir__ = __all__.copy

"""Initializers, with `jax.nn.initializers`' names: each returns init(key, shape, dtype) -> array."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

import hloom.numpy as hnp
from hloom import lax, random
from hloom.errors import ArgumentError
from hloom.ir.types import as_dtype


class Initializer(Protocol):
    """The type of initializers, which the functions of this module are or return: init(key, shape, dtype) -> array."""

    def __call__(self, key, shape, dtype="f32"):
        """The initial values."""


def zeros(key, shape, dtype="f32"):
    """Zeros; the key is not used.

    >>> hl.nn.initializers.zeros(hl.random.key(0), (3,))
    Array([0., 0., 0.], dtype=float32)
    """
    return hnp.zeros(shape, dtype)


def ones(key, shape, dtype="f32"):
    """Ones; the key is not used.

    >>> hl.nn.initializers.ones(hl.random.key(0), (3,))
    Array([1., 1., 1.], dtype=float32)
    """
    return hnp.ones(shape, dtype)


def constant(value, dtype="f32"):
    """The same value everywhere.

    >>> hl.nn.initializers.constant(0.5)(hl.random.key(0), (2,))
    Array([0.5, 0.5], dtype=float32)
    """

    def init(key, shape, dtype=dtype):
        return hnp.full(shape, value, dtype)

    return init


def _scaled_draws(draw, factor, dtype):
    """The initializer factor * draw(key, shape, dtype)."""

    def init(key, shape, dtype=dtype):
        return draw(key, shape, dtype) * hnp.asarray(factor, dtype)

    return init


def uniform(scale=1e-2, dtype="f32"):
    """Uniform between 0 and `scale`.

    >>> w = hl.nn.initializers.uniform(0.1)(hl.random.key(0), (64, 32))
    >>> bool((w >= 0).all()), bool((w < 0.1).all())
    (True, True)
    """
    return _scaled_draws(random.uniform, scale, dtype)


def normal(stddev=1e-2, dtype="f32"):
    """Normal with mean 0.

    >>> hl.nn.initializers.normal(stddev=0.02)(hl.random.key(0), (64, 32)).shape
    (64, 32)
    """
    return _scaled_draws(random.normal, stddev, dtype)


def truncated_normal(stddev=1e-2, dtype="f32", lower=-2.0, upper=2.0):
    """Normal, truncated at `lower` and `upper` standard deviations.

    >>> w = hl.nn.initializers.truncated_normal(stddev=1.0)(hl.random.key(0), (64, 32))
    >>> bool(hnp.abs(w).max() <= 2)
    True
    """
    return _scaled_draws(lambda key, *like: random.truncated_normal(key, lower, upper, *like), stddev, dtype)


def _axes(axis) -> tuple[int, ...]:
    return tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)


def _fans(shape, in_axis, out_axis, batch_axis) -> tuple[float, float]:
    """The fan-in and fan-out of a unit: for a convolution each times the size of the window."""
    if len(shape) < 2:
        raise ArgumentError(
            "variance scaling needs arrays of two or more dimensions",
            f"the shape {tuple(shape)}",
            "use normal, uniform or zeros for vectors",
        )
    inputs = math.prod(shape[k] for k in _axes(in_axis))
    outputs = math.prod(shape[k] for k in _axes(out_axis))
    batch = math.prod(shape[k] for k in _axes(batch_axis))
    window = math.prod(shape) / max(inputs * outputs * batch, 1)
    return inputs * window, outputs * window


def _in_disk(key, modulus, shape, dtype):
    """Complex numbers with uniform argument; modulus: a function of a uniform number between 0 and 1."""
    real = np.empty(0, dtype).real.dtype
    for_modulus, for_angle = random.split(key)
    angle = 2 * math.pi * random.uniform(for_angle, shape, real)
    return lax.complex(hnp.cos(angle), hnp.sin(angle)) * modulus(random.uniform(for_modulus, shape, real)).astype(dtype)


def _complex_truncated_normal(key, upper: float, shape, dtype):
    """Normal in the complex plane, with variance 1 before truncation at the modulus `upper`."""
    mass = 1 - math.exp(-(upper**2))
    return _in_disk(key, lambda u: hnp.sqrt(-hnp.log1p(-mass * u)), shape, dtype)


def variance_scaling(scale, mode, distribution, in_axis=-2, out_axis=-1, batch_axis=(), dtype="f32"):
    """Variance scale / n, n the fan_in, fan_out, fan_avg or geometric fan_geo_avg (He et al., 2015).

    distribution: 'truncated_normal', 'normal' or 'uniform'. Raises ArgumentError for other names.

    >>> init = hl.nn.initializers.variance_scaling(2.0, "fan_in", "truncated_normal")
    >>> init(hl.random.key(0), (64, 32)).shape
    (64, 32)
    """

    def init(key, shape, dtype=dtype):
        shape = tuple(shape)
        fan_in, fan_out = _fans(shape, in_axis, out_axis, batch_axis)
        sizes = {
            "fan_in": fan_in,
            "fan_out": fan_out,
            "fan_avg": (fan_in + fan_out) / 2,
            "fan_geo_avg": math.sqrt(fan_in * fan_out),
        }
        if mode not in sizes:
            raise ArgumentError("a mode of variance_scaling", repr(mode), f"one of {', '.join(sizes)}")
        variance = scale / (sizes[mode] or 1)  # for an empty array
        dtype = as_dtype(dtype)
        if distribution == "truncated_normal":
            # 0.8796...: the standard deviation of a normal truncated at two of them; 0.9531... of a complex one.
            if dtype.kind == "c":
                factor = math.sqrt(variance) / 0.95311164380491208
                return _complex_truncated_normal(key, 2, shape, dtype) * hnp.asarray(factor, dtype)
            factor = math.sqrt(variance) / 0.87962566103423978
            return random.truncated_normal(key, -2, 2, shape, dtype) * hnp.asarray(factor, dtype)
        if distribution == "normal":
            return random.normal(key, shape, dtype) * hnp.asarray(math.sqrt(variance), dtype)
        if distribution == "uniform" and dtype.kind == "c":
            return _in_disk(key, lambda u: hnp.sqrt(2 * u), shape, dtype) * hnp.asarray(math.sqrt(variance), dtype)
        if distribution == "uniform":
            return random.uniform(key, shape, dtype, -1) * hnp.asarray(math.sqrt(3 * variance), dtype)
        raise ArgumentError(
            "a distribution of variance_scaling", repr(distribution), "one of truncated_normal, normal, uniform"
        )

    return init


def _scaled(name: str, scale: float, mode: str, distribution: str, source: str):
    def make(in_axis=-2, out_axis=-1, batch_axis=(), dtype="f32"):
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""variance_scaling({scale}, '{mode}', '{distribution}') ({source}).

    >>> hl.nn.initializers.{name}()(hl.random.key(0), (64, 32)).shape
    (64, 32)
    """
    return make


_GLOROT, _LECUN, _HE = "Glorot and Bengio, 2010", "LeCun et al., 1998", "He et al., 2015"
glorot_uniform = xavier_uniform = _scaled("glorot_uniform", 1.0, "fan_avg", "uniform", _GLOROT)
glorot_normal = xavier_normal = _scaled("glorot_normal", 1.0, "fan_avg", "truncated_normal", _GLOROT)
lecun_uniform = _scaled("lecun_uniform", 1.0, "fan_in", "uniform", _LECUN)
lecun_normal = _scaled("lecun_normal", 1.0, "fan_in", "truncated_normal", _LECUN)
he_uniform = kaiming_uniform = _scaled("he_uniform", 2.0, "fan_in", "uniform", _HE)
he_normal = kaiming_normal = _scaled("he_normal", 2.0, "fan_in", "truncated_normal", _HE)


def orthogonal(scale=1.0, column_axis=-1, dtype="f32"):
    """Random matrices with orthonormal rows or columns, whichever are fewer (Saxe et al., 2014).

    >>> q = hl.nn.initializers.orthogonal()(hl.random.key(0), (4, 4))
    >>> bool(hnp.allclose(q @ q.T, hnp.eye(4), atol=1e-5))
    True
    """

    def init(key, shape, dtype=dtype):
        shape = tuple(shape)
        if len(shape) < 2:
            raise ArgumentError("orthogonal needs two or more dimensions", f"{shape}", "use normal for vectors")
        columns = shape[column_axis]
        rows = math.prod(shape) // columns
        tall = (columns, rows) if rows < columns else (rows, columns)
        q, r = hnp.linalg.qr(random.normal(key, tall, dtype))
        q = q * hnp.sign(hnp.diagonal(r))  # makes the distribution uniform over orthogonal matrices
        if rows < columns:
            q = q.T
        moved = (*(n for k, n in enumerate(shape) if k != column_axis % len(shape)), columns)
        return hnp.asarray(scale, dtype) * hnp.moveaxis(hnp.reshape(q, moved), -1, column_axis)

    return init


def delta_orthogonal(scale=1.0, column_axis=-1, dtype="f32"):
    """Convolution kernels (1 to 3 leading window dimensions) that are orthogonal at the center and zero elsewhere (Xiao
    et al., 2018).

    >>> hl.nn.initializers.delta_orthogonal()(hl.random.key(0), (3, 3, 4, 8)).shape
    (3, 3, 4, 8)
    """

    def init(key, shape, dtype=dtype):
        shape = tuple(shape)
        if not 3 <= len(shape) <= 5:
            raise ArgumentError("delta_orthogonal requires a shape of 3 to 5 dimensions", f"{shape}", "use orthogonal")
        if shape[-1] < shape[-2]:
            raise ArgumentError("delta_orthogonal needs as many outputs as inputs", f"{shape}", "use orthogonal")
        matrix = orthogonal(scale, column_axis, dtype)(key, shape[-2:])
        middle = tuple((n - 1) // 2 for n in shape[:-2])
        widths = [(m, n - 1 - m) for m, n in zip(middle, shape[:-2], strict=True)]
        return hnp.pad(hnp.reshape(matrix, (1,) * len(middle) + shape[-2:]), [*widths, (0, 0), (0, 0)])

    return init


__all__ = [
    "Initializer", "constant", "delta_orthogonal", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform",
    "kaiming_normal", "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal", "ones", "orthogonal",
    "truncated_normal", "uniform", "variance_scaling", "xavier_normal", "xavier_uniform", "zeros",
]  # fmt: skip
__dir__ = __all__.copy

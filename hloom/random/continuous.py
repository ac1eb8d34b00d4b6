"""Distributions that are functions of uniform bits, continuous: the same numbers as JAX for the same key.

Each is compiled once for each shape; the bits are made inside the kernel that uses them. Parameters broadcast against
each other; `shape` may ask for more.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.types import DTYPES, as_dtype, real_dtype
from hloom.lax.operands import as_operand, broadcast_dims_to, default_int, full
from hloom.random.bits import UINT_OF_BITS, dims_of, float_dtype, parameters, raw_bits, raw_split, run
from hloom.random.keys import take_key

# --- pieces on traced keys ----------------------------------------------------------------------------------------


def keys_of(data, implementation: str, count: int) -> list:
    """`count` new traced keys."""
    words = raw_split(data, implementation, (count,))
    return [lax.index_in_dim(words, k, keepdims=False) for k in range(count)]


def limits(dtype):
    return ml_dtypes.finfo(dtype)


def fraction(data, implementation: str, dims, dtype):
    """Multiples of 2^-mantissa bits in [0, 1), equally likely."""
    info = limits(dtype)
    width = info.bits if info.nmant >= 8 else 8
    word = UINT_OF_BITS[info.bits]
    bits = raw_bits(data, implementation, width, dims)
    bits = lax.shift_right_logical(bits, full(width - info.nmant, bits.dtype, dims))
    one = int(np.ones((), dtype).view(word))
    bits = lax.bitwise_or(lax.convert_element_type(bits, word), full(one, word, dims))
    return lax.sub(lax.bitcast_convert_type(bits, dtype), full(1.0, dtype, dims))


def between(data, implementation: str, dims, dtype, low, high):
    """Uniform numbers in [low, high), Python numbers or arrays that broadcast to `dims`."""
    u = fraction(data, implementation, dims, dtype)
    exact = has_exact_products(low, high, dtype)
    low, high = (spread(v, dims, dtype) for v in (low, high))
    width = lax.sub(high, low)
    x = lax.add(lax.mul(u, width), low) if exact else fused(u, width, low)
    return lax.max(low, x)


def has_exact_products(low, high, dtype) -> bool:
    """Whether high - low is known and a power of two, so that its products with fractions are not rounded at all."""
    if not isinstance(low, (int, float, np.floating)) or not isinstance(high, (int, float, np.floating)):
        return False
    with np.errstate(all="ignore"):
        width = np.array(high, dtype) - np.array(low, dtype)
    return bool(np.isfinite(width) and 2.0**-64 <= width <= 2.0**64 and np.frexp(np.float64(width))[0] == 0.5)


def fused(x, y, z):
    """x * y + z, in f32 rounded once, as XLA's fused multiply-add does it: the product is exact in f64."""
    if x.dtype != DTYPES["f32"]:
        return lax.add(lax.mul(x, y), z)
    x, y, z = (lax.convert_element_type(v, DTYPES["f64"]) for v in (x, y, z))
    return lax.convert_element_type(lax.add(lax.mul(x, y), z), DTYPES["f32"])


def spread(value, dims, dtype):
    """A Python number or an array as an array of this shape."""
    if isinstance(value, (int, float, np.generic)):
        return full(value, dtype, dims) if not isinstance(value, np.generic) else full(float(value), dtype, dims)
    return broadcast_dims_to(lax.convert_element_type(value, dtype), dims)


def standard_normal(data, implementation: str, dims, dtype):
    """Normal numbers by the inverse of erf."""
    if as_dtype(dtype).kind == "c":
        real = real_dtype(dtype)
        parts = [standard_normal(k, implementation, dims, real) for k in keys_of(data, implementation, 2)]
        root = full(math.sqrt(2), real, dims)
        return lax.complex(*(lax.div(p, root) for p in parts))
    below = np.nextafter(np.array(-1, dtype), np.array(0, dtype))
    u = between(data, implementation, dims, dtype, below, 1.0)
    return lax.mul(full(math.sqrt(2), dtype, dims), lax.erf_inv(u))


def standard_exponential(data, implementation: str, dims, dtype):
    return lax.neg(lax.log1p(lax.neg(fraction(data, implementation, dims, dtype))))


def standard_gumbel(data, implementation: str, dims, dtype, mode: str = "low"):
    """-log(-log(u)); with mode 'high' u has twice the bits, so that its tail is longer."""
    tiny = limits(dtype).tiny
    if mode == "high":
        both = between(data, implementation, (2, *dims), dtype, tiny, 1.0)
        coarse, fine = (lax.index_in_dim(both, k, keepdims=False) for k in (0, 1))
        step = full(2.0 ** -limits(dtype).nmant, dtype, dims)
        # From 1/2 on the coarse number has no room for more bits.
        fine = lax.select(lax.lt(coarse, full(0.5, dtype, dims)), lax.mul(fine, step), full(0.0, dtype, dims))
        return lax.neg(lax.log(lax.neg(lax.log1p(lax.neg(lax.add(coarse, fine))))))
    u = between(data, implementation, dims, dtype, tiny, 1.0)
    return lax.neg(lax.log(lax.neg(lax.log(u))))


# --- uniform and normal -------------------------------------------------------------------------------------------


def _uniform(data, low, high, implementation, dims, dtype):
    return between(data, implementation, dims, dtype, low, high)


def _unit(data, implementation, dims, dtype):
    return fraction(data, implementation, dims, dtype)


@takes_out_sharding
def uniform(key, shape=(), dtype=None, minval=0.0, maxval=1.0, *, out_sharding=None):
    """Uniform floats in [minval, maxval). dtype: f32 by default. Raises ArgumentError, DTypeError, ShapeError.

    >>> x = hl.random.uniform(hl.random.key(0), (1000,), minval=-1.0)
    >>> x.shape, bool(x.min() >= -1), bool(x.max() < 1)
    ((1000,), True, True)
    """
    data, implementation = take_key(key, "uniform")
    dtype, dims = float_dtype(dtype, "uniform"), dims_of(shape, "uniform")
    if type(minval) in (int, float) and type(maxval) in (int, float) and minval == 0 and maxval == 1:
        return run(_unit, (implementation, dims, dtype), data)
    dims, bounds = parameters("uniform", dims, (minval, maxval), dtype)
    return run(_uniform, (implementation, dims, dtype), data, *bounds)


def _normal(data, implementation, dims, dtype):
    return standard_normal(data, implementation, dims, dtype)


@takes_out_sharding
def normal(key, shape=(), dtype=None, *, out_sharding=None):
    """Normal numbers of mean 0 and variance 1; complex dtypes have half of the variance in each part.

    Raises ArgumentError, DTypeError, ShapeError.

    >>> x = hl.random.normal(hl.random.key(0), (10_000,))
    >>> x.shape, bool(abs(x.mean()) < 0.05), bool(abs(x.std() - 1) < 0.05)
    ((10000,), True, True)
    """
    data, implementation = take_key(key, "normal")
    dtype = float_dtype(dtype, "normal", complex_too=True)
    return run(_normal, (implementation, dims_of(shape, "normal"), dtype), data)


def _truncated_normal(data, lower, upper, implementation, dims, dtype):
    root = math.sqrt(2)
    low, high = (lax.erf(lax.div(v, full(root, dtype, v.shape))) for v in (lower, upper))
    u = between(data, implementation, dims, dtype, low, high)
    x = lax.mul(full(root, dtype, dims), lax.erf_inv(u))
    infinity = full(math.inf, dtype, dims)
    low = lax.nextafter(lax.stop_gradient(broadcast_dims_to(lower, dims)), infinity)
    high = lax.nextafter(lax.stop_gradient(broadcast_dims_to(upper, dims)), lax.neg(infinity))
    return lax.clamp(low, x, high)


@takes_out_sharding
def truncated_normal(key, lower, upper, shape=None, dtype=None, *, out_sharding=None):
    """Normal numbers between lower and upper. Raises ArgumentError, DTypeError, ShapeError.

    >>> x = hl.random.truncated_normal(hl.random.key(0), -2.0, 2.0, (100,))
    >>> bool(hnp.abs(x).max() <= 2)
    True
    """
    data, implementation = take_key(key, "truncated_normal")
    dtype = float_dtype(dtype, "truncated_normal")
    dims, bounds = parameters("truncated_normal", shape, (lower, upper), dtype)
    return run(_truncated_normal, (implementation, dims, dtype), data, *bounds)


def _lognormal(data, sigma, implementation, dims, dtype):
    return lax.exp(lax.mul(standard_normal(data, implementation, dims, dtype), broadcast_dims_to(sigma, dims)))


@takes_out_sharding
def lognormal(key, sigma=1.0, shape=None, dtype=None, *, out_sharding=None):
    """exp of normal numbers of standard deviation sigma. Raises ArgumentError, DTypeError, ShapeError.

    >>> bool(hl.random.lognormal(hl.random.key(0), shape=(100,)).min() > 0)
    True
    """
    data, implementation = take_key(key, "lognormal")
    dtype = float_dtype(dtype, "lognormal")
    dims, (sigma,) = parameters("lognormal", shape, (sigma,), dtype)
    return run(_lognormal, (implementation, dims, dtype), data, sigma)


# --- no parameters ------------------------------------------------------------------------------------------------


def _laplace(data, implementation, dims, dtype):
    u = between(data, implementation, dims, dtype, float(-1 + limits(dtype).epsneg), 1.0)
    return lax.mul(lax.sign(u), lax.log1p(lax.neg(lax.abs(u))))


def _logistic(data, implementation, dims, dtype):
    u = between(data, implementation, dims, dtype, limits(dtype).tiny, 1.0)
    return lax.log(lax.div(u, lax.sub(full(1.0, dtype, dims), u)))


def _cauchy(data, implementation, dims, dtype):
    u = between(data, implementation, dims, dtype, float(limits(dtype).eps), 1.0)
    return lax.tan(lax.mul(full(math.pi, dtype, dims), lax.sub(u, full(0.5, dtype, dims))))


def _exponential(data, implementation, dims, dtype):
    return standard_exponential(data, implementation, dims, dtype)


def _maxwell(data, implementation, dims, dtype):
    x = standard_normal(data, implementation, (*dims, 3), dtype)
    return lax.sqrt(lax.reduce_sum(lax.mul(x, x), (len(dims),)))


def _plain(name: str, body, text: str):
    @takes_out_sharding
    def function(key, shape=(), dtype=None, *, out_sharding=None):
        data, implementation = take_key(key, name)
        return run(body, (implementation, dims_of(shape, name), float_dtype(dtype, name)), data)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{text} dtype: f32 by default.

    Raises ArgumentError, DTypeError, ShapeError.

    >>> hl.random.{name}(hl.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return function


exponential = _plain("exponential", _exponential, "Exponential numbers of mean 1.")
laplace = _plain("laplace", _laplace, "Laplace numbers, density exp(-|x|) / 2.")
logistic = _plain("logistic", _logistic, "Logistic numbers, cumulative distribution 1 / (1 + exp(-x)).")
cauchy = _plain("cauchy", _cauchy, "Cauchy numbers, density 1 / (pi (1 + x^2)).")
maxwell = _plain("maxwell", _maxwell, "Maxwell numbers: lengths of normal vectors of three dimensions.")


def _gumbel(data, implementation, dims, dtype, mode):
    return standard_gumbel(data, implementation, dims, dtype, mode)


@takes_out_sharding
def gumbel(key, shape=(), dtype=None, mode: str | None = None, *, out_sharding=None):
    """Gumbel numbers, cumulative distribution exp(-exp(-x)). mode: 'low' (the default), or 'high' for a longer tail.

    Raises ArgumentError, DTypeError, ShapeError.

    >>> hl.random.gumbel(hl.random.key(0), (2, 3)).shape
    (2, 3)
    """
    data, implementation = take_key(key, "gumbel")
    return run(
        _gumbel,
        (implementation, dims_of(shape, "gumbel"), float_dtype(dtype, "gumbel"), take_mode(mode, "gumbel")),
        data,
    )


def take_mode(mode, name: str) -> str:
    if mode not in (None, "low", "high"):
        raise ArgumentError(f"random.{name} has the modes 'low' and 'high'", repr(mode), "leave it out")
    return mode or "low"


# --- parameters ---------------------------------------------------------------------------------------------------


def _pareto(data, b, implementation, dims, dtype):
    e = standard_exponential(data, implementation, dims, dtype)
    return lax.exp(lax.div(e, broadcast_dims_to(b, dims)))


@takes_out_sharding
def pareto(key, b, shape=None, dtype=None, *, out_sharding=None):
    """Pareto numbers of shape b, density b / x^(b + 1) from 1 on. Raises ArgumentError, DTypeError, ShapeError.

    >>> bool(hl.random.pareto(hl.random.key(0), 2.0, (100,)).min() >= 1)
    True
    """
    data, implementation = take_key(key, "pareto")
    dtype = float_dtype(dtype, "pareto")
    dims, (b,) = parameters("pareto", shape, (b,), dtype)
    return run(_pareto, (implementation, dims, dtype), data, b)


def _rayleigh(data, scale, implementation, dims, dtype):
    u = fraction(data, implementation, dims, dtype)
    return lax.mul(lax.sqrt(lax.mul(lax.log(u), full(-2.0, dtype, dims))), broadcast_dims_to(scale, dims))


@takes_out_sharding
def rayleigh(key, scale, shape=None, dtype=None, *, out_sharding=None):
    """Rayleigh numbers: lengths of normal vectors of two dimensions, times scale. Raises ArgumentError, ShapeError.

    >>> hl.random.rayleigh(hl.random.key(0), 2.0, (4,)).shape
    (4,)
    """
    data, implementation = take_key(key, "rayleigh")
    dtype = float_dtype(dtype, "rayleigh")
    dims, (scale,) = parameters("rayleigh", shape, (scale,), dtype)
    return run(_rayleigh, (implementation, dims, dtype), data, scale)


def _weibull_min(data, scale, concentration, implementation, dims, dtype):
    e = standard_exponential(data, implementation, dims, dtype)
    power = lax.pow(e, broadcast_dims_to(lax.reciprocal(concentration), dims))
    return lax.mul(power, broadcast_dims_to(scale, dims))


def weibull_min(key, scale, concentration, shape=(), dtype=None):
    """Weibull numbers. scale, concentration: positive. Raises ArgumentError, DTypeError, ShapeError.

    >>> hl.random.weibull_min(hl.random.key(0), 1.0, 2.0, (4,)).shape
    (4,)
    """
    data, implementation = take_key(key, "weibull_min")
    dtype = float_dtype(dtype, "weibull_min")
    dims, values = parameters("weibull_min", shape, (scale, concentration), dtype)
    return run(_weibull_min, (implementation, dims, dtype), data, *values)


def _triangular(data, left, mode, right, implementation, dims, dtype):
    left, mode, right = (broadcast_dims_to(v, dims) for v in (left, mode, right))
    width = lax.sub(right, left)
    u = fraction(data, implementation, dims, dtype)
    one = full(1.0, dtype, dims)
    rising = lax.add(left, lax.sqrt(lax.mul(lax.mul(u, width), lax.sub(mode, left))))
    falling = lax.sub(right, lax.sqrt(lax.mul(lax.mul(lax.sub(one, u), width), lax.sub(right, mode))))
    return lax.select(lax.lt(u, lax.div(lax.sub(mode, left), width)), rising, falling)


@takes_out_sharding
def triangular(key, left, mode, right, shape=None, dtype=None, *, out_sharding=None):
    """Numbers whose density rises linearly from left to mode and falls to right. Raises ArgumentError, ShapeError.

    >>> x = hl.random.triangular(hl.random.key(0), 0.0, 1.0, 3.0, (100,))
    >>> bool(x.min() >= 0), bool(x.max() <= 3)
    (True, True)
    """
    data, implementation = take_key(key, "triangular")
    dtype = float_dtype(dtype, "triangular")
    dims, values = parameters("triangular", shape, (left, mode, right), dtype)
    return run(_triangular, (implementation, dims, dtype), data, *values)


def _wald(data, mean, implementation, dims, dtype):
    mean = broadcast_dims_to(mean, dims)
    first, second = keys_of(data, implementation, 2)
    v = standard_normal(first, implementation, dims, dtype)
    z = fraction(second, implementation, dims, dtype)
    y = lax.mul(v, v)
    squared = lax.mul(mean, mean)
    half = lax.div(mean, full(2.0, dtype, dims))
    root = lax.sqrt(lax.add(lax.mul(lax.mul(full(4.0, dtype, dims), mean), y), lax.mul(squared, lax.mul(y, y))))
    x = lax.sub(lax.add(mean, lax.div(lax.mul(squared, y), full(2.0, dtype, dims))), lax.mul(half, root))
    return lax.select(lax.le(z, lax.div(mean, lax.add(mean, x))), x, lax.div(squared, x))


@takes_out_sharding
def wald(key, mean, shape=None, dtype=None, *, out_sharding=None):
    """Wald (inverse Gaussian) numbers of scale 1. Source: Michael, Schucany and Haas, 1976. Raises ArgumentError.

    >>> bool(hl.random.wald(hl.random.key(0), 1.0, (100,)).min() > 0)
    True
    """
    data, implementation = take_key(key, "wald")
    dtype = float_dtype(dtype, "wald")
    dims, (mean,) = parameters("wald", shape, (mean,), dtype)
    return run(_wald, (implementation, dims, dtype), data, mean)


def _double_sided_maxwell(data, loc, scale, implementation, dims, dtype):
    first, second = keys_of(data, implementation, 2)
    size = _maxwell(first, implementation, dims, dtype)
    sign = signs(second, implementation, dims, dtype)
    loc, scale = (broadcast_dims_to(v, dims) for v in (loc, scale))
    return lax.add(lax.mul(lax.mul(sign, size), scale), loc)


def signs(data, implementation: str, dims, dtype):
    """-1 or 1, equally likely."""
    u = fraction(data, implementation, dims, DTYPES["f32"])
    one = full(1, dtype, dims)
    return lax.select(lax.lt(u, full(0.5, DTYPES["f32"], dims)), one, lax.neg(one))


def double_sided_maxwell(key, loc, scale, shape=(), dtype=None):
    """Maxwell numbers of either sign, times scale, plus loc. Raises ArgumentError, DTypeError, ShapeError.

    >>> hl.random.double_sided_maxwell(hl.random.key(0), 0.0, 1.0, (4,)).shape
    (4,)
    """
    data, implementation = take_key(key, "double_sided_maxwell")
    dtype = float_dtype(dtype, "double_sided_maxwell")
    dims, values = parameters("double_sided_maxwell", None, (loc, scale), dtype)
    dims = (*dims_of(shape, "double_sided_maxwell"), *dims)
    return run(_double_sided_maxwell, (implementation, dims, dtype), data, *values)


def _rademacher(data, implementation, dims, dtype):
    return signs(data, implementation, dims, dtype)


@takes_out_sharding
def rademacher(key, shape=(), dtype=None, *, out_sharding=None):
    """-1 or 1, equally likely. dtype: s32 (s64 with enable_x64) by default. Raises ArgumentError, ShapeError.

    >>> hnp.unique(hl.random.rademacher(hl.random.key(0), (100,)))
    Array([-1,  1], dtype=int32)
    """
    data, implementation = take_key(key, "rademacher")
    dtype = default_int() if dtype is None else as_dtype(dtype)
    return run(_rademacher, (implementation, dims_of(shape, "rademacher"), dtype), data)


# --- vectors and matrices -----------------------------------------------------------------------------------------


def _multivariate_normal(data, mean, cov, implementation, dims, dtype, method):
    if method == "cholesky":
        factor = hnp.linalg.cholesky(cov)
    elif method == "eigh":
        values, vectors = hnp.linalg.eigh(cov)
        factor = vectors * hnp.sqrt(values)[..., None, :]
    else:
        u, s, _ = hnp.linalg.svd(cov)
        factor = u * hnp.sqrt(s)[..., None, :]
    x = standard_normal(data, implementation, (*dims, mean.shape[-1]), dtype)
    return mean + hnp.einsum("...ij,...j->...i", factor, x)


@takes_out_sharding
def multivariate_normal(key, mean, cov, shape=None, dtype=None, method="cholesky", *, out_sharding=None):
    """Normal vectors. mean: (..., n), cov: (..., n, n). method: 'cholesky', 'eigh' or 'svd' of cov.

    The result has shape (*shape, n). Raises ArgumentError, DTypeError, ShapeError.

    >>> mean, cov = hnp.zeros(2), hnp.array([[1.0, 0.5], [0.5, 1.0]])
    >>> hl.random.multivariate_normal(hl.random.key(0), mean, cov, (100,)).shape
    (100, 2)
    """
    data, implementation = take_key(key, "multivariate_normal")
    if method not in ("cholesky", "eigh", "svd"):
        raise ArgumentError(
            "random.multivariate_normal has the methods cholesky, eigh, svd", repr(method), "take one of them"
        )
    dtype = float_dtype(dtype, "multivariate_normal")
    mean, cov = (lax.convert_element_type(as_operand(v, "random.multivariate_normal"), dtype) for v in (mean, cov))
    if len(mean.shape) < 1 or tuple(cov.shape[-2:]) != (mean.shape[-1],) * 2:
        raise ShapeError(
            "random.multivariate_normal takes a mean (..., n) and a covariance (..., n, n)",
            f"{mean._shape!r} and {cov._shape!r}",
            "give both the same n",
        )
    own = np.broadcast_shapes(mean.shape[:-1], cov.shape[:-2])
    dims = own if shape is None else dims_of(shape, "multivariate_normal")
    return run(_multivariate_normal, (implementation, dims, dtype, method), data, mean, cov)


def _orthogonal(data, implementation, n, dims, dtype, m):
    z = standard_normal(data, implementation, (*dims, max(n, m), min(n, m)), dtype)
    q, r = hnp.linalg.qr(z)
    d = hnp.diagonal(r, axis1=-2, axis2=-1)
    q = q * hnp.expand_dims(d / hnp.abs(d), -2)
    return hnp.swapaxes(q, -2, -1) if n < m else q


@takes_out_sharding
def orthogonal(key, n: int, shape=(), dtype=None, m: int | None = None, *, out_sharding=None):
    """Matrices (*shape, n, m) with orthonormal columns (rows, where n < m), uniform among all such; m is n by default.

    Source: Mezzadri, How to generate random matrices from the classical compact groups, 2007. Raises ArgumentError.

    >>> q = hl.random.orthogonal(hl.random.key(0), 3)
    >>> hnp.allclose(q @ q.T, hnp.eye(3), atol=1e-5)
    Array(True, dtype=bool)
    """
    data, implementation = take_key(key, "orthogonal")
    dtype = float_dtype(dtype, "orthogonal", complex_too=True)
    return run(
        _orthogonal, (implementation, int(n), dims_of(shape, "orthogonal"), dtype, int(n if m is None else m)), data
    )


__all__ = [
    "cauchy", "double_sided_maxwell", "exponential", "gumbel", "laplace", "logistic", "lognormal", "maxwell",
    "multivariate_normal", "normal", "orthogonal", "pareto", "rademacher", "rayleigh", "triangular",
    "truncated_normal", "uniform", "wald", "weibull_min",
]  # fmt: skip

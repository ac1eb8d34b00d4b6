"""Distributions that draw until a draw is accepted: gamma and the distributions based on it, poisson, binomial.

The loops are those of JAX, so the same key gives the same numbers; where a comparison depends on the last bits of a
logarithm, a draw may be accepted here and rejected there.
"""

from __future__ import annotations

import math

import numpy as np

from hloom import lax
from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.types import DTYPES, HLO_NAME, INTEGERS, as_dtype
from hloom.lax.operands import as_operand, broadcast_dims_to, default_int, full
from hloom.random.bits import dims_of, float_dtype, parameters, raw_split, run
from hloom.random.continuous import fraction, fused, keys_of, signs, standard_exponential, standard_normal
from hloom.random.keys import take_key
from hloom.transforms.custom_derivatives import custom_jvp
from hloom.transforms.vmap import vmap

F32, S32 = DTYPES["f32"], DTYPES["s32"]
SQUEEZE = 0.0331

# --- gamma --------------------------------------------------------------------------------------------------------


def _gamma_one(data, a, implementation: str, logarithm: bool):
    """One number of the gamma distribution (its logarithm), by Marsaglia and Tsang, 2000.

    a below 1: the number for a + 1, times u^(1 / a).
    """
    dtype = a.dtype

    def number(value):
        return full(value, dtype, ())

    one = number(1.0)
    large = lax.ge(a, one)
    shape = lax.select(large, a, lax.add(a, one))
    d = lax.sub(shape, number(1 / 3))
    c = lax.div(number(1 / 3), lax.sqrt(d))
    data, boost_key = keys_of(data, implementation, 2)

    def undecided(state):
        _, square, cube, u = state
        squeezed = lax.ge(u, lax.sub(one, lax.mul(number(SQUEEZE), lax.mul(square, square))))
        bound = lax.add(lax.mul(square, number(0.5)), lax.mul(d, lax.add(lax.sub(one, cube), lax.log(cube))))
        return lax.bitwise_and(squeezed, lax.ge(lax.log(u), bound))

    def draw(state):
        key, x_key, u_key = keys_of(state[0], implementation, 3)

        def again(inner):
            following, own = keys_of(inner[0], implementation, 2)
            x = standard_normal(own, implementation, (), dtype)
            return following, x, lax.add(one, lax.mul(x, c))

        _, x, v = lax.while_loop(lambda inner: lax.le(inner[2], number(0.0)), again, (x_key, number(0.0), number(-1.0)))
        u = fraction(u_key, implementation, (), dtype)
        return key, lax.mul(x, x), lax.mul(lax.mul(v, v), v), u

    _, _, cube, _ = lax.while_loop(undecided, draw, (data, number(0.0), one, number(2.0)))
    if logarithm:
        u = lax.neg(standard_exponential(boost_key, implementation, (), dtype))
        boost = lax.select(lax.bitwise_or(large, lax.eq(u, number(0.0))), number(0.0), lax.div(u, a))
        return lax.add(lax.add(lax.log(d), lax.log(cube)), boost)
    u = lax.sub(one, fraction(boost_key, implementation, (), dtype))
    boost = lax.select(large, one, lax.pow(u, lax.div(one, a)))
    return lax.mul(lax.mul(d, cube), boost)


def standard_gamma(data, a, implementation: str, dims, logarithm: bool):
    """Gamma numbers (their logarithms) of a traced key; `a` broadcasts to `dims`. Differentiable by a."""
    size = math.prod(dims)
    a = broadcast_dims_to(a, dims)

    def sample(data, a):
        keys = raw_split(data, implementation, (size,))
        drawn = vmap(lambda k, x: _gamma_one(k, x, implementation, logarithm))(keys, lax.reshape(a, (size,)))
        return lax.reshape(drawn, dims)

    sampler = custom_jvp(sample)

    @sampler.defjvp
    def derivative(primals, tangents):
        data, shape = primals
        value = sampler(data, shape)
        x = lax.exp(value) if logarithm else value
        slope = lax.random_gamma_grad(shape, x)
        return value, lax.mul(lax.div(slope, x) if logarithm else slope, tangents[1])

    return sampler(data, a)


def _gamma(data, a, implementation, dims, logarithm):
    return standard_gamma(data, a, implementation, dims, logarithm)


@takes_out_sharding
def gamma(key, a, shape=None, dtype=None, *, out_sharding=None):
    """Gamma numbers of shape a (positive) and scale 1. Differentiable by a.

    Source: Marsaglia and Tsang, A simple method for generating gamma variables, 2000. Raises ArgumentError, DTypeError,
    ShapeError.

    >>> hl.random.gamma(hl.random.key(0), hnp.array([1.0, 2.0]), (5, 2)).shape
    (5, 2)
    """
    data, implementation = take_key(key, "gamma")
    dims, (a,) = parameters("gamma", shape, (a,), float_dtype(dtype, "gamma"))
    return run(_gamma, (implementation, dims, False), data, a)


@takes_out_sharding
def loggamma(key, a, shape=None, dtype=None, *, out_sharding=None):
    """Logarithms of gamma numbers, exact where those would underflow. Raises ArgumentError, DTypeError, ShapeError.

    >>> hl.random.loggamma(hl.random.key(0), 1e-4, (4,)).shape
    (4,)
    """
    data, implementation = take_key(key, "loggamma")
    dims, (a,) = parameters("loggamma", shape, (a,), float_dtype(dtype, "loggamma"))
    return run(_gamma, (implementation, dims, True), data, a)


def _beta(data, a, b, implementation, dims):
    first, second = keys_of(data, implementation, 2)
    x, y = (standard_gamma(k, v, implementation, dims, True) for k, v in ((first, a), (second, b)))
    largest = lax.max(x, y)
    x, y = (lax.exp(lax.sub(v, largest)) for v in (x, y))
    return lax.div(x, lax.add(x, y))


@takes_out_sharding
def beta(key, a, b, shape=None, dtype=None, *, out_sharding=None):
    """Beta numbers, density x^(a-1) (1-x)^(b-1) / B(a, b). Raises ArgumentError, DTypeError, ShapeError.

    >>> hl.random.beta(hl.random.key(0), 2.0, 3.0, (4,)).shape
    (4,)
    """
    data, implementation = take_key(key, "beta")
    dims, values = parameters("beta", shape, (a, b), float_dtype(dtype, "beta"))
    return run(_beta, (implementation, dims), data, *values)


def _dirichlet(data, alpha, implementation, dims):
    logs = standard_gamma(data, alpha, implementation, (*dims, alpha.shape[-1]), True)
    axis = len(dims)
    largest = lax.expand_dims(lax.reduce_max(logs, (axis,)), (axis,))
    powers = lax.exp(lax.sub(logs, broadcast_dims_to(largest, logs.shape)))
    total = lax.expand_dims(lax.reduce_sum(powers, (axis,)), (axis,))
    return lax.div(powers, broadcast_dims_to(total, logs.shape))


@takes_out_sharding
def dirichlet(key, alpha, shape=None, dtype=None, *, out_sharding=None):
    """Vectors of the Dirichlet distribution. alpha: (..., n), positive. The result has shape (*shape, n).

    Raises ArgumentError, DTypeError, ShapeError.

    >>> x = hl.random.dirichlet(hl.random.key(0), hnp.ones(3), (5,))
    >>> x.shape, x.sum(axis=1).round(3)
    ((5, 3), Array([1., 1., 1., 1., 1.], dtype=float32))
    """
    data, implementation = take_key(key, "dirichlet")
    dtype = float_dtype(dtype, "dirichlet")
    alpha = as_operand(alpha, "random.dirichlet")
    if not alpha.shape:
        raise ShapeError("random.dirichlet takes alpha with a dimension", f"{alpha._shape!r}", "pass a vector")
    dims, (alpha,) = parameters("dirichlet", shape, (alpha,), dtype, trailing=1)
    return run(_dirichlet, (implementation, dims), data, alpha)


def _chisquare(data, df, implementation, dims):
    half = lax.mul(df, full(0.5, df.dtype, df.shape))
    x = lax.exp(standard_gamma(data, half, implementation, dims, True))
    return lax.mul(full(2.0, df.dtype, dims), x)


@takes_out_sharding
def chisquare(key, df, shape=None, dtype=None, *, out_sharding=None):
    """Sums of df squares of normal numbers. Raises ArgumentError, DTypeError, ShapeError.

    >>> hl.random.chisquare(hl.random.key(0), 3.0, (4,)).shape
    (4,)
    """
    data, implementation = take_key(key, "chisquare")
    dims, (df,) = parameters("chisquare", shape, (df,), float_dtype(dtype, "chisquare"))
    return run(_chisquare, (implementation, dims), data, df)


def _f(data, top, bottom, implementation, dims):
    bottom_key, top_key = keys_of(data, implementation, 2)
    x = lax.div(_chisquare(top_key, top, implementation, dims), broadcast_dims_to(top, dims))
    return lax.div(x, lax.div(_chisquare(bottom_key, bottom, implementation, dims), broadcast_dims_to(bottom, dims)))


@takes_out_sharding
def f(key, dfnum, dfden, shape=None, dtype=None, *, out_sharding=None):
    """Numbers of the F distribution: the ratio of two chi-square numbers over their degrees. Raises ArgumentError.

    >>> hl.random.f(hl.random.key(0), 3.0, 5.0, (4,)).shape
    (4,)
    """
    data, implementation = take_key(key, "f")
    dims, values = parameters("f", shape, (dfnum, dfden), float_dtype(dtype, "f"))
    return run(_f, (implementation, dims), data, *values)


def _t(data, df, implementation, dims):
    normal_key, gamma_key = keys_of(data, implementation, 2)
    n = standard_normal(normal_key, implementation, dims, df.dtype)
    half = lax.div(df, full(2.0, df.dtype, df.shape))
    g = standard_gamma(gamma_key, half, implementation, dims, False)
    return lax.mul(n, lax.sqrt(lax.div(broadcast_dims_to(half, dims), g)))


@takes_out_sharding
def t(key, df, shape=None, dtype=None, *, out_sharding=None):
    """Numbers of Student's t distribution with df degrees of freedom. Raises ArgumentError, DTypeError, ShapeError.

    >>> hl.random.t(hl.random.key(0), 5.0, (4,)).shape
    (4,)
    """
    data, implementation = take_key(key, "t")
    dims, (df,) = parameters("t", shape, (df,), float_dtype(dtype, "t"))
    return run(_t, (implementation, dims), data, df)


def _generalized_normal(data, implementation, p, dims, dtype):
    gamma_key, sign_key = keys_of(data, implementation, 2)
    g = standard_gamma(gamma_key, full(1 / p, dtype, ()), implementation, dims, False)
    return lax.mul(signs(sign_key, implementation, dims, dtype), lax.pow(g, full(1 / p, dtype, dims)))


@takes_out_sharding
def generalized_normal(key, p: float, shape=(), dtype=None, *, out_sharding=None):
    """Numbers of density proportional to exp(-|x|^p). Raises ArgumentError, DTypeError, ShapeError.

    >>> hl.random.generalized_normal(hl.random.key(0), 3.0, (4,)).shape
    (4,)
    """
    data, implementation = take_key(key, "generalized_normal")
    dtype = float_dtype(dtype, "generalized_normal")
    return run(_generalized_normal, (implementation, float(p), dims_of(shape, "generalized_normal"), dtype), data)


def _ball(data, implementation, d, p, dims, dtype):
    first, second = keys_of(data, implementation, 2)
    g = _generalized_normal(first, implementation, p, (*dims, d), dtype)
    e = standard_exponential(second, implementation, dims, dtype)
    size = lax.reduce_sum(lax.pow(lax.abs(g), full(p, dtype, g.shape)), (len(dims),))
    length = lax.pow(lax.add(size, e), full(1 / p, dtype, dims))
    return lax.div(g, broadcast_dims_to(lax.expand_dims(length, (len(dims),)), g.shape))


@takes_out_sharding
def ball(key, d: int, p: float = 2, shape=(), dtype=None, *, out_sharding=None):
    """Points of the unit ball of the p-norm in d dimensions, uniform. The result has shape (*shape, d).

    Source: Barthe, Guedon, Mendelson and Naor, 2005. Raises ArgumentError, DTypeError, ShapeError.

    >>> points = hl.random.ball(hl.random.key(0), 3, shape=(100,))
    >>> points.shape, bool((hnp.linalg.norm(points, axis=1) <= 1).all())
    ((100, 3), True)
    """
    data, implementation = take_key(key, "ball")
    dtype = float_dtype(dtype, "ball")
    return run(_ball, (implementation, int(d), float(p), dims_of(shape, "ball"), dtype), data)


# --- poisson ------------------------------------------------------------------------------------------------------


def _poisson_by_products(data, rate, implementation, dims, dtype, limit):
    """Small rates: how many uniform numbers have a product above exp(-rate) (Knuth)."""

    def body(state):
        step, count, key, logarithm = state
        key, own = keys_of(key, implementation, 2)
        more = lax.gt(logarithm, lax.neg(rate))
        count = lax.select(more, lax.add(count, full(1, dtype, dims)), count)
        u = fraction(own, implementation, dims, F32)
        return lax.add(step, full(1, S32, ())), count, key, lax.add(logarithm, lax.log(u))

    def condition(state):
        step, _, _, logarithm = state
        open_ = lax.reduce_or(lax.gt(logarithm, lax.neg(rate)), tuple(range(len(dims))))
        return lax.bitwise_and(open_, lax.lt(step, full(limit, S32, ())))

    start = (full(0, S32, ()), full(0, dtype, dims), data, full(0.0, F32, dims))
    count = lax.while_loop(condition, body, start)[1]
    return lax.sub(count, full(1, dtype, dims))


def _poisson_by_rejection(data, rate, implementation, dims, dtype, limit):
    """Large rates: transformed rejection with a squeeze (Hoermann, 1993, algorithm PTRS)."""

    def number(value):
        return full(value, F32, dims)

    log_rate = lax.log(rate)
    b = lax.add(number(0.931), lax.mul(number(2.53), lax.sqrt(rate)))
    a = lax.add(number(-0.059), lax.mul(number(0.02483), b))
    inverse = lax.add(number(1.1239), lax.div(number(1.1328), lax.sub(b, number(3.4))))
    ratio = lax.sub(number(0.9277), lax.div(number(3.6224), lax.sub(b, number(2.0))))

    def body(state):
        step, result, accepted, key = state
        key, first, second = keys_of(key, implementation, 3)
        u = lax.sub(fraction(first, implementation, dims, F32), number(0.5))
        v = fraction(second, implementation, dims, F32)
        shifted = lax.sub(number(0.5), lax.abs(u))
        slope = lax.add(lax.div(lax.mul(number(2.0), a), shifted), b)
        k = lax.floor(lax.add(fused(slope, u, rate), number(0.43)))
        hat = lax.add(lax.div(a, lax.mul(shifted, shifted)), b)
        s = lax.log(lax.div(lax.mul(v, inverse), hat))
        density = lax.sub(fused(k, log_rate, lax.neg(rate)), lax.lgamma(lax.add(k, number(1.0))))
        inside = lax.bitwise_and(lax.ge(shifted, number(0.07)), lax.le(v, ratio))
        outside = lax.bitwise_and(lax.lt(shifted, number(0.013)), lax.gt(v, shifted))
        outside = lax.bitwise_or(lax.lt(k, number(0.0)), outside)
        fits = lax.bitwise_or(inside, lax.bitwise_and(lax.bitwise_not(outside), lax.le(s, density)))
        result = lax.select(fits, lax.convert_element_type(k, dtype), result)
        return lax.add(step, full(1, S32, ())), result, lax.bitwise_or(accepted, fits), key

    def condition(state):
        step, _, accepted, _ = state
        open_ = lax.bitwise_not(lax.reduce_and(accepted, tuple(range(len(dims)))))
        return lax.bitwise_and(open_, lax.lt(step, full(limit, S32, ())))

    start = (full(0, S32, ()), full(-1, dtype, dims), full(False, np.dtype(bool), dims), data)
    return lax.while_loop(condition, body, start)[1]


def _poisson(data, rate, implementation, dims, dtype):
    rate = broadcast_dims_to(rate, dims)
    limit = min(np.iinfo(dtype).max, 2**31 - 1)
    small = lax.bitwise_or(lax.ne(rate, rate), lax.lt(rate, full(10.0, F32, dims)))
    few = lax.select(small, rate, full(0.0, F32, dims))
    many = lax.select(small, full(1e5, F32, dims), rate)
    result = lax.select(
        small,
        _poisson_by_products(data, few, implementation, dims, dtype, limit),
        _poisson_by_rejection(data, many, implementation, dims, dtype, limit),
    )
    return lax.select(lax.eq(rate, full(0.0, F32, dims)), full(0, dtype, dims), result)


@takes_out_sharding
def poisson(key, lam, shape=None, dtype=None, *, out_sharding=None):
    """Poisson numbers of mean lam. dtype: s32 (s64 with enable_x64) by default.

    Raises ArgumentError, DTypeError, ShapeError.

    >>> hl.random.poisson(hl.random.key(0), 3.0, (10_000,)).mean().round(0)
    Array(3., dtype=float32)
    """
    data, implementation = take_key(key, "poisson")
    if implementation != "threefry2x32":
        raise ArgumentError("random.poisson takes a threefry2x32 key", implementation, "make one with hl.random.key(0)")
    dtype = default_int() if dtype is None else as_dtype(dtype)
    if dtype not in INTEGERS:
        raise DTypeError("random.poisson makes integers", HLO_NAME[dtype], "take dtype='s32'")
    dims, (rate,) = parameters("poisson", shape, (lam,), F32)
    return run(_poisson, (implementation, dims, dtype), data, rate)


# --- binomial -----------------------------------------------------------------------------------------------------


def _binomial_by_gaps(data, count, p, implementation, dims):
    """Few successes: the gaps between them are geometric (Devroye, 1986, p. 525)."""
    dtype = count.dtype
    zero, one = full(0.0, dtype, dims), full(1.0, dtype, dims)
    scale = lax.log1p(lax.neg(p))

    def body(state):
        key, found, position = state
        own, key = keys_of(key, implementation, 2)
        found = lax.select(lax.le(position, count), lax.add(found, one), found)
        u = fraction(own, implementation, dims, dtype)
        return key, found, lax.add(position, lax.ceil(lax.div(lax.log(u), scale)))

    def condition(state):
        return lax.reduce_or(lax.le(state[2], count), tuple(range(len(dims))))

    return lax.sub(lax.while_loop(condition, body, (data, zero, zero))[1], one)


_TAIL = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.0207906721037650, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def _stirling_rest(k):
    """log k! minus Stirling's formula for it."""
    dtype, dims = k.dtype, k.shape

    def number(value):
        return full(value, dtype, dims)

    next_ = lax.add(k, number(1.0))
    square = lax.mul(next_, next_)
    inner = lax.div(lax.sub(number(1 / 360), lax.div(number(1 / 1260), square)), square)
    result = lax.div(lax.sub(number(1 / 12), inner), next_)
    for value, rest in enumerate(_TAIL):
        result = lax.select(lax.eq(k, number(float(value))), number(rest), result)
    return result


def _binomial_by_rejection(data, count, p, implementation, dims):
    """Many successes: transformed rejection (Hoermann, 1993, algorithm BTRS)."""
    dtype = count.dtype

    def number(value):
        return full(value, dtype, dims)

    q = lax.sub(number(1.0), p)
    deviation = lax.sqrt(lax.mul(lax.mul(count, p), q))
    b = lax.add(number(1.15), lax.mul(number(2.53), deviation))
    a = lax.add(lax.add(number(-0.0873), lax.mul(number(0.0248), b)), lax.mul(number(0.01), p))
    c = lax.add(lax.mul(count, p), number(0.5))
    ratio = lax.sub(number(0.92), lax.div(number(4.2), b))
    odds = lax.div(p, q)
    alpha = lax.mul(lax.add(number(2.83), lax.div(number(5.1), b)), deviation)
    m = lax.floor(lax.mul(lax.add(count, number(1.0)), p))

    def body(state):
        result, accepted, key = state
        key, first, second = keys_of(key, implementation, 3)
        u = lax.sub(fraction(first, implementation, dims, dtype), number(0.5))
        v = fraction(second, implementation, dims, dtype)
        us = lax.sub(number(0.5), lax.abs(u))
        inside = lax.bitwise_and(lax.ge(us, number(0.07)), lax.le(v, ratio))
        slope = lax.add(lax.div(lax.mul(number(2.0), a), us), b)
        k = lax.floor(fused(slope, u, c))
        outside = lax.bitwise_or(lax.lt(k, number(0.0)), lax.gt(k, count))
        hat = lax.add(lax.div(a, lax.mul(us, us)), b)
        v = lax.log(lax.div(lax.mul(v, alpha), hat))
        one = number(1.0)
        rest_m, rest_k = lax.sub(count, m), lax.sub(count, k)
        bound = lax.mul(lax.add(m, number(0.5)), lax.log(lax.div(lax.add(m, one), lax.mul(odds, lax.add(rest_m, one)))))
        bound = lax.add(
            bound, lax.mul(lax.add(count, one), lax.log(lax.div(lax.add(rest_m, one), lax.add(rest_k, one))))
        )
        middle = lax.log(lax.div(lax.mul(odds, lax.add(rest_k, one)), lax.add(k, one)))
        bound = lax.add(bound, lax.mul(lax.add(k, number(0.5)), middle))
        bound = lax.add(bound, lax.sub(lax.add(_stirling_rest(m), _stirling_rest(rest_m)), _stirling_rest(k)))
        bound = lax.sub(bound, _stirling_rest(rest_k))
        fits = lax.bitwise_or(inside, lax.bitwise_and(lax.bitwise_not(outside), lax.le(v, bound)))
        return lax.select(fits, k, result), lax.bitwise_or(accepted, fits), key

    def condition(state):
        return lax.bitwise_not(lax.reduce_and(state[1], tuple(range(len(dims)))))

    return lax.while_loop(condition, body, (number(-1.0), full(False, np.dtype(bool), dims), data))[0]


def _binomial(data, count, p, implementation, dims):
    dtype = count.dtype

    def number(value):
        return full(value, dtype, dims)

    count, p = (broadcast_dims_to(v, dims) for v in (count, p))
    low = lax.lt(p, number(0.5))
    q = lax.select(low, p, lax.sub(number(1.0), p))
    no_count = lax.bitwise_or(lax.ne(count, count), lax.lt(count, number(0.0)))
    no_probability = lax.bitwise_or(lax.ne(q, q), lax.lt(q, number(0.0)))
    q = lax.select(no_probability, number(0.01), q)
    few = lax.bitwise_or(no_count, lax.le(lax.mul(count, q), number(10.0)))
    result = lax.select(
        few,
        _binomial_by_gaps(data, lax.select(few, count, number(0.0)), q, implementation, dims),
        _binomial_by_rejection(
            data, lax.select(few, number(1e4), count), lax.select(few, number(0.5), q), implementation, dims
        ),
    )
    result = lax.select(low, result, lax.sub(count, result))
    return lax.select(lax.bitwise_or(no_count, no_probability), number(math.nan), result)


def binomial(key, n, p, shape=None, dtype=None):
    """Numbers of successes among n trials of probability p, as floats (f32 by default); NaN for impossible parameters.

    Raises ArgumentError, DTypeError, ShapeError.

    >>> x = hl.random.binomial(hl.random.key(0), 10, 0.5, (1000,))
    >>> x.mean().round(0)
    Array(5., dtype=float32)
    """
    data, implementation = take_key(key, "binomial")
    dims, values = parameters("binomial", shape, (n, p), float_dtype(dtype, "binomial"))
    return run(_binomial, (implementation, dims), data, *values)


def _multinomial(data, count, p, implementation, dims):
    """One category after the other: a binomial number of those that are left."""
    classes = p.shape[-1]
    count = broadcast_dims_to(count, dims)
    p = broadcast_dims_to(p, (*dims, classes))
    dtype = count.dtype
    left = full(1.0, dtype, dims)
    keys = keys_of(data, implementation, classes)
    results = []
    for k in range(classes - 1):
        own = lax.index_in_dim(p, k, axis=len(dims), keepdims=False)
        ratio = lax.div(own, lax.select(lax.gt(left, full(0.0, dtype, dims)), left, full(1.0, dtype, dims)))
        ratio = lax.clamp(full(0.0, dtype, ()), ratio, full(1.0, dtype, ()))
        drawn = _binomial(keys[k], count, ratio, implementation, dims)
        results.append(lax.expand_dims(drawn, (len(dims),)))
        count, left = lax.sub(count, drawn), lax.sub(left, own)
    return lax.concatenate([*results, lax.expand_dims(count, (len(dims),))], len(dims))


def multinomial(key, n, p, *, shape=None, dtype=None, unroll=1):
    """How many of n trials fall in each category, as floats. p: (..., k) probabilities.

    shape: of the result, (..., k). Raises ArgumentError, DTypeError, ShapeError.

    >>> hl.random.multinomial(hl.random.key(0), 10, hnp.array([0.5, 0.5])).sum()
    Array(10., dtype=float32)
    """
    data, implementation = take_key(key, "multinomial")
    dtype = float_dtype(dtype, "multinomial")
    p = as_operand(p, "random.multinomial")
    if not p.shape or not p.shape[-1]:
        raise ShapeError("random.multinomial takes a probability for each category", f"{p._shape!r}", "pass a vector")
    asked = None if shape is None else dims_of(shape, "multinomial")
    if asked is not None and (not asked or asked[-1] != p.shape[-1]):
        raise ShapeError(
            f"random.multinomial makes an array of shape {asked}",
            f"there are {p.shape[-1]} categories",
            "let the shape end in their number",
        )
    own = (n, np.zeros(p.shape[:-1], np.float32))
    dims, _ = parameters("multinomial", None if asked is None else asked[:-1], own, dtype)
    count, p = (lax.convert_element_type(as_operand(v, "random.multinomial"), dtype) for v in (n, p))
    return run(_multinomial, (implementation, dims), data, count, p)


__all__ = [
    "ball", "beta", "binomial", "chisquare", "dirichlet", "f", "gamma", "generalized_normal", "loggamma", "multinomial",
    "poisson", "t",
]  # fmt: skip

"""Random numbers. A call draws one 64-bit seed from torch's generator; each op of the program has a separate key,
derived from the seed and the op's index (threefry), so that `torch.manual_seed` determines the results. The numbers
differ from those of torch without a compiler."""

from __future__ import annotations

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import F32, PRED, S64, convert, operand
from hloom.bridges.torch.table import rule
from hloom.ir.types import DTYPES, NARROW_FLOATS
from hloom.random.bits import raw_bits
from hloom.random.continuous import fraction, standard_normal

THREEFRY = "threefry2x32"


def _fraction(key, dims, dtype):
    return fraction(key, THREEFRY, dims, F32 if dtype in NARROW_FLOATS else dtype)


@rule("rand.default", "rand_like.default", result=True, random=True)
def rand(*arguments, dtype=None, result, key):
    return _fraction(key, result.dims, result.dtype)


@rule("randn.default", "randn_like.default", result=True, random=True)
def randn(*arguments, dtype=None, result, key):
    wide = F32 if result.dtype in NARROW_FLOATS else result.dtype
    return standard_normal(key, THREEFRY, result.dims, wide)


@rule("uniform.default", result=True, random=True)
def uniform(x, low=0.0, high=1.0, *, result, key):
    found = _fraction(key, result.dims, result.dtype)
    return found * operand(high - low, found.dtype) + operand(low, found.dtype)


@rule("normal_functional.default", result=True, random=True)
def normal_functional(x, mean=0.0, std=1.0, *, result, key):
    found = randn(result=result, key=key)
    return found * operand(std, found.dtype) + operand(mean, found.dtype)


@rule("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor", "normal.float_float", result=True,
      random=True)  # fmt: skip
def normal(mean, std=1.0, size=None, *, dtype=None, result, key):
    found = randn(result=result, key=key)
    return found * operand(std, found.dtype) + operand(mean, found.dtype)


@rule("multinomial.default", result=True, random=True)
def multinomial(x, num_samples, replacement=False, *, result, key):
    """Positions drawn with the probabilities x, up to a factor: by cumulative sums, or, each at most once, those of
    the smallest exponential times."""
    weights = convert(x, F32) if x.dtype in NARROW_FLOATS else x
    if replacement:
        sums = hnp.cumsum(weights, axis=-1)
        drawn = _fraction(key, result.dims, weights.dtype) * sums[..., -1:]
        below = hnp.expand_dims(sums, -2) <= hnp.expand_dims(drawn, -1)
        found = hnp.sum(convert(below, S64), axis=-1)
        # A sum rounded to the last one must not lead to a position of no weight.
        numbers = lax.iota(S64, x.shape[-1])
        last = hnp.max(hnp.where(weights > 0, numbers, operand(0, S64)), axis=-1, keepdims=True)
        return hnp.minimum(found, last)
    times = -hnp.log1p(-_fraction(key, x.shape, weights.dtype)) / weights
    return lax.slice_in_dim(hnp.argsort(times, axis=-1, stable=True), 0, num_samples, axis=-1)


@rule("bernoulli.default", "bernoulli.p", result=True, random=True)
def bernoulli(x, p=None, *, result, key):
    drawn = _fraction(key, result.dims, F32)
    return convert(drawn < (convert(x, F32) if p is None else operand(p, F32)), result.dtype)


@rule("native_dropout.default", result=True, random=True)
def native_dropout(x, p, train, *, result, key):
    """(result, which elements stay)."""
    if train is False or p == 0:
        return x, lax.full(x.shape, True, PRED)
    if p == 1:
        return lax.full(x.shape, 0, x.dtype), lax.full(x.shape, False, PRED)
    stays = _fraction(key, x.shape, F32) < operand(1.0 - p, F32)
    wide = convert(x, F32) if x.dtype in NARROW_FLOATS else x
    return convert(hnp.where(stays, wide * operand(1.0 / (1.0 - p), wide.dtype), wide * 0), x.dtype), stays


def _integers(key, dims, low, high):
    """Integers in low..high - 1, of 64 random bits each."""
    bits = raw_bits(key, THREEFRY, 64, dims)
    span = lax.full(dims, high - low, DTYPES["u64"])
    return convert(lax.rem(bits, span), S64) + operand(low, S64)


@rule("randint.default", result=True, random=True)
def randint(high, size, *, dtype=None, result, key):
    return _integers(key, result.dims, 0, high)


@rule("randint.low", "randint_like.low_dtype", result=True, random=True)
def randint_low(low, high, size=None, *, dtype=None, result, key):
    return _integers(key, result.dims, low, high)


@rule("randint_like.default", result=True, random=True)
def randint_like(x, high, *, dtype=None, result, key):
    return _integers(key, result.dims, 0, high)


@rule("randperm.default", result=True, random=True)
def randperm(n, *, dtype=None, result, key):
    """The sort order of n random 64-bit integers."""
    return convert(hnp.argsort(raw_bits(key, THREEFRY, 64, (n,)), stable=True), S64)

"""Fourier transforms; distances between rows: all pairs of two sets (`cdist`), the pairs within one (`pdist`)."""

from __future__ import annotations

import math

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import convert, operand
from hloom.bridges.torch.table import rule
from hloom.ir.types import real_dtype


def _scaled(x, count: int, normalization: int):
    """normalization: 0, as it is; 1, over the root of the number of elements; 2, over their number."""
    factor = {0: 1.0, 1: 1 / math.sqrt(count), 2: 1 / count}[normalization]
    return x if factor == 1.0 else x * convert(operand(factor, real_dtype(x.dtype)), x.dtype)


@rule("_fft_r2c.default")
def fft_r2c(x, dim, normalization, onesided):
    count = math.prod(x.shape[d] for d in dim)
    return _scaled((hnp.fft.rfftn if onesided else hnp.fft.fftn)(x, axes=tuple(dim)), count, normalization)


@rule("_fft_c2r.default")
def fft_c2r(x, dim, normalization, last_dim_size):
    sizes = [x.shape[d] for d in dim[:-1]] + [last_dim_size]
    found = hnp.fft.irfftn(x, s=tuple(sizes), axes=tuple(dim), norm="forward")
    return _scaled(found, math.prod(sizes), normalization)


@rule("_fft_c2c.default")
def fft_c2c(x, dim, normalization, forward):
    count = math.prod(x.shape[d] for d in dim)
    function = hnp.fft.fftn if forward else hnp.fft.ifftn
    return _scaled(function(x, axes=tuple(dim), norm="backward" if forward else "forward"), count, normalization)


# --- distances ---


def _norm(apart, p: float):
    """The p-norm of the last dimension of non-negative values."""
    if p == 0:
        return hnp.sum(convert(hnp.not_equal(apart, operand(0, apart.dtype)), apart.dtype), axis=-1)
    if p == 1:
        return hnp.sum(apart, axis=-1)
    if p == 2:
        return hnp.sqrt(hnp.sum(apart * apart, axis=-1))
    if p == math.inf:
        return hnp.max(apart, axis=-1)
    return hnp.power(hnp.sum(hnp.power(apart, operand(p, apart.dtype)), axis=-1), operand(1 / p, apart.dtype))


def _slope(difference, p: float, distance):
    """The derivative of a p-norm with respect to each difference: 0 where ATen has it 0. distance: with a last
    dimension of 1."""
    zero, one = operand(0, difference.dtype), operand(1, difference.dtype)
    sign = hnp.sign(difference)
    if p == 0:
        return hnp.zeros_like(difference)
    if p == 1:
        return sign
    size = hnp.abs(difference)
    if p == math.inf:
        return hnp.where(hnp.equal(size, distance), sign, zero)
    away = hnp.not_equal(distance, zero)
    share = size / hnp.where(away, distance, one)
    if p == 2:
        return hnp.where(away, sign * share, zero)
    if p < 2:  # the power of a difference of 0 is infinite below 1
        away = hnp.logical_and(away, hnp.not_equal(size, zero)) if p < 1 else hnp.broadcast_to(away, size.shape)
    return hnp.where(away, sign * hnp.power(hnp.where(away, share, one), operand(p - 1, share.dtype)), zero)


@rule("_cdist_forward.default", result=True)
def cdist(x, y, p, compute_mode=None, *, result):
    """The p-norms of the differences of all rows of x and of y."""
    if not math.prod(result.dims) or not x.shape[-1]:
        return lax.full(result.dims, 0, x.dtype)
    return _norm(hnp.abs(hnp.expand_dims(x, -2) - hnp.expand_dims(y, -3)), p)


@rule("_cdist_backward.default", result=True)
def cdist_backward(grad, x, y, p, distance, *, result):
    """The derivative of x."""
    if not math.prod(result.dims) or not grad.size:
        return lax.full(result.dims, 0, x.dtype)
    difference = hnp.expand_dims(x, -2) - hnp.expand_dims(y, -3)
    slope = _slope(difference, p, hnp.expand_dims(distance, -1))
    return hnp.broadcast_to(hnp.sum(hnp.expand_dims(grad, -1) * slope, axis=-2), result.dims)


def _pairs(x):
    """The rows of each pair, (first, second), and their indices."""
    numbers = [hnp.asarray(v.astype(np.int32)) for v in np.triu_indices(x.shape[0], 1)]
    return [hnp.take(x, n, axis=0) for n in numbers], numbers


@rule("_pdist_forward.default", result=True)
def pdist(x, p=2.0, *, result):
    """The p-norms of the differences of each pair of rows."""
    if not math.prod(result.dims) or not x.shape[-1]:
        return lax.full(result.dims, 0, x.dtype)
    (first, second), _ = _pairs(x)
    return _norm(hnp.abs(first - second), p)


@rule("_pdist_backward.default")
def pdist_backward(grad, x, p, distance):
    """The derivative of x."""
    if x.shape[0] < 2 or not x.size:
        return lax.full(x.shape, 0, x.dtype)
    (first, second), numbers = _pairs(x)
    parts = hnp.expand_dims(grad, 1) * _slope(first - second, p, hnp.expand_dims(distance, 1))
    return lax.full(x.shape, 0, x.dtype).at[numbers[0]].add(parts).at[numbers[1]].add(-parts)

"""Sums, products, extremes, means and variances over axes, and running sums."""

from __future__ import annotations

import math

import torch

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import PRED, S64, TO_TORCH, computed_in, convert, count, operand
from hloom.bridges.torch.table import rule
from hloom.errors import UnsupportedError
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.types import FLOATS
from hloom.numpy.reducing.reductions import center


def axes_of(x, dims) -> tuple[int, ...]:
    """Axes as non-negative integers; all of them for None and for an empty list."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return tuple(range(x.ndim))
    if isinstance(dims, int):
        dims = (dims,)
    return tuple(d % max(x.ndim, 1) for d in dims) if x.ndim else ()


def _summed_in(x, dtype) -> torch.dtype:
    """The dtype of a sum or product: int64 of integers and booleans."""
    if dtype is not None:
        return dtype
    found = TO_TORCH[x.dtype]
    return found if found.is_floating_point or found.is_complex else torch.int64


@rule("sum.default", "sum.dim_IntList", "prims::sum.default")
def sum_(x, dims=None, keepdim=False, *, dtype=None):
    wanted = _summed_in(x, dtype)
    return convert(hnp.sum(convert(x, computed_in(wanted)), axis=axes_of(x, dims), keepdims=keepdim), wanted)


@rule("mean.default", "mean.dim")
def mean(x, dims=None, keepdim=False, *, dtype=None):
    wanted = dtype or TO_TORCH[x.dtype]
    axes = axes_of(x, dims)
    total = hnp.sum(convert(x, computed_in(wanted)), axis=axes, keepdims=keepdim)
    return convert(total / count(math.prod(x.shape[a] for a in axes), total.dtype), wanted)


@rule("prod.default")
def prod(x, *, dtype=None):
    return prod_dim(x, axes_of(x, None), dtype=dtype)


@rule("prod.dim_int")
def prod_dim(x, dim, keepdim=False, *, dtype=None):
    wanted = _summed_in(x, dtype)
    return convert(hnp.prod(convert(x, computed_in(wanted)), axis=axes_of(x, dim), keepdims=keepdim), wanted)


@rule("amax.default")
def amax(x, dims=(), keepdim=False):
    return hnp.max(x, axis=axes_of(x, dims), keepdims=keepdim)


@rule("amin.default")
def amin(x, dims=(), keepdim=False):
    return hnp.min(x, axis=axes_of(x, dims), keepdims=keepdim)


@rule("max.default")
def max_(x):
    return hnp.max(x)


@rule("min.default")
def min_(x):
    return hnp.min(x)


@rule("any.default", "any.dim", "any.dims")
def any_(x, dims=None, keepdim=False):
    if isinstance(dims, (list, tuple)) and not dims:
        return convert(x, PRED)
    return hnp.any(convert(x, PRED), axis=axes_of(x, dims), keepdims=keepdim)


@rule("all.default", "all.dim", "all.dims")
def all_(x, dims=None, keepdim=False):
    if isinstance(dims, (list, tuple)) and not dims:
        return convert(x, PRED)
    return hnp.all(convert(x, PRED), axis=axes_of(x, dims), keepdims=keepdim)


def _position(function, x, dim, keepdim):
    if not x.ndim:
        return lax.full((), 0, S64)
    if dim is None:
        found = function(hnp.reshape(x, (-1,)), axis=0)
        return hnp.reshape(convert(found, S64), (1,) * x.ndim if keepdim else ())
    return convert(function(x, axis=dim, keepdims=keepdim), S64)


@rule("argmax.default")
def argmax(x, dim=None, keepdim=False):
    return _position(hnp.argmax, x, dim, keepdim)


@rule("argmin.default")
def argmin(x, dim=None, keepdim=False):
    return _position(hnp.argmin, x, dim, keepdim)


@rule("max.dim")
def max_dim(x, dim, keepdim=False):
    return hnp.max(x, axis=axes_of(x, dim), keepdims=keepdim), argmax(x, dim, keepdim)


@rule("min.dim")
def min_dim(x, dim, keepdim=False):
    return hnp.min(x, axis=axes_of(x, dim), keepdims=keepdim), argmin(x, dim, keepdim)


def variance(x, axes, correction, keepdim):
    """(variance, mean) over axes, in the dtype of x: the mean first, then the squared deviations."""
    middle = center(x, axes, keepdims=True)
    apart = x - middle
    squares = hnp.sum(hnp.real(apart * hnp.conj(apart)) if x.dtype.kind == "c" else apart * apart,
                      axis=axes, keepdims=keepdim)  # fmt: skip
    found = squares / _degrees(math.prod(x.shape[a] for a in axes), correction, squares.dtype)
    return found, middle if keepdim else lax.reshape(middle, found.shape)


def _degrees(size, correction, dtype):
    """The degrees of freedom for this many elements, in a float dtype."""
    if not isinstance(size, SizeExpression):
        return operand(max(float(size - correction), 0.0), dtype)
    return hnp.maximum(count(size, dtype) - count(correction, dtype), operand(0, dtype))


@rule("var.correction")
def var(x, dims=None, *, correction=None, keepdim=False):
    work = convert(x, computed_in(TO_TORCH[x.dtype]))
    return variance(work, axes_of(x, dims), 1 if correction is None else correction, keepdim)[0]


@rule("var.dim")
def var_dim(x, dims, unbiased=True, keepdim=False):
    return var(x, dims, correction=int(unbiased), keepdim=keepdim)


@rule("var_mean.correction")
def var_mean(x, dims=None, *, correction=None, keepdim=False):
    work = convert(x, computed_in(TO_TORCH[x.dtype]))
    return variance(work, axes_of(x, dims), 1 if correction is None else correction, keepdim)


def _running(name, function):
    @rule(name)
    def build(x, dim, *, dtype=None):
        wanted = _summed_in(x, dtype)
        if not x.ndim:
            return convert(x, wanted)
        return convert(function(convert(x, computed_in(wanted)), axis=dim), wanted)


_running("cumsum.default", hnp.cumsum)
_running("cumprod.default", hnp.cumprod)


@rule("logcumsumexp.default")
def logcumsumexp(x, dim):
    if not x.ndim:
        return x
    return lax.cumlogsumexp(convert(x, computed_in(TO_TORCH[x.dtype])), axis=dim % x.ndim)


__all__ = ["axes_of", "variance"]


@rule("histc.default")
def histc(x, bins=100, min=0, max=0):  # noqa: A002 - torch's names
    """How many elements are in each of `bins` equal parts of min..max, or of the elements' range if these are equal.
    The upper end belongs to the last part; values outside, and NaN, are not counted."""
    if x.dtype not in FLOATS:
        raise UnsupportedError("a histogram of integers", f"{x.dtype}", "convert them to floats", "")
    x = lax.reshape(x, (x.size,))
    if min != max or not x.size:
        low, high = operand(min, x.dtype), operand(max if min != max else 1, x.dtype)
    else:
        low, high = hnp.min(x), hnp.max(x)
        flat = hnp.equal(low, high)
        low, high = (hnp.where(flat, v + operand(by, x.dtype), v) for v, by in ((low, -1), (high, 1)))
    inside = hnp.logical_and(x >= low, x <= high)
    place = (x - low) * operand(bins, x.dtype) / (high - low)
    place = convert(hnp.where(inside, place, operand(0, x.dtype)), S64)
    place = hnp.minimum(place, operand(bins - 1, S64))
    counts = lax.full((bins,), 0, S64).at[place].add(convert(inside, S64))
    return convert(counts, x.dtype)

"""Fourier transforms, distances between rows, and bags of embeddings."""

from __future__ import annotations

import math

import numpy as np

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import S64, TO_TORCH, computed_in, convert, operand
from hloom.bridges.torch.table import rule
from hloom.errors import UnsupportedError
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


def _norm(apart, p: float):
    """The p-norm of the last dimension of non-negative numbers."""
    if p == 0:
        return hnp.sum(convert(hnp.not_equal(apart, operand(0, apart.dtype)), apart.dtype), axis=-1)
    if p == 1:
        return hnp.sum(apart, axis=-1)
    if p == 2:
        return hnp.sqrt(hnp.sum(apart * apart, axis=-1))
    if p == math.inf:
        return hnp.max(apart, axis=-1)
    return hnp.power(hnp.sum(hnp.power(apart, operand(p, apart.dtype)), axis=-1), operand(1 / p, apart.dtype))


@rule("_cdist_forward.default", result=True)
def cdist(x, y, p, compute_mode=None, *, result):
    """The p-norms of the differences of all rows of x and of y."""
    if not math.prod(result.dims) or not x.shape[-1]:
        return lax.full(result.dims, 0, x.dtype)
    return _norm(hnp.abs(hnp.expand_dims(x, -2) - hnp.expand_dims(y, -3)), p)


@rule("_pdist_forward.default", result=True)
def pdist(x, p=2.0, *, result):
    """The p-norms of the differences of each pair of rows."""
    if not math.prod(result.dims) or not x.shape[-1]:
        return lax.full(result.dims, 0, x.dtype)
    first, second = (hnp.asarray(v.astype(np.int32)) for v in np.triu_indices(x.shape[0], 1))
    return _norm(hnp.abs(hnp.take(x, first, axis=0) - hnp.take(x, second, axis=0)), p)


@rule("_embedding_bag.default", "_embedding_bag_forward_only.default", result=True)
def embedding_bag(
    weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None,
    include_last_offset=False, padding_idx=-1, *, result,
):  # fmt: skip
    """(sums or means of bags of rows, the bag of each index, the sizes of the bags, nothing)."""
    if mode == 2:
        raise UnsupportedError("embedding_bag of maxima", "mode='max'", "use mode 'sum' or 'mean'", "")
    bags = result[0].dims[0]
    starts = convert(lax.slice_in_dim(offsets, 0, bags), S64)
    numbers = lax.iota(S64, indices.size)
    begun = convert(hnp.expand_dims(starts, 0) <= hnp.expand_dims(numbers, 1), S64)
    bag_of = hnp.sum(begun, axis=1) - operand(1, S64)
    counted = hnp.not_equal(convert(indices, S64), operand(padding_idx, S64)) if padding_idx >= 0 else None
    rows = hnp.take(weight, indices, axis=0)
    rows = convert(rows, computed_in(TO_TORCH[rows.dtype]))
    if per_sample_weights is not None:
        rows = rows * hnp.expand_dims(convert(per_sample_weights, rows.dtype), 1)
    ones = lax.full((indices.size,), 1, S64)
    if counted is not None:
        rows = hnp.where(hnp.expand_dims(counted, 1), rows, operand(0, rows.dtype))
        ones = convert(counted, S64)
    found = lax.full((bags, weight.shape[1]), 0, rows.dtype).at[bag_of].add(rows)
    sizes = lax.full((bags,), 0, S64).at[bag_of].add(ones)
    if mode == 1:
        found = found / hnp.expand_dims(convert(hnp.maximum(sizes, operand(1, S64)), found.dtype), 1)
    nothing = [lax.full(shape.dims, 0, shape.dtype) for shape in result]
    return (
        found,
        bag_of if result[1].dims == bag_of.shape else nothing[1],
        sizes if result[2].dims == sizes.shape else nothing[2],
        nothing[3],
    )

"""Bags of embeddings: sums, means and maxima of rows of a table, and their derivatives."""

from __future__ import annotations

import math

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import S64, TO_TORCH, computed_in, convert, operand
from hloom.bridges.torch.table import rule

MEAN, MAX = 1, 2  # of mode; 0 is the sum


def _computed(x):
    return convert(x, computed_in(TO_TORCH[x.dtype]))


def _bag_of(offsets, bags: int, count: int):
    """The number of the bag of each of `count` indices."""
    starts = convert(lax.slice_in_dim(offsets, 0, bags), S64)
    begun = hnp.expand_dims(starts, 0) <= hnp.expand_dims(lax.iota(S64, count), 1)
    return hnp.sum(convert(begun, S64), axis=1) - operand(1, S64)


def _counted(indices, padding_idx: int):
    """Whether each index counts."""
    return hnp.not_equal(indices, operand(padding_idx, indices.dtype))


def _sums(values, groups, count: int):
    """Sums of the values of each of `count` groups."""
    return lax.full((count, *values.shape[1:]), 0, values.dtype).at[groups].add(values)


def _largest(rows, counted, indices, bag_of, bags: int):
    """(the maxima of each bag, the indices of their rows); 0 for a bag of none."""
    count = indices.shape[0]
    rows = hnp.where(counted, rows, operand(-math.inf, rows.dtype))
    found = lax.full((bags, rows.shape[1]), -math.inf, rows.dtype).at[bag_of].max(rows)
    numbers = hnp.expand_dims(lax.iota(S64, count), 1)
    reached = hnp.logical_and(counted, hnp.equal(rows, hnp.take(found, bag_of, axis=0)))
    first = lax.full(found.shape, count, S64).at[bag_of].min(hnp.where(reached, numbers, operand(count, S64)))
    some = first < operand(count, S64)
    places = hnp.where(some, first, operand(0, S64))
    return hnp.where(some, found, operand(0, found.dtype)), hnp.where(some, hnp.take(indices, places), operand(0, S64))


@rule("_embedding_bag.default", "_embedding_bag_forward_only.default", result=True)
def embedding_bag(
    weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None,
    include_last_offset=False, padding_idx=-1, *, result,
):  # fmt: skip
    """(sums, means or maxima of bags of rows, the bag of each index, the sizes of the bags, the indices of maxima).

    The last three have elements where torch declares them.
    """
    bags, indices = result[0].dims[0], convert(indices, S64)
    nothing = [lax.full(shape.dims, 0, shape.dtype) for shape in result]
    if not indices.size or not bags:
        return tuple(nothing)
    bag_of, counted = _bag_of(offsets, bags, indices.size), _counted(indices, padding_idx)
    rows = _computed(hnp.take(weight, indices, axis=0))
    sizes = _sums(convert(counted, S64), bag_of, bags)
    if per_sample_weights is not None:
        rows = rows * hnp.expand_dims(convert(per_sample_weights, rows.dtype), 1)
    maxima = nothing[3]
    counted = hnp.expand_dims(counted, 1)
    if mode == MAX:
        found, maxima = _largest(rows, counted, indices, bag_of, bags)
    else:
        found = _sums(hnp.where(counted, rows, operand(0, rows.dtype)), bag_of, bags)
        if mode == MEAN:
            found = found / hnp.expand_dims(convert(hnp.maximum(sizes, operand(1, S64)), found.dtype), 1)
    declared = zip((bag_of, sizes, maxima), nothing[1:], strict=True)
    return found, *[value if value.shape == empty.shape else empty for value, empty in declared]


@rule("_embedding_bag_dense_backward.default")
def embedding_bag_dense_backward(
    grad, indices, bag_of, sizes, maxima, num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx=-1
):
    """The derivative of the table of `num_weights` rows."""
    dtype, grad, indices = grad.dtype, _computed(grad), convert(indices, S64)
    features = grad.shape[1]
    if not indices.size:
        return lax.full((num_weights, features), 0, dtype)
    if mode == MAX:
        some = hnp.expand_dims(sizes > operand(0, sizes.dtype), 1)
        columns = hnp.broadcast_to(hnp.expand_dims(lax.iota(S64, features), 0), maxima.shape)
        parts = hnp.where(some, grad, operand(0, grad.dtype))
        return convert(
            lax.full((num_weights, features), 0, grad.dtype).at[convert(maxima, S64), columns].add(parts), dtype
        )
    parts = hnp.take(grad, bag_of, axis=0)
    if mode == MEAN:
        count = hnp.take(sizes, bag_of)
        parts = parts / hnp.expand_dims(convert(hnp.maximum(count, operand(1, count.dtype)), parts.dtype), 1)
    if per_sample_weights is not None:
        parts = parts * hnp.expand_dims(convert(per_sample_weights, parts.dtype), 1)
    if scale_grad_by_freq:
        uses = _sums(lax.full(indices.shape, 1, parts.dtype), indices, num_weights)
        parts = parts / hnp.expand_dims(hnp.take(uses, indices), 1)
    counted = hnp.expand_dims(_counted(indices, padding_idx), 1)
    return convert(_sums(hnp.where(counted, parts, operand(0, parts.dtype)), indices, num_weights), dtype)


@rule("_embedding_bag_backward.default")
def embedding_bag_backward(
    grad, indices, offsets, bag_of, sizes, maxima, num_weights, scale_grad_by_freq, mode, sparse, per_sample_weights,
    padding_idx=-1,
):  # fmt: skip
    """As the dense one; the bags of the indices are computed where the forward left them out."""
    if indices.size and not bag_of.size:
        bag_of = _bag_of(offsets, grad.shape[0], indices.size)
    return embedding_bag_dense_backward(
        grad, indices, bag_of, sizes, maxima, num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx
    )


@rule("_embedding_bag_per_sample_weights_backward.default")
def embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, bag_of, mode, padding_idx=-1):
    """The derivative of the factors of sums, one for each index."""
    indices = convert(indices, S64)
    if not indices.size:
        return lax.full(indices.shape, 0, grad.dtype)
    if not bag_of.size:
        bag_of = _bag_of(offsets, grad.shape[0], indices.size)
    parts = _computed(hnp.take(grad, bag_of, axis=0)) * _computed(hnp.take(weight, indices, axis=0))
    found = hnp.sum(parts, axis=1)
    return convert(hnp.where(_counted(indices, padding_idx), found, operand(0, found.dtype)), grad.dtype)

"""Losses whose operands torch checks by value: class indices, probabilities."""

from __future__ import annotations

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import S64, TO_TORCH, computed_in, convert, operand
from hloom.bridges.torch.table import rule

LEAST_LOG = -100  # of a probability, in torch's binary cross-entropy
MEAN, SUM = 1, 2  # of a reduction; 0 is none


@rule("nll_loss_forward.default", "nll_loss2d_forward.default", result=True, bounds=True)
def nll_loss(x, target, weight, reduction, ignore_index, *, result, bounds):
    """(the loss, the sum of the weights). x: log-probabilities, with the classes in dimension 1, or the only one."""
    axis, classes = (1, x.shape[1]) if x.ndim > 1 else (0, x.shape[0])
    wide = computed_in(TO_TORCH[x.dtype])
    counted = hnp.not_equal(target, operand(ignore_index, target.dtype))
    label = hnp.where(counted, target, operand(0, target.dtype))
    bounds.indices(label, classes, text="Target {{}} is out of bounds.")
    nothing = operand(0, wide)
    picked = hnp.take_along_axis(convert(x, wide), hnp.expand_dims(convert(label, S64), axis), axis=axis)
    picked = -lax.reshape(picked, target.shape)
    weights = lax.full(target.shape, 1, wide)
    if weight is not None:
        weights = hnp.take(convert(weight, wide), label, axis=0)
    weights = hnp.where(counted, weights, nothing)
    losses = hnp.where(counted, picked * weights, nothing)
    if reduction not in (MEAN, SUM):
        return convert(losses, result[0].dtype), lax.full(result[1].dims, 0, result[1].dtype)
    total, summed = hnp.sum(weights), hnp.sum(losses)
    return summed / total if reduction == MEAN else summed, total


@rule("binary_cross_entropy.default", bounds=True)
def binary_cross_entropy(x, target, weight=None, reduction=MEAN, *, bounds):
    """Of probabilities x."""
    zero, one = operand(0, x.dtype), operand(1, x.dtype)
    if x.size:
        bounds.holds(x, lambda: hnp.logical_not(hnp.all(hnp.logical_and(x >= zero, x <= one))), RuntimeError,
                     "all elements of input should be between 0 and 1")  # fmt: skip
    wide = convert(x, computed_in(TO_TORCH[x.dtype]))
    target, least = convert(target, wide.dtype), operand(LEAST_LOG, wide.dtype)
    found = (target - operand(1, wide.dtype)) * hnp.maximum(hnp.log1p(-wide), least)
    found = found - target * hnp.maximum(hnp.log(wide), least)
    if weight is not None:
        found = found * convert(weight, wide.dtype)
    return hnp.mean(found) if reduction == MEAN else hnp.sum(found) if reduction == SUM else found

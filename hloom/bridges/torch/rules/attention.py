"""Scaled dot-product attention and its derivative, which recomputes the weights from the sums of the forward."""

from __future__ import annotations

import math

import hloom.numpy as hnp
from hloom import lax
from hloom.bridges.torch.dtypes import F32, PRED, convert, operand
from hloom.bridges.torch.rules.linear_algebra import product
from hloom.bridges.torch.table import rule
from hloom.errors import UnsupportedError
from hloom.ir.types import NARROW_FLOATS


def _scores(query, key, is_causal: bool, mask, scale):
    """query key^T scale + mask, in f32 for narrow floats. query, key: (batch, heads, length, features)."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = product(query, hnp.swapaxes(key, -1, -2))
    scores = scores * operand(scale, scores.dtype)
    # Without a mask each row sees something, and a number that is not infinite lets attention be one kernel.
    lowest = -math.inf if mask is not None else -0.7 * float(hnp.finfo(scores.dtype).max)
    hidden = operand(lowest, scores.dtype)
    if mask is not None:
        if mask.dtype == PRED:
            scores = hnp.where(mask, scores, hidden)
        else:
            scores = scores + convert(mask, scores.dtype)
    if is_causal:
        scores = hnp.where(hnp.tri(query.shape[-2], key.shape[-2], dtype=bool), scores, hidden)
    return scores


def _no_dropout(dropout_p: float) -> None:
    if dropout_p:
        raise UnsupportedError(
            "scaled_dot_product_attention in one piece",
            f"dropout_p={dropout_p}",
            "drop out its result instead",
            "",
        )


@rule("_scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    """(result, log of the sums of exponentials: f32 (batch, heads, queries))."""
    _no_dropout(dropout_p)
    scores = _scores(query, key, is_causal, attn_mask, scale)
    largest = hnp.max(scores, axis=-1, keepdims=True)
    if attn_mask is not None:  # rows that see nothing have weights of zero, as torch's
        largest = hnp.where(largest == -math.inf, operand(0, largest.dtype), largest)
    terms = hnp.exp(scores - largest)
    total = hnp.sum(terms, axis=-1, keepdims=True)
    if attn_mask is not None:
        total = hnp.where(total == 0, operand(1, total.dtype), total)
    weights = convert(terms / total, value.dtype)
    return hnp.matmul(weights, value), lax.squeeze(largest + hnp.log(total), (-1 % scores.ndim,))


@rule("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_backward(
    grad, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None
):
    """(derivatives of query, key and value)."""
    _no_dropout(dropout_p)
    dtype = query.dtype
    scores = _scores(query, key, is_causal, attn_mask, scale)
    weights = hnp.exp(scores - hnp.expand_dims(convert(logsumexp, scores.dtype), -1))
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    wide = F32 if dtype in NARROW_FLOATS else dtype
    grad, out, query, key, value = (convert(v, wide) for v in (grad, out, query, key, value))
    weights = convert(weights, wide)
    of_value = hnp.matmul(hnp.swapaxes(weights, -1, -2), grad)
    of_weights = hnp.matmul(grad, hnp.swapaxes(value, -1, -2))
    of_scores = weights * (of_weights - hnp.sum(grad * out, axis=-1, keepdims=True)) * operand(factor, wide)
    of_query = hnp.matmul(of_scores, key)
    of_key = hnp.matmul(hnp.swapaxes(of_scores, -1, -2), query)
    return tuple(convert(v, dtype) for v in (of_query, of_key, of_value))

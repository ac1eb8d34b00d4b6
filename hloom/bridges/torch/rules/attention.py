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

# Products of rows (batch, heads, length, features) with others. grouped: several heads share keys, and rows are
# (batch, heads of keys, group, length, features).


def _by_rows(rows, others, grouped: bool):
    """rows others^T, of narrow floats in f32: (..., length, other length)."""
    if not grouped:
        return product(rows, hnp.swapaxes(others, -1, -2))
    wide = F32 if rows.dtype in NARROW_FLOATS else rows.dtype
    return hnp.einsum("bhglf,bhsf->bhgls", rows, others, preferred_element_type=wide)


def _weighted(weights, others, grouped: bool):
    """weights others: (..., length, features)."""
    return hnp.einsum("bhgls,bhsf->bhglf", weights, others) if grouped else hnp.matmul(weights, others)


def _gathered(weights, rows, grouped: bool):
    """weights^T rows, summed over a group: (batch, heads, other length, features)."""
    if grouped:
        return hnp.einsum("bhgls,bhglf->bhsf", weights, rows)
    return hnp.matmul(hnp.swapaxes(weights, -1, -2), rows)


class _Groups:
    """Heads of queries in groups that share a head of keys and values. split, merged: (batch, heads of queries, ...) as
    (batch, heads of keys, group, ...), and back; unchanged if each head has its own keys."""

    def __init__(self, query, key, value):
        self.heads, self.shared = query.shape[1], key.shape[1]
        if self.heads % max(self.shared, 1) or value.shape[1] != self.shared:
            raise UnsupportedError(
                "attention with heads that share keys and values",
                f"{self.heads} heads of queries, {self.shared} of keys, {value.shape[1]} of values",
                "repeat keys and values",
                "",
            )
        self.size = self.heads // max(self.shared, 1)

    @property
    def grouped(self) -> bool:
        return self.size > 1

    def split(self, x):
        if not self.grouped:
            return x
        return lax.reshape(x, (x.shape[0], self.shared, self.size, *x.shape[2:]))

    def merged(self, x):
        return lax.reshape(x, (x.shape[0], self.heads, *x.shape[3:])) if self.grouped else x

    def mask(self, mask):
        """A mask that is broadcast against (batch, heads, length, other length)."""
        if not self.grouped or mask.ndim < 3:
            return mask
        if mask.shape[-3] != 1:
            return lax.reshape(mask, (*mask.shape[:-3], self.shared, self.size, *mask.shape[-2:]))
        return hnp.expand_dims(mask, -3)


def _scores(query, key, is_causal: bool, mask, scale, grouped: bool):
    """query key^T scale + mask, in f32 for narrow floats."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = _by_rows(query, key, grouped)
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
    groups = _Groups(query, key, value)
    if attn_mask is not None:
        attn_mask = groups.mask(attn_mask)
    scores = _scores(groups.split(query), key, is_causal, attn_mask, scale, groups.grouped)
    largest = hnp.max(scores, axis=-1, keepdims=True)
    if attn_mask is not None:  # rows that see nothing have weights of zero, as torch's
        largest = hnp.where(largest == -math.inf, operand(0, largest.dtype), largest)
    terms = hnp.exp(scores - largest)
    total = hnp.sum(terms, axis=-1, keepdims=True)
    if attn_mask is not None:
        total = hnp.where(total == 0, operand(1, total.dtype), total)
    weights = convert(terms / total, value.dtype)
    found = _weighted(weights, value, groups.grouped)
    return groups.merged(found), groups.merged(lax.squeeze(largest + hnp.log(total), (-1 % scores.ndim,)))


@rule("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_backward(
    grad, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None
):
    """(derivatives of query, key and value)."""
    _no_dropout(dropout_p)
    dtype, groups = query.dtype, _Groups(query, key, value)
    if attn_mask is not None:
        attn_mask = groups.mask(attn_mask)
    query, grad, out, logsumexp = (groups.split(v) for v in (query, grad, out, logsumexp))
    scores = _scores(query, key, is_causal, attn_mask, scale, groups.grouped)
    weights = hnp.exp(scores - hnp.expand_dims(convert(logsumexp, scores.dtype), -1))
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    wide = F32 if dtype in NARROW_FLOATS else dtype
    grad, out, query, key, value = (convert(v, wide) for v in (grad, out, query, key, value))
    weights = convert(weights, wide)
    of_value = _gathered(weights, grad, groups.grouped)
    of_weights = _by_rows(grad, value, groups.grouped)
    of_scores = weights * (of_weights - hnp.sum(grad * out, axis=-1, keepdims=True)) * operand(factor, wide)
    of_query = groups.merged(_weighted(of_scores, key, groups.grouped))
    of_key = _gathered(of_scores, query, groups.grouped)
    return tuple(convert(v, dtype) for v in (of_query, of_key, of_value))

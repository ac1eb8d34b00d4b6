"""Multi-head attention and the transformer block."""

from __future__ import annotations

from typing import Any

import hloom.numpy as hnp
from hloom import random
from hloom.errors import ArgumentError
from hloom.nn.functional import dot_product_attention, gelu
from hloom.nn.layers import Dropout, LayerNorm, Linear
from hloom.nn.module import Module, static


class MultiHeadAttention(Module):
    """softmax(q k^T / sqrt(d)) v in `heads` parallel heads (Vaswani et al., 2017). Inputs: (batch, time, features).

    `attention(x, is_causal=True)` masks later positions; by default every position attends to all others.

    >>> layer = hl.nn.MultiHeadAttention(64, heads=8, key=hl.random.key(0))
    >>> layer(hnp.ones((2, 10, 64))).shape
    (2, 10, 64)
    """

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    heads: int = static()

    def __init__(self, features: int, heads: int, *, key, use_bias: bool = True, dtype="f32"):
        if features % heads:
            raise ArgumentError(
                "MultiHeadAttention takes a number of heads that divides the features",
                f"{heads} heads, {features} features",
                "choose a divisor",
            )
        keys = random.split(key, 4)
        layers = [Linear(features, features, key=k, use_bias=use_bias, dtype=dtype) for k in keys]
        self.query, self.key, self.value, self.output = layers
        self.heads = heads

    def __call__(self, x, context=None, *, mask=None, is_causal: bool = False):
        """x: (batch, time, features), the queries. context: the source of keys and values, by default x.

        mask: booleans that broadcast to (batch, heads, queries, keys); False is masked. is_causal: masks later
        positions.
        """
        context = x if context is None else context
        query, key, value = (
            hnp.reshape(y, (*y.shape[:-1], self.heads, -1))
            for y in (self.query(x), self.key(context), self.value(context))
        )
        mixed = dot_product_attention(query, key, value, mask=mask, is_causal=is_causal)
        return self.output(hnp.reshape(mixed, (*mixed.shape[:-2], -1)))


class TransformerBlock(Module):
    """x + attention(norm(x)), then x + MLP(norm(x)): a pre-norm block (Xiong et al., 2020).

    `block(x, is_causal=True)` is a decoder: a position attends to itself and earlier ones. By default each position
    attends to all others, as in an encoder. mask=(batch, heads, queries, keys) is False for masked pairs, such as
    padding.

    >>> block = hl.nn.TransformerBlock(64, heads=8, key=hl.random.key(0))
    >>> block(hnp.ones((2, 10, 64))).shape
    (2, 10, 64)
    """

    first_norm: LayerNorm
    attention: MultiHeadAttention
    second_norm: LayerNorm
    up: Linear
    down: Linear
    dropout: Any

    def __init__(self, features: int, heads: int, *, key, hidden: int | None = None, dropout: float = 0.0, dtype="f32"):
        keys = random.split(key, 3)
        hidden = hidden or 4 * features
        self.first_norm = LayerNorm(features, dtype=dtype)
        self.attention = MultiHeadAttention(features, heads, key=keys[0], dtype=dtype)
        self.second_norm = LayerNorm(features, dtype=dtype)
        self.up = Linear(features, hidden, key=keys[1], dtype=dtype)
        self.down = Linear(hidden, features, key=keys[2], dtype=dtype)
        self.dropout = Dropout(dropout)

    def __call__(self, x, *, mask=None, is_causal: bool = False):
        x = x + self.dropout(self.attention(self.first_norm(x), mask=mask, is_causal=is_causal))
        return x + self.dropout(self.down(gelu(self.up(self.second_norm(x)))))

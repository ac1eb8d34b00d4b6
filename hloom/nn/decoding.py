"""Attention over an encoder's outputs, and beam search, for sequence-to-sequence models of recurrent cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import hloom.numpy as hnp
from hloom import lax, random, tree
from hloom.errors import ArgumentError, ShapeError
from hloom.lax.operands import as_operand
from hloom.nn import initializers
from hloom.nn.functional import log_softmax, softmax
from hloom.nn.layers import Linear
from hloom.nn.module import Module


class BahdanauAttention(Module):
    """Scores v . tanh(W query + U memory) (Bahdanau et al., 2015)."""

    query: Linear
    memory: Linear
    vector: Any

    def __init__(self, queries: int, memory: int, units: int, *, key, dtype="f32"):
        """queries, memory: features of the decoder's outputs and of the encoder's. units: dimension of the sum."""
        keys = random.split(key, 3)
        self.query = Linear(queries, units, key=keys[0], dtype=dtype)
        self.memory = Linear(memory, units, key=keys[1], use_bias=False, dtype=dtype)
        self.vector = initializers.lecun_normal()(keys[2], (units, 1), dtype)[:, 0]

    def prepare(self, memory):
        """What scores need of the memory (batch, time, features), computed once per sequence."""
        return self.memory(memory)

    def scores(self, query, prepared):
        """(batch, features) and what `prepare` returned to (batch, time)."""
        return hnp.matmul(hnp.tanh(hnp.expand_dims(self.query(query), -2) + prepared), self.vector)


class LuongAttention(Module):
    """Scores query . W memory (Luong et al., 2015, "general").

    >>> attention = hl.nn.LuongAttention(8, 16, key=hl.random.key(0))
    >>> cell = hl.nn.AttentionCell(hl.nn.GRUCell(20, 8, key=hl.random.key(1)), attention, 16, 4, key=hl.random.key(2))
    >>> state = cell.initial_state(hnp.ones((2, 10, 16)))
    >>> state.context.shape
    (2, 16)
    """

    memory: Linear

    def __init__(self, queries: int, memory: int, *, key, dtype="f32"):
        self.memory = Linear(memory, queries, key=key, use_bias=False, dtype=dtype)

    def prepare(self, memory):
        """What scores need of the memory (batch, time, features), computed once per sequence."""
        return self.memory(memory)

    def scores(self, query, prepared):
        """(batch, features) and what `prepare` returned to (batch, time)."""
        return hnp.einsum("bf,btf->bt", query, prepared)


class AttentionState(NamedTuple):
    """cell: state of the cell. context: (batch, memory features). memory: (batch, time, features). prepared: the part
    of the scores computed from it once. mask: (batch, time), False is masked."""

    cell: Any
    context: Any
    memory: Any
    prepared: Any
    mask: Any


class AttentionCell(Module):
    """A cell with attention: it reads its input together with a context, the weighted mean of a memory, and computes
    the next weights.

    cell: takes inputs of (inputs + memory features). The output is tanh(W [cell's output, context]) of `outputs`
    features (Luong et al., 2015, equation 5). Use `initial_state(memory, lengths)`, then the cell alone, in
    `Recurrent(cell)(x, state)`, or in `beam_search`.
    """

    cell: Any
    attention: Any
    output: Linear

    def __init__(self, cell, attention, memory: int, outputs: int, *, key, dtype="f32"):
        self.cell, self.attention = cell, attention
        self.output = Linear(cell.features + memory, outputs, key=key, use_bias=False, dtype=dtype)

    def initial_state(self, memory, lengths=None, cell_state=None) -> AttentionState:
        """memory: (batch, time, features). lengths: (batch,) of the memory's sequences; later positions are masked.
        cell_state: by default the cell's initial state. Raises ShapeError."""
        memory = as_operand(memory, "AttentionCell")
        if memory.ndim != 3:
            raise ShapeError(
                "AttentionCell reads a memory (batch, time, features)", repr(memory._shape), "add the batch dimension"
            )
        batch, time, features = memory.shape
        mask = hnp.ones((batch, time), "pred")
        if lengths is not None:
            mask = hnp.arange(time) < hnp.reshape(hnp.asarray(lengths), (batch, 1))
        state = self.cell.initial_state(batch) if cell_state is None else cell_state
        context = hnp.zeros((batch, features), memory.dtype)
        return AttentionState(state, context, memory, self.attention.prepare(memory), mask)

    def prepare(self, x):
        """The inputs unchanged: each step needs the context of the previous one."""
        return hnp.asarray(x)  # each step needs the context of the previous one

    def step(self, state: AttentionState, x):
        """(the new state, the output, which includes the context)."""
        cell, out = self.cell(state.cell, hnp.concatenate([x, state.context.astype(x.dtype)], axis=-1))
        scores = hnp.where(state.mask, self.attention.scores(out, state.prepared), -hnp.inf)
        context = hnp.einsum("bt,btf->bf", softmax(scores), state.memory)
        output = hnp.tanh(self.output(hnp.concatenate([out, context], axis=-1)))
        return state._replace(cell=cell, context=context), output

    def __call__(self, state: AttentionState, x):
        return self.step(state, x)


class Beams(NamedTuple):
    """tokens: (batch, beams, length) s32, `end` after the end. scores: (batch, beams), log probabilities divided by the
    length penalty, in descending order. lengths: (batch, beams) s32, `end` included."""

    tokens: Any
    scores: Any
    lengths: Any


def beam_search(
    step: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
    start: Any,
    *,
    end: int,
    beam_width: int,
    max_length: int,
    length_penalty: float = 0.0,
) -> Beams:
    """The most probable sequences of a decoder, approximated by keeping the `beam_width` best prefixes.

    step: step(state, tokens (n,)) -> (state, logits (n, vocabulary)), for n = batch * beam_width rows. state: a tree of
    arrays (batch, ...). start: the first tokens, (batch,) integers. end: the token that ends a sequence. Sequences that
    do not end within max_length are returned as they are. length_penalty: exponent a of the divisor ((5 + length) /
    6)^a of scores (Wu et al., 2016, equation 14). Works under jit. Raises ArgumentError, ShapeError.

    >>> log_p = hnp.log(hnp.array([0.1, 0.6, 0.3]))
    >>> def step(state, tokens):
    ...     return state, hnp.broadcast_to(log_p, (*tokens.shape, 3))
    >>> beams = hl.nn.beam_search(step, (), hnp.array([1]), end=0, beam_width=2, max_length=3)
    >>> beams.tokens[0, 0]
    Array([1, 1, 1], dtype=int32)
    """
    if beam_width < 1 or max_length < 1:
        raise ArgumentError(
            "beam_search takes at least one beam and one token",
            f"beam_width={beam_width}, max_length={max_length}",
            "pass numbers of at least 1",
        )
    start = as_operand(start, "beam_search")
    if start.ndim != 1:
        raise ShapeError("beam_search takes first tokens (batch,)", repr(start._shape), "one token for each sequence")
    batch, width = start.shape[0], beam_width
    state = tree.map(lambda x: hnp.repeat(hnp.asarray(x), width, axis=0), state)
    tokens = hnp.full((batch, width, max_length), end, "s32")
    # Initially all beams are equal: only one of them may be continued.
    first = hnp.broadcast_to(hnp.where(hnp.arange(width) == 0, 0.0, -hnp.inf), (batch, width)).astype("f32")
    last = hnp.repeat(start.astype("s32"), width)
    ended = hnp.zeros((batch, width), "pred")
    lengths = hnp.zeros((batch, width), "s32")
    rows = hnp.arange(batch)[:, None]

    def penalized(totals, lengths):
        return totals if not length_penalty else totals / ((5.0 + lengths) / 6.0) ** length_penalty

    def advance(carry, position):
        state, last, totals, tokens, ended, lengths = carry
        state, logits = step(state, last)
        if logits.ndim != 2 or logits.shape[0] != batch * width:
            raise ShapeError(
                f"the step of beam_search returns logits ({batch * width}, vocabulary)",
                repr(logits._shape),
                "compute one row for each token that it is given",
            )
        vocabulary = logits.shape[1]
        chances = hnp.reshape(log_softmax(logits.astype("f32")), (batch, width, vocabulary))
        # A finished sequence has a single continuation, at no cost.
        stay = hnp.where(hnp.arange(vocabulary) == end, 0.0, -hnp.inf)
        chances = hnp.where(ended[:, :, None], stay, chances)
        candidates = totals[:, :, None] + chances
        grown = lengths + hnp.where(ended, 0, 1)
        ranked = penalized(candidates, grown[:, :, None])
        _, best = lax.top_k(hnp.reshape(ranked, (batch, width * vocabulary)), width)
        parent, token = best // vocabulary, (best % vocabulary).astype("s32")
        totals = hnp.take_along_axis(hnp.reshape(candidates, (batch, -1)), best, axis=1)
        ended, lengths = ended[rows, parent], grown[rows, parent]
        tokens = tokens[rows, parent].at[:, :, position].set(token)
        ended = hnp.logical_or(ended, token == end)
        flat = hnp.reshape(rows * width + parent, (-1,))
        state = tree.map(lambda x: x[flat], state)
        return (state, hnp.reshape(token, (-1,)), totals, tokens, ended, lengths), None

    carry = (state, last, first, tokens, ended, lengths)
    (_, _, totals, tokens, _, lengths), _ = lax.scan(advance, carry, hnp.arange(max_length))
    scores = penalized(totals, lengths)
    order = hnp.argsort(-scores, axis=1)
    return Beams(tokens[rows, order], scores[rows, order], lengths[rows, order])

"""Sequences of different lengths, stacked and bidirectional cells, attention and beam search, against plain loops."""

import itertools

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import nn
from hloom.errors import ArgumentError, ShapeError

KEYS = hl.random.split(hl.random.key(0), 8)
X = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)
LENGTHS = np.array([5, 2, 0])
close = {"rtol": 2e-5, "atol": 2e-6}


@pytest.mark.parametrize("kind", (nn.LSTM, nn.GRU, nn.RNN))
@pytest.mark.parametrize("reverse", (False, True))
def test_each_sequence_is_as_if_it_were_alone(kind, reverse):
    layer = kind(4, 6, key=KEYS[0])
    outputs, state = hl.jit(lambda m, x, n: m(x, reverse=reverse, lengths=n))(layer, X, LENGTHS)
    for k, n in enumerate(LENGTHS):
        assert (np.asarray(outputs[k, n:]) == 0).all()
        if n:
            alone, last = layer(X[k : k + 1, :n], reverse=reverse)
            np.testing.assert_allclose(outputs[k, :n], alone[0], **close)
            for a, b in zip(hl.tree.leaves(state), hl.tree.leaves(last), strict=True):
                np.testing.assert_allclose(a[k], b[0], **close)
    gradient = hl.grad(lambda x: hnp.sum(layer(x, lengths=LENGTHS, reverse=reverse)[0] ** 2))(X)
    assert (np.asarray(gradient)[1, 2:] == 0).all() and np.abs(gradient[1, :2]).min() > 0
    with pytest.raises(ShapeError, match="one length for each"):
        layer(X, lengths=np.array([1, 2]))


def test_stacked_cells_are_layers_one_after_the_other():
    first, second = nn.LSTMCell(4, 6, key=KEYS[0]), nn.GRUCell(6, 3, key=KEYS[1])
    outputs, state = nn.Recurrent(nn.StackedCells(first, second))(X, lengths=LENGTHS)
    middle, below = nn.Recurrent(first)(X, lengths=LENGTHS)
    expected, above = nn.Recurrent(second)(middle, lengths=LENGTHS)
    np.testing.assert_allclose(outputs, expected, **close)
    for a, b in zip(hl.tree.leaves(state), hl.tree.leaves((below, above)), strict=True):
        np.testing.assert_allclose(a, b, **close)
    with pytest.raises(ArgumentError, match="takes cells"):
        nn.StackedCells()


@pytest.mark.parametrize("merge", ("concat", "sum"))
def test_bidirectional(merge):
    ahead, back = nn.GRU(4, 6, key=KEYS[0]), nn.GRU(4, 6, key=KEYS[1])
    outputs, states = nn.Bidirectional(ahead, back, merge=merge)(X, lengths=LENGTHS)
    one, two = ahead(X, lengths=LENGTHS), back(X, reverse=True, lengths=LENGTHS)
    expected = np.concatenate([one[0], two[0]], axis=-1) if merge == "concat" else np.asarray(one[0]) + two[0]
    np.testing.assert_allclose(outputs, expected, **close)
    np.testing.assert_allclose(states[1], two[1], **close)
    with pytest.raises(ArgumentError, match="'concat' or 'sum'"):
        nn.Bidirectional(ahead, back, merge="max")


@pytest.mark.parametrize("kind", ("bahdanau", "luong"))
def test_attention_is_the_papers_formula(kind):
    attention = (
        nn.BahdanauAttention(6, 3, 5, key=KEYS[2]) if kind == "bahdanau" else nn.LuongAttention(6, 3, key=KEYS[2])
    )
    cell = nn.AttentionCell(nn.GRUCell(4 + 3, 6, key=KEYS[3]), attention, 3, 7, key=KEYS[4])
    memory = np.random.default_rng(1).standard_normal((3, 4, 3)).astype(np.float32)
    lengths = np.array([4, 1, 2])
    outputs, _ = hl.jit(lambda c, m, x: nn.Recurrent(c)(x, c.initial_state(m, lengths)))(cell, memory, X)
    for k in range(3):
        h, context = np.zeros((1, 6), np.float32), np.zeros(3, np.float32)
        seen = memory[k, : lengths[k]]
        for t in range(5):
            h, out = cell.cell(h, np.concatenate([X[k, t], context])[None])
            query = np.asarray(out)[0]
            if kind == "bahdanau":
                hidden = query @ attention.query.kernel + attention.query.bias + seen @ attention.memory.kernel
                scores = np.tanh(hidden) @ attention.vector
            else:
                scores = (seen @ np.asarray(attention.memory.kernel)) @ query
            weights = np.exp(scores - np.max(scores))
            context = (weights / weights.sum()) @ seen
            expected = np.tanh(np.concatenate([query, context]) @ np.asarray(cell.output.kernel))
            np.testing.assert_allclose(outputs[k, t], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ShapeError, match="a memory"):
        cell.initial_state(memory[0])


# --- beam search ---

VOCABULARY, END = 4, 0
TABLE = np.random.default_rng(3).standard_normal((2, VOCABULARY, VOCABULARY, VOCABULARY)).astype(np.float32)


def model(state, tokens):
    """Logits by the two tokens before, from a table of the sequence's own: a state that has to follow its beam."""
    before, table = state
    rows = hnp.arange(tokens.shape[0])
    return (tokens, table), table[rows, before, tokens]


def every_sequence(table, start, length):
    """(log probability, tokens) of all sequences up to the end or the length."""
    found = []
    for tokens in itertools.product(range(VOCABULARY), repeat=length):
        n = tokens.index(END) + 1 if END in tokens else length
        if any(t != END for t in tokens[n:]):
            continue
        before, last, total = 1, start, 0.0
        for token in tokens[:n]:
            logits = table[before, last]
            total += logits[token] - np.log(np.exp(logits).sum())
            before, last = last, token
        found.append((total, n, tokens))
    return found


@pytest.mark.parametrize("penalty", (0.0, 0.8))
def test_a_wide_beam_finds_the_best_of_all_sequences(penalty):
    start = np.array([1, 2], np.int32)
    state = (np.ones(2, np.int32), TABLE)

    @hl.jit
    def search(state, start):
        return nn.beam_search(
            model, state, start, end=END, beam_width=VOCABULARY**3, max_length=4, length_penalty=penalty
        )

    found = search(state, start)
    for k in range(2):
        ranked = sorted(
            (
                (total / ((5 + n) / 6) ** penalty, n, tokens)
                for total, n, tokens in every_sequence(TABLE[k], start[k], 4)
            ),
            reverse=True,
        )
        for beam in range(10):
            score, n, tokens = ranked[beam]
            assert float(found.scores[k, beam]) == pytest.approx(score, abs=1e-5)
            assert tuple(np.asarray(found.tokens[k, beam])) == tokens and int(found.lengths[k, beam]) == n


def test_narrow_beams_against_a_plain_search():
    start, length = np.array([1, 2], np.int32), 6
    for width in (1, 2, 3):
        found = nn.beam_search(
            model, (np.ones(2, np.int32), TABLE), start, end=END, beam_width=width, max_length=length
        )
        for k in range(2):
            beams = [(0.0, (), 1, int(start[k]))]
            for _ in range(length):
                grown = []
                for total, tokens, before, last in beams:
                    if END in tokens:
                        grown.append((total, (*tokens, END), before, last))
                        continue
                    logits = TABLE[k, before, last]
                    logs = logits - np.log(np.exp(logits).sum())
                    grown += [(total + logs[t], (*tokens, t), last, t) for t in range(VOCABULARY)]
                beams = sorted(grown, reverse=True)[:width]
            for beam, (total, tokens, _, _) in enumerate(beams):
                assert tuple(np.asarray(found.tokens[k, beam])) == tokens
                assert float(found.scores[k, beam]) == pytest.approx(total, abs=1e-5)


def test_mistakes_of_beam_search():
    state, start = (np.ones(2, np.int32), TABLE), np.array([1, 2])
    with pytest.raises(ArgumentError, match="beam_width=0"):
        nn.beam_search(model, state, start, end=END, beam_width=0, max_length=3)
    with pytest.raises(ShapeError, match="one token for each"):
        nn.beam_search(model, state, start[:, None], end=END, beam_width=2, max_length=3)
    with pytest.raises(ShapeError, match="one row for each token"):
        nn.beam_search(lambda s, t: (s, hnp.ones((3, 4))), state, start, end=END, beam_width=2, max_length=3)

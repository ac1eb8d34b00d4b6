"""TensorFlow 1.0's sequence models: encoder, decoder with attention and beam search write digits backwards.

python examples/tf1/seq2seq.py [--steps 300]
"""

import argparse

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim
from hloom.nn.losses import softmax_cross_entropy_with_integer_labels

DIGITS, LENGTH, WIDTH, BATCH = 10, 5, 64, 64
START, END = DIGITS, DIGITS + 1


class Seq2Seq(nn.Module):
    embedding: nn.Module
    encoder: nn.Module
    decoder: nn.Module
    output: nn.Module

    def __init__(self, key):
        k = hl.random.split(key, 6)
        self.embedding = nn.Embedding(DIGITS + 2, WIDTH, key=k[0])
        self.encoder = nn.Recurrent(nn.GRUCell(WIDTH, WIDTH, key=k[1]))
        cell = nn.GRUCell(2 * WIDTH, WIDTH, key=k[2])
        self.decoder = nn.AttentionCell(cell, nn.LuongAttention(WIDTH, WIDTH, key=k[3]), WIDTH, WIDTH, key=k[4])
        self.output = nn.Linear(WIDTH, DIGITS + 2, key=k[5])

    def encode(self, source):
        """The state with which the decoder begins: it attends to what the encoder said at each digit."""
        memory, last = self.encoder(self.embedding(source))
        return self.decoder.initial_state(memory, cell_state=last)

    def step(self, state, tokens):
        state, out = self.decoder(state, self.embedding(tokens))
        return state, self.output(out)

    def loss(self, source):
        rows = len(source)
        ends = [hnp.full((rows, 1), token, "int32") for token in (START, END)]
        target = hnp.concatenate([source[:, ::-1], ends[1]], axis=1)
        read = hnp.concatenate([ends[0], target[:, :-1]], axis=1)  # the decoder reads what it should have written
        _, logits = hl.scan(self.step, self.encode(source), read.T)
        return hnp.mean(softmax_cross_entropy_with_integer_labels(logits, target.T))

    def write(self, source, beams=3):
        """The most probable sequence, by beam search."""
        start = hnp.full(len(source), START, "int32")
        found = nn.beam_search(self.step, self.encode(source), start, end=END, beam_width=beams, max_length=LENGTH + 1)
        return found.tokens[:, 0, :LENGTH]


def train(steps=300, report=print):
    """Returns the share of digits that are right in unseen sequences."""
    model, optimizer = Seq2Seq(hl.random.key(0)), optim.adam(5e-3)
    state = optimizer.init(model)

    @hl.jit
    def step(model, state, source):
        value, gradient = hl.value_and_grad(Seq2Seq.loss)(model, source)
        updates, state = optimizer.update(gradient, state, model)
        return optim.apply_updates(model, updates), state, value

    rng = np.random.default_rng(0)
    for k in range(1, steps + 1):
        model, state, value = step(model, state, rng.integers(0, DIGITS, (BATCH, LENGTH)).astype(np.int32))
        if k % 100 == 0:
            report(f"step {k}  loss {float(value):.3f}")
    source = rng.integers(0, DIGITS, (200, LENGTH)).astype(np.int32)
    written = hl.jit(Seq2Seq.write)(model, source)
    return float(np.mean(np.asarray(written) == source[:, ::-1]))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--steps", type=int, default=300)
    print(f"digits right: {train(arguments.parse_args().steps):.1%}")

"""A character model: an LSTM learns to continue the Python language reference, which ships with Python.

It is compared with the best model that sees one character. Run

    python examples/character_lstm.py [--steps 400]
"""

import argparse
import math

import numpy as np
from text_data import bigram_bits, load, windows

import hloom as hl
import hloom.numpy as hnp
from hloom import lax, nn, optim

BATCH, LENGTH, EMBEDDING, HIDDEN = 32, 64, 32, 192


class CharacterModel(nn.Module):
    embedding: nn.Embedding
    lstm: nn.LSTM
    output: nn.Linear

    def __init__(self, size, key):
        keys = hl.random.split(key, 3)
        self.embedding = nn.Embedding(size, EMBEDDING, key=keys[0])
        self.lstm = nn.LSTM(EMBEDDING, HIDDEN, key=keys[1])
        self.output = nn.Linear(HIDDEN, size, key=keys[2])

    def __call__(self, codes):
        """codes: (batch, time). Returns the logits of the next character at each time."""
        hidden, _ = self.lstm(self.embedding(codes))
        return self.output(hidden)


def loss(model, codes):
    """The mean negative log-likelihood of each next character, in nats."""
    logits = model(codes[:, :-1])
    return hnp.mean(nn.losses.softmax_cross_entropy_with_integer_labels(logits, codes[:, 1:]))


@hl.jit(static_argnums=2)
def sample(model, key, length):
    """Codes drawn from the model one after the other, by a scan that feeds each back."""
    state = model.lstm.cell.initial_state()

    def draw(carry, key):
        state, code = carry
        state, hidden = model.lstm.cell(state, model.embedding(code))
        code = hl.random.categorical(key, model.output(hidden)).astype("s32")
        return (state, code), code

    _, codes = lax.scan(draw, (state, hnp.asarray(0, "s32")), hl.random.split(key, length))
    return codes


def train(steps=400, report=print):
    """Returns (bits a character on held-out text, the same of the best bigram model, a sample of text)."""
    codes, held, alphabet = load()
    model = CharacterModel(len(alphabet), hl.random.key(0))
    schedule = optim.warmup_cosine_decay_schedule(0.0, 1e-2, 20, steps)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(schedule))
    state = optimizer.init(model)

    @hl.jit
    def step(model, state, batch):
        value, gradient = hl.value_and_grad(loss)(model, batch)
        updates, state = optimizer.update(gradient, state, model)
        return optim.apply_updates(model, updates), state, value

    random = np.random.default_rng(0)
    for k in range(1, steps + 1):
        model, state, value = step(model, state, windows(codes, BATCH, LENGTH, random))
        if k % 50 == 0:
            report(f"step {k}  {float(value) / math.log(2):.3f} bits a character")
    measured = [float(loss(model, windows(held, BATCH, LENGTH, random))) for _ in range(10)]
    text = "".join(alphabet[c] for c in np.asarray(sample(model, hl.random.key(1), 200)))
    return float(np.mean(measured)) / math.log(2), bigram_bits(codes, held, len(alphabet)), text


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--steps", type=int, default=400, help="training steps of 32 windows of 64 characters")
    bits, bigram, text = train(arguments.parse_args().steps)
    print(f"held-out text: {bits:.2f} bits a character; best bigram model {bigram:.2f}\n---\n{text}\n---")
    assert bits < bigram - 0.5, "the LSTM should be at least half a bit better than one character of context"

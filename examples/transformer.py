"""A small transformer (decoder only, causal attention) learns to continue the Python language reference.

Run

    python examples/transformer.py [--steps 500]
"""

import argparse
import math

import numpy as np
from text_data import bigram_bits, load, windows

import hloom as hl
import hloom.numpy as hnp
from hloom import lax, nn, optim

BATCH, LENGTH, FEATURES, HEADS, LAYERS = 32, 64, 64, 4, 2


class Transformer(nn.Module):
    tokens: nn.Embedding
    positions: nn.Embedding
    blocks: tuple
    norm: nn.LayerNorm

    def __init__(self, size, key):
        keys = hl.random.split(key, LAYERS + 2)
        small = nn.initializers.normal(0.02)
        self.tokens = nn.Embedding(size, FEATURES, key=keys[0], init=small)
        self.positions = nn.Embedding(LENGTH, FEATURES, key=keys[1], init=small)
        self.blocks = tuple(nn.TransformerBlock(FEATURES, HEADS, key=k, dropout=0.05) for k in keys[2:])
        self.norm = nn.LayerNorm(FEATURES)

    def __call__(self, codes):
        """codes: (batch, time). Returns the logits of the next character at each time."""
        x = self.tokens(codes) + self.positions(hnp.arange(codes.shape[-1]))
        for block in self.blocks:
            x = block(x, is_causal=True)
        return self.tokens.attend(self.norm(x))


def loss(model, codes, key=None):
    logits, _ = nn.apply(model, codes[:, :-1], training=key is not None, key=key)
    return hnp.mean(nn.losses.softmax_cross_entropy_with_integer_labels(logits, codes[:, 1:]))


@hl.jit(static_argnums=2)
def continued(model, start, count):
    """The start (1, n) and the `count` most likely characters after it."""
    codes = hnp.zeros((1, LENGTH), "s32").at[:, : start.shape[1]].set(start)

    def extend(k, codes):
        at = start.shape[1] + k
        logits = model(codes)[0, at - 1]
        return codes.at[0, at].set(hnp.argmax(logits).astype("s32"))

    return lax.fori_loop(0, count, extend, codes)


def train(steps=500, report=print):
    """Returns (bits a character on held-out text, the same of the best bigram model, a continued start)."""
    codes, held, alphabet = load()
    model = Transformer(len(alphabet), hl.random.key(0))
    schedule = optim.warmup_cosine_decay_schedule(0.0, 6e-3, 50, steps)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(schedule, weight_decay=0.01))
    state = optimizer.init(model)

    @hl.jit
    def step(model, state, batch, key):
        value, gradient = hl.value_and_grad(loss)(model, batch, key)
        updates, state = optimizer.update(gradient, state, model)
        return optim.apply_updates(model, updates), state, value

    random = np.random.default_rng(0)
    for k in range(1, steps + 1):
        key = hl.random.fold_in(hl.random.key(1), k)
        model, state, value = step(model, state, windows(codes, BATCH, LENGTH, random), key)
        if k % 100 == 0:
            report(f"step {k}  {float(value) / math.log(2):.3f} bits a character")
    held_loss = hl.jit(loss)
    measured = [float(held_loss(model, windows(held, BATCH, LENGTH, random))) for _ in range(10)]
    start = hnp.asarray([[alphabet.index(c) for c in "The value of the "]], "s32")
    text = "".join(alphabet[c] for c in np.asarray(continued(model, start, 40))[0])
    return float(np.mean(measured)) / math.log(2), bigram_bits(codes, held, len(alphabet)), text


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--steps", type=int, default=500, help="training steps of 32 windows of 64 characters")
    bits, bigram, text = train(arguments.parse_args().steps)
    print(f"held-out text: {bits:.2f} bits a character; best bigram model {bigram:.2f}\n{text!r}")
    assert bits < bigram - 0.3, "the transformer should beat one character of context by 0.3 bits"

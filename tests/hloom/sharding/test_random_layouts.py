"""Programs and their gradients, with arguments in random layouts, against the same on one device."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax, nn

RANDOM = np.random.default_rng(0)


def values(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def recurrent(x, w):
    def step(h, row):
        h = hnp.tanh(h @ w + row)
        return h, h.sum()

    h, sums = lax.scan(step, hnp.zeros(8), x)
    return h.sum() + sums.mean()


PROGRAMS = {
    "layers": (lambda x, w: (hnp.tanh(x @ w) @ w.T).sum(), [(16, 8), (8, 12)]),
    "attention": (lambda x, w: (nn.softmax(x @ w @ x.T) @ x).var(), [(8, 8), (8, 8)]),
    "normalized": (lambda x, w: ((x - x.mean(0)) / (x.std(0) + 1) * w).max(1).sum(), [(8, 16), (16,)]),
    "shifted": (lambda x, w: (hnp.roll(x, 3, 0) * hnp.flip(x, 1) + x[::-1] * w).sum(), [(8, 8), (8,)]),
    "cumulative": (lambda x, w: (hnp.cumsum(x * w, 0) ** 2).sum(), [(8, 8), (8,)]),
    "sorted": (lambda x, w: (hnp.sort(x, 0) * w).sum(), [(8, 8), (8, 8)]),
    "looked up": (lambda x, w: (x[np.array([1, 5, 5, 0])] @ w).sum(), [(8, 8), (8, 4)]),
    "recurrent": (recurrent, [(6, 8), (8, 8)]),
    "reshaped": (lambda x, w: (x.reshape(4, 4, 4).transpose(2, 0, 1).reshape(16, 4) @ w).sum(), [(8, 8), (4, 3)]),
    "convolved": (lambda x, w: lax.conv(x[None, None], w[None, None], (1, 1), "SAME").sum() ** 2, [(8, 16), (3, 3)]),
    "branching": (lambda x, w: lax.cond(x.sum() > 0, lambda: (x @ w).sum(), lambda: (x * 2).mean()), [(8, 8), (8, 8)]),
    "uneven": (lambda x, w: (hnp.concatenate([x, w])[:13] ** 3).mean(), [(8, 8), (8, 8)]),
}
ENTRIES = [(), ("x",), ("y",), ("x", "y"), ("y", "x")]


def layouts(shape):
    """The specs that split an array evenly over the mesh of 4 x 2."""
    sizes = {"x": 4, "y": 2}
    found = []
    for entries in itertools.product(ENTRIES, repeat=len(shape)):
        names = [n for entry in entries for n in entry]
        even = all(s % np.prod([sizes[n] for n in e], dtype=int) == 0 for s, e in zip(shape, entries, strict=True))
        if len(set(names)) == len(names) and even:
            found.append(P(*[e or None for e in entries]))
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_layouts(mesh, name):
    function, shapes = PROGRAMS[name]
    arguments = [values(*s) for s in shapes]
    program = hl.jit(hl.value_and_grad(function, (0, 1)))
    value, gradients = program(*arguments)
    for _ in range(4):
        specs = [layouts(s)[RANDOM.integers(len(layouts(s)))] for s in shapes]
        split = [hl.device_put(a, NamedSharding(mesh, s)) for a, s in zip(arguments, specs, strict=True)]
        found, others = program(*split)
        np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-4, err_msg=str(specs))
        for a, b in zip(others, gradients, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3, err_msg=str(specs))

"""Families of programs whose work should grow as they do: `FAMILIES[name](count)` is (function, arguments).

Of `FAMILIES`, those in `SMOOTH` can be differentiated by their first argument.
"""

from __future__ import annotations

import functools

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom import lax

X = np.linspace(0.1, 1.9, 64, dtype=np.float32)
FAMILIES = {}
SMOOTH = set()


def family(smooth: bool = True):
    def kept(make):
        FAMILIES[make.__name__] = make
        if smooth:
            SMOOTH.add(make.__name__)
        return make

    return kept


@family()
def chain(count):
    def function(x):
        for k in range(count):
            x = hnp.sin(x) if k % 2 else x * 1.5 + 1
        return x

    return function, (X,)


@family()
def wide_sum(count):
    return lambda x: sum(hnp.sin(x + k) for k in range(count)), (X,)


@family()
def many_functions(count):
    names = (hnp.sin, hnp.exp, hnp.tanh, hnp.cos, hnp.arctan, hnp.log1p)
    return lambda x: sum(names[k % 6](x * (k + 1) / count) for k in range(count)), (X,)


@family()
def concatenation(count):
    return lambda x: hnp.concatenate([x[k % 60 : k % 60 + 2] * (k + 1) for k in range(count)]), (X,)


@family()
def stack(count):
    return lambda x: hnp.stack([x * (k + 1) for k in range(count)], axis=1), (X,)


@family()
def stack_of_scalars(count):
    return lambda x: hnp.stack([x[k % 64] * (k + 1) for k in range(count)]), (X,)


@family()
def selects(count):
    def function(x):
        for k in range(count):
            x = hnp.where(x > k / count, x, x * 0.5)
        return x

    return function, (X,)


@family()
def many_outputs(count):
    return lambda x: [hnp.tanh(x * (k + 1)) for k in range(count)], (X,)


@family()
def many_arguments(count):
    return lambda *xs: functools.reduce(lambda a, b: a * 0.5 + b, xs), tuple(X + k for k in range(count))


@family()
def pytrees(count):
    tree = {f"layer{k}": {"w": X + k, "b": X - k} for k in range(count)}
    return lambda tree: {name: {"w": v["w"] * 0.9, "b": v["b"] - v["w"]} for name, v in tree.items()}, (tree,)


@family()
def constants(count):
    values = [np.random.default_rng(k).random(64, dtype=np.float32) for k in range(count)]

    def function(x):
        for value in values:
            x = x * 0.5 + value
        return x

    return function, (X,)


@family()
def nested_calls(count):
    def level(depth):
        if not depth:
            return hnp.sin
        inner = hl.jit(level(depth - 1))
        return lambda x: inner(x) * 0.9 + x

    return level(count // 8), (X,)


@family()
def calls(count):
    inner = hl.jit(lambda x, k: hnp.tanh(x) * k)

    def function(x):
        for k in range(count):
            x = inner(x, k + 1.0)
        return x

    return function, (X,)


@family()
def updates(count):
    def function(x):
        for k in range(count):
            x = x.at[k % 64].set(x[(k + 1) % 64] * 2 + k)
        return x

    return function, (X,)


@family()
def windows_updated(count):
    def function(x):
        for k in range(count):
            x = lax.dynamic_update_slice(x, x[k % 50 : k % 50 + 4] + 1, (k % 60,))
        return x

    return function, (X,)


@family()
def slices(count):
    return lambda x: sum(hnp.sum(x[k % 30 : k % 30 + 30]) for k in range(count)), (X,)


@family()
def gathers(count):
    return lambda x: sum(x[np.arange(8) * 7 % (k % 60 + 1)] for k in range(count)), (X,)


@family()
def reductions(count):
    return lambda x: [hnp.sum(x * k) / hnp.max(x + k) for k in range(count)], (X,)


@family()
def dots(count):
    def function(x):
        for k in range(count):
            x = hnp.tanh(hnp.reshape(x, (8, 8)) @ hnp.reshape(x, (8, 8)) * 0.1).reshape(64) + k
        return x

    return function, (X,)


@family()
def reshapes_and_transposes(count):
    def function(x):
        for k in range(count):
            x = hnp.reshape(hnp.transpose(hnp.reshape(x, (8, 8))) + k, (64,))
        return x

    return function, (X,)


@family()
def loops(count):
    def function(x):
        for k in range(count // 4):
            x = lax.fori_loop(0, 3, lambda i, x, k=k: x * 0.5 + k, x)
        return x

    return function, (X,)


@family()
def nested_loops(count):
    def level(depth):
        if not depth:
            return lambda i, x: x * 0.5 + i
        return lambda i, x: lax.fori_loop(0, 2, level(depth - 1), x) + i

    return lambda x: lax.fori_loop(0, 1, level(count // 16), x), (X,)


@family()
def branches(count):
    def function(x):
        for k in range(count // 4):
            x = lax.cond(x[0] > k, lambda x: x * 0.5, lambda x: x + 1, x)
        return x

    return function, (X,)


@family()
def long_state(count):
    def function(x):
        state = tuple(x + k for k in range(count))
        return lax.fori_loop(0, 3, lambda i, s: (*s[1:], s[0] * 0.5), state)

    return function, (X,)


@family()
def updates_in_a_loop(count):
    def step(i, x):
        for k in range(count):
            x = x.at[(i + k) % 64].add(x[(i + 2 * k) % 64] * 0.1)
        return x

    return lambda x: lax.fori_loop(0, 3, step, x), (X,)


@family(smooth=False)
def sort_keys(count):
    return hnp.lexsort, (np.random.default_rng(0).integers(0, 3, (count, 16)).astype(np.float32),)


@family(smooth=False)
def integers(count):
    def function(x):
        for k in range(count):
            x = (x * 3 + k) ^ (x >> 2)
        return x

    return function, (np.arange(64, dtype=np.int32),)


def program(name: str, count: int, gradient: bool = False):
    """(function, arguments) of a family, or of the gradient of the sum of its results."""
    function, arguments = FAMILIES[name](count)
    if not gradient:
        return function, arguments

    def total(*arguments):
        return sum(hnp.sum(leaf) for leaf in hl.tree.leaves(function(*arguments)))

    return hl.grad(total), arguments

"""Transforms, loops and branches inside of each other: random functions of three numbers, by numerical derivatives.

A function is drawn as a tree of transforms. Its rules of its own are right ones, so every derivative is that of the
function: `jvp` against central differences, `vjp` against `jvp`, `vmap` against a loop, `jit` against no jit.
"""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import DifferentiationError

N = 3
PARTS: dict = {}  # name -> (f, g, c, a, i) -> a function of a vector; f and g are such functions


def part(function):
    PARTS[function.__name__.strip("_")] = function
    return function


def leaves(r: random.Random):
    a, b, k = r.uniform(-1, 1), r.uniform(-1, 1), r.randrange(N)
    matrix = np.array([[r.uniform(-0.6, 0.6) for _ in range(N)] for _ in range(N)])
    v = np.array([r.uniform(-1, 1) for _ in range(N)])
    return r.choice(
        [
            lambda x: hnp.sin(x * a + b),
            lambda x: x * x * 0.3 + a,
            lambda x: hnp.tanh(x[::-1]) * b,
            lambda x: matrix @ x,
            lambda x: hnp.cumsum(x) * 0.4,
            lambda x: hnp.where(x > a, x * b, hnp.sin(x) * b),
            lambda x: hl.nn.softmax(x) * 2.0,
            lambda x: x.at[k].set(hnp.sin(x[(k + 1) % N]) * a),
            lambda x: x.at[hnp.array([0, k, 0])].add(x * b),
            lambda x: hnp.sort(x) * v,
            lambda x: x[hnp.argsort(x)] * a + x,
            lambda x: lax.dynamic_index_in_dim(x, (x.sum() > a).astype("int32"), 0, keepdims=False) * v,
            lambda x: lax.dynamic_update_slice(x, hnp.cos(x[:1]), ((x.sum() > 0).astype("int32"),)),
            lambda x: hnp.linalg.solve(hnp.eye(N) * 2 + hnp.outer(x, x) * 0.1, x),
            lambda x: hnp.prod(x * 0.5 + 1) * v,
            lambda x: hnp.asarray(v) * 1.0,
            lambda x: x / (1.5 + hnp.cos(x)),
        ]
    )


@part
def compose(f, g, c, a, i):
    return lambda x: f(g(x))


@part
def jit(f, g, c, a, i):
    return lambda x: hl.jit(lambda y: f(y) + 0.1 * x * y)(g(x))


@part
def grad(f, g, c, a, i):
    return lambda x: hl.grad(lambda y: (f(y) * c).sum())(x)


@part
def value_and_grad(f, g, c, a, i):
    def apply(x):
        value, gradient = hl.value_and_grad(lambda y: (f(y) * c * x).sum())(x)
        return value * 0.1 + gradient

    return apply


@part
def jvp(f, g, c, a, i):
    return lambda x: hl.jvp(f, (x,), (g(x),))[1]


@part
def vjp(f, g, c, a, i):
    return lambda x: hl.vjp(f, x)[1](g(x))[0]


@part
def linearize(f, g, c, a, i):
    return lambda x: hl.linearize(lambda y: f(y) * x, x)[1](g(x))


@part
def jacfwd(f, g, c, a, i):
    return lambda x: hl.jacfwd(f)(x) @ c


@part
def jacrev(f, g, c, a, i):
    return lambda x: c @ hl.jacrev(f)(x)


@part
def hessian(f, g, c, a, i):
    return lambda x: hl.hessian(lambda y: (f(y) * c).sum())(x) @ x


@part
def vmap(f, g, c, a, i):
    return lambda x: hl.vmap(lambda y: f(y) + x * y)(hnp.stack([x, x * a, g(x)])).mean(0)


@part
def vmap_of_some(f, g, c, a, i):
    return lambda x: hl.vmap(lambda u, v: f(u * v), in_axes=(None, 0))(x, hnp.stack([x, x + a, g(x)])).sum(0) * 0.3


@part
def vmap_of_trees(f, g, c, a, i):
    def apply(x):
        function = lambda d: {"a": f(d["u"]), "b": d["v"] * 2}  # noqa: E731
        mapped = hl.vmap(function, in_axes=({"u": -1, "v": None},), out_axes={"a": 1, "b": None})
        found = mapped({"u": hnp.stack([x, x * a], -1), "v": x})
        return found["a"].sum(1) + found["b"]

    return apply


@part
def named_axis(f, g, c, a, i):
    def centred(y):
        z = f(y)
        return z - lax.pmean(z, "i") * a + lax.axis_index("i") * 0.1

    return lambda x: hl.vmap(centred, axis_name="i")(hnp.stack([x, x * a, g(x)]))[i]


@part
def checkpoint(f, g, c, a, i):
    names = ["dots_saveable", "nothing_saveable", "everything_saveable"]
    return lambda x: hl.checkpoint(f, policy=getattr(hl.checkpoint_policies, names[i]))(g(x))


@part
def custom_jvp(f, g, c, a, i):
    own = hl.custom_jvp(f)
    own.defjvp(lambda primals, tangents: hl.jvp(f, primals, tangents))
    return lambda x: own(g(x))


@part
def custom_vjp(f, g, c, a, i):
    own = hl.custom_vjp(f)
    own.defvjp(lambda x: hl.vjp(f, x), lambda pull, cotangent: pull(cotangent))
    return lambda x: own(g(x))


@part
def scan(f, g, c, a, i):
    def apply(x):
        def step(carry, y):
            return {"c": f(carry["c"]) * 0.5 + y, "k": carry["k"] + 1}, carry["c"] * y * carry["k"] + x

        last, ys = lax.scan(step, {"c": x, "k": 0}, hnp.stack([x, g(x), x * a]), reverse=bool(i))
        return last["c"] + ys.sum(0) * 0.2

    return apply


@part
def cond(f, g, c, a, i):
    return lambda x: lax.cond(x.sum() > a, lambda y: f(y) * x, g, x)


@part
def switch(f, g, c, a, i):
    return lambda x: lax.switch((x > 0).sum().astype("int32") - 1, [f, g, lambda y: y * x * a], x)


@part
def bounded_while_loop(f, g, c, a, i):
    def apply(x):
        step = lambda s: (s[0] + 1, f(s[1]) * 0.6 + x)  # noqa: E731
        return lax.while_loop(lambda s: (s[0] <= i) & (s[1].sum() < 50.0), step, (0, g(x)), max_steps=4)[1]

    return apply


@part
def while_loop(f, g, c, a, i):
    return lambda x: lax.while_loop(lambda s: s[0] <= i, lambda s: (s[0] + 1, f(s[1]) * 0.6 + x), (0, g(x)))[1]


@part
def fori_loop(f, g, c, a, i):
    return lambda x: lax.fori_loop(0, 3, lambda k, s: f(s) * 0.5 + k * x, g(x))


@part
def traced_fori_loop(f, g, c, a, i):
    return lambda x: lax.fori_loop(0, (x > 0).sum(), lambda k, s: f(s) * 0.5 + k * x, g(x))


@part
def map(f, g, c, a, i):
    return lambda x: lax.map(lambda y: f(y) + x, hnp.stack([x, g(x)])).sum(0) * 0.5


@part
def associative_scan(f, g, c, a, i):
    def affine(p, q):
        return p[0] * q[0], p[1] * q[0] + q[1]

    def apply(x):
        pairs = hnp.stack([f(x), x, g(x), x * a, x]), hnp.stack([x, x, x * a, x, g(x)])
        return lax.associative_scan(affine, pairs, reverse=bool(i))[1][0 if i else -1]

    return apply


@part
def linear_transpose(f, g, c, a, i):
    return lambda x: hl.linear_transpose(lambda y: y * g(x) + y[::-1], x)(f(x))[0]


def draw(r: random.Random, depth: int, first: str | None = None):
    """(name, function): a tree of parts; `first` is the one at its root."""
    if not depth:
        return "", leaves(r)
    name = first or r.choice(list(PARTS))
    below = [draw(r, depth - 1) if r.random() < 0.8 else ("", leaves(r)) for _ in range(2)]
    c, a, i = np.array([r.uniform(-1, 1) for _ in range(N)]), r.uniform(-0.8, 0.8), r.randrange(3)
    return f"{name}({below[0][0]}, {below[1][0]})", PARTS[name](below[0][1], below[1][1], c, a, i)


X = np.array([0.31, -0.72, 1.13])


def check(function, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tangent, cotangent = hnp.asarray(rng.normal(size=(2, N)))
    x = hnp.asarray(X)
    value = np.asarray(function(x))
    assert value.dtype == np.float64 and value.shape == (N,)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9 * (1 + np.abs(value).max()))
    close(hl.jit(function)(x), value)
    points = hnp.stack([x, x * 0.9 + 0.05])
    close(hl.vmap(function)(points), np.stack([function(p) for p in points]))

    try:
        same, forward = hl.jvp(function, (x,), (tangent,))
    except DifferentiationError as error:
        assert "custom_vjp" in error.asked  # it has reverse mode only
        forward = None
    step = 1e-6
    moved = [np.asarray(function(hnp.asarray(X + s * step * np.asarray(tangent)))) for s in (1, -1)]
    numerical = (moved[0] - moved[1]) / (2 * step)
    scale = 1 + np.abs(numerical).max()
    if forward is not None:
        close(same, value)
        np.testing.assert_allclose(forward / scale, numerical / scale, rtol=0, atol=1e-5)
    try:
        gradient = np.asarray(hl.vjp(function, x)[1](cotangent)[0])
    except DifferentiationError as error:
        assert "while_loop" in error.asked and "max_steps" in error.repair  # it has forward mode only
        return
    pair = float((gradient * np.asarray(tangent)).sum())
    assert pair == pytest.approx(float((np.asarray(cotangent) * numerical).sum()), abs=1e-5 * scale)
    mapped = hl.vmap(hl.grad(lambda x: (function(x) * cotangent).sum()))(points)
    np.testing.assert_allclose(mapped[0], gradient, rtol=1e-7, atol=1e-8 * scale)


def drawn(name: str, depth: int, first: str | None = None):
    """The first function of this name that has a value: not forward mode of a custom_vjp function, for example."""
    for attempt in range(20):
        _, function = draw(random.Random(f"{name}{attempt}"), depth, first)
        try:
            function(hnp.asarray(X))
        except DifferentiationError as error:
            assert "custom_vjp" in error.asked or "while_loop" in error.asked
            continue
        return function


@pytest.mark.parametrize("name", PARTS)
def test_each_around_another(name):
    check(drawn(name, 2, name), 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_three_deep(seed):
    check(drawn(str(seed), 3), seed)

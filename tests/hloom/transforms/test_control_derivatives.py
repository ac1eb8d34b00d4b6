"""Loops and branches of hloom.lax under every transform, against JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import DifferentiationError
from hloom.transforms.remat import saved_residuals

rng = np.random.default_rng(0)
X = rng.normal(size=5).astype(np.float32)
W = (rng.normal(size=(5, 5)) * 0.4).astype(np.float32)


def scan_loss(np_, lax):
    def f(x, w):
        def body(carry, k):
            h, total = carry
            h = np_.tanh(w @ h + k)
            return (h, total + h.sum()), {"y": h[0], "i": k}

        (h, total), ys = lax.scan(body, (x, 0.0), np_.arange(3, dtype="float32"))
        return total + (ys["y"] ** 2).sum() + h.max()

    return f


def fori_loss(np_, lax):
    return lambda x, w: lax.fori_loop(0, 4, lambda i, h: np_.sin(w @ h) + i * h, x).sum()


def bounded_while(np_, lax):
    """A loop whose number of steps depends on the data: JAX has forward mode only, so it is unrolled for it."""

    def f(x, w):
        def body(h):
            return np_.tanh(w @ h) * 0.9

        if lax is hl.lax:
            return lax.while_loop(lambda h: (h * h).sum() > 0.05, body, x, max_steps=30).sum()
        h = x
        for _ in range(30):
            h = np_.where((h * h).sum() > 0.05, body(h), h)
        return h.sum()

    return f


def cond_loss(np_, lax):
    def f(x, w):
        y = lax.cond(x[0] > 0, lambda x: np_.sin(x) * w[0], lambda x: x * x, x)
        return lax.switch(2, [lambda y: y, lambda y: y * 2, lambda y: np_.exp(-y * y)], y).sum()

    return f


def map_loss(np_, lax):
    return lambda x, w: lax.map(lambda row: np_.tanh(row * x).sum(), w).prod()


def associative(np_, lax):
    def f(x, w):
        def combine(a, b):
            return a[0] * b[0], b[0] * a[1] + b[1]

        first, second = lax.associative_scan(combine, (np_.sin(w), w * x))
        return (first + second).sum()

    return f


def scan_in_cond_in_scan(np_, lax):
    def f(x, w):
        def inner(h, _):
            return np_.sin(w @ h), h.sum()

        def body(h, k):
            h, s = lax.cond(
                k > 0.5, lambda h: lax.scan(inner, h, None, length=2), lambda h: (h * 2, np_.zeros(2, "float32")), h
            )
            return h, s

        h, ys = lax.scan(body, x, np_.array([0.0, 1.0, 2.0], dtype="float32"))
        return h.sum() + (ys * ys).sum()

    return f


LOSSES = [scan_loss, fori_loss, bounded_while, cond_loss, map_loss, associative, scan_in_cond_in_scan]


def close(found, expected, tolerance=2e-4):
    found, expected = hl.tree.leaves(found), jax.tree.leaves(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("make", LOSSES, ids=lambda f: f.__name__)
def test_against_jax(make):
    f, g = make(hnp, hl.lax), make(jnp, jax.lax)
    both = (0, 1)
    xs = np.stack([X, -X, X * 0.5])
    total = lambda m, f: lambda x, w: m.vmap(f, (0, None))(x, w).sum()  # noqa: E731

    @jax.jit  # one program of all references, which JAX compiles once
    def references(x, w, xs):
        return (
            g(x, w),
            jax.grad(g, both)(x, w),
            jax.jvp(g, (x, w), (x, w)),
            jax.vmap(g, (0, None))(xs, w),
            jax.vmap(jax.grad(g, both), (0, None))(xs, w),
            jax.grad(total(jax, g), both)(xs, w),
        )

    value, gradient, tangent, values, gradients, gradient_of_total = references(X, W, xs)
    close(f(X, W), value)
    close(hl.grad(f, both)(X, W), gradient)
    close(hl.jit(hl.grad(f, both))(X, W), gradient)
    close(hl.jit(lambda x: hl.jvp(f, (x, W), (X, W)))(X), tangent)
    close(hl.jit(hl.vmap(f, (0, None)))(xs, W), values)
    close(hl.jit(hl.vmap(hl.grad(f, both), (0, None)))(xs, W), gradients)
    close(hl.jit(hl.grad(total(hl, f), both))(xs, W), gradient_of_total)
    close(hl.jit(hl.grad(hl.checkpoint(f), both))(X, W), gradient)


@pytest.mark.parametrize("make", LOSSES, ids=lambda f: f.__name__)
def test_second_derivatives_against_jax(make):
    f, g = make(hnp, hl.lax), make(jnp, jax.lax)
    expected = jax.jit(jax.hessian(g))(X, W)
    close(hl.jit(hl.hessian(f))(X, W), expected, 1e-3)
    close(hl.jit(hl.jacrev(hl.jacrev(f)))(X, W), expected, 1e-3)


def test_loops_inside_of_checkpoints_and_rules():
    def layer(h, w):
        return hnp.tanh(w @ h)

    def loss(w, step):
        return hl.lax.scan(lambda h, _: (step(h, w), None), hnp.asarray(X), None, length=4)[0].sum()

    expected = hl.grad(lambda w: loss(w, layer))(W)
    close(hl.jit(hl.grad(lambda w: loss(w, hl.checkpoint(layer))))(W), expected)
    close(hl.jit(hl.grad(lambda w: loss(w, hl.checkpoint(layer, prevent_cse=False))))(W), expected)
    ruled = hl.custom_vjp(layer)
    ruled.defvjp(lambda h, w: (layer(h, w), (h, w)), lambda r, g: tuple(2 * c for c in hl.vjp(layer, *r)[1](g)))
    found = hl.jit(
        hl.grad(lambda w: hl.lax.scan(lambda h, _: (ruled(h, w), None), hnp.asarray(X), None, length=1)[0].sum())
    )(W)
    close(found, 2 * np.asarray(hl.grad(lambda w: layer(X, w).sum())(W)))
    many = hl.jit(hl.vmap(hl.grad(lambda w: loss(w, ruled))))(np.stack([W, W * 0.5]))
    close(many[0], hl.grad(lambda w: loss(w, ruled))(W))


def test_a_checkpointed_step_keeps_the_carry_only():
    def loss(step):
        def f(x, w):
            return hl.lax.scan(lambda h, _: (step(h, w), None), x, None, length=4)[0].sum()

        return [shape.dims for shape, _ in saved_residuals(f, X, W)]

    def layer(h, w):
        return hnp.sin(hnp.exp(hnp.tanh(w @ h)))

    assert loss(layer).count((4, 5)) > 1
    assert loss(hl.checkpoint(layer)).count((4, 5)) == 1


def test_reverse_mode_of_an_unbounded_loop():
    with pytest.raises(DifferentiationError) as caught:
        hl.grad(lambda x: hl.lax.while_loop(lambda h: h.sum() > 1, lambda h: h * 0.5, x).sum())(X)
    assert "while_loop" in caught.value.asked and "max_steps=" in caught.value.repair
    assert caught.value.source.file == __file__

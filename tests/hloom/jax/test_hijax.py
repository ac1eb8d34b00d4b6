"""Functions with rules as classes: each rule is the one that its transformation uses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import DifferentiationError, TreeError
from hloom.jax.experimental.hijax import (
    NullAccum,
    RefAccum,
    ShapedArray,
    ValAccum,
    VJPHiPrimitive,
    Zero,
    instantiate_zeros,
)

X = hnp.linspace(0.2, 1.0, 4)


class Product(VJPHiPrimitive):
    """x * y, whose backward pass is 10 times too large and whose forward pass is 100 times."""

    def __init__(self, x, y, scale=10.0):
        self.in_avals, self.out_aval, self.params = (x, y), x, {"scale": scale}
        super().__init__()

    def expand(self, x, y):
        return x * y

    def vjp_fwd(self, nzs_in, x, y):
        assert nzs_in == (True, True)
        return self(x, y), (x, y)

    def vjp_bwd_retval(self, residuals, g):
        x, y = residuals
        return self.scale * g * y, None

    def jvp(self, primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        return self(x, y), 100 * (dx * y + x * dy)


def product(x, y):
    return Product(hl.typeof(x), hl.typeof(y))(x, y)


def test_each_mode_has_its_rule():
    assert float(product(2.0, 3.0)) == 6.0
    assert hl.grad(product, (0, 1))(2.0, 3.0) == (30.0, 0.0)
    assert [float(v) for v in hl.jvp(product, (2.0, 3.0), (1.0, 1.0))] == [6.0, 500.0]
    np.testing.assert_allclose(hl.jit(hl.vmap(hl.grad(product)))(X, X), 10 * X)
    np.testing.assert_allclose(hl.vmap(hl.grad(product), (0, None))(X, 2.0), np.full(4, 20.0))
    np.testing.assert_allclose(hl.jit(hl.vmap(product, (0, None)))(X, 2.0), 2 * X)


class Sine(VJPHiPrimitive):
    def __init__(self, x):
        self.in_avals, self.out_aval, self.params = (x,), x, {}
        super().__init__()

    def expand(self, x):
        return hnp.sin(x)

    def lin(self, nzs_in, x):
        return self(x), hnp.cos(x)

    def linearized(self, cosine, dx):
        return cosine * dx


def sine(x):
    return Sine(hl.typeof(x))(x)


def test_a_linearization_is_enough_for_all_derivatives():
    np.testing.assert_allclose(hl.vmap(hl.grad(sine))(X), np.cos(X), rtol=1e-6)
    np.testing.assert_allclose(hl.vmap(hl.grad(hl.grad(sine)))(X), -np.sin(X), rtol=1e-6)
    value, tangent = hl.linearize(sine, 0.5)
    assert float(value) == pytest.approx(np.sin(0.5)) and float(tangent(2.0)) == pytest.approx(2 * np.cos(0.5))
    np.testing.assert_allclose(hl.jit(hl.jacfwd(sine))(X), np.diag(np.cos(X)), rtol=1e-6, atol=1e-7)


class Square(VJPHiPrimitive):
    def __init__(self, x):
        self.in_avals, self.out_aval, self.params = (x,), x, {}
        super().__init__()

    def expand(self, x):
        return x**2

    def vjp_fwd(self, nzs_in, x):
        return self(x), x

    def vjp_bwd(self, x, g, total):
        assert isinstance(total, ValAccum) and total.aval.shape == ()
        total.accum(x * g)
        total.accum(x * g)


def square(x):
    return Square(hl.typeof(x))(x)


class Halved(Square):
    """Without what goes back."""

    vjp_bwd = None


def test_a_forward_rule_needs_one_that_goes_back():
    with pytest.raises(DifferentiationError, match="reverse-mode derivative of Halved"):
        hl.grad(lambda x: Halved(hl.typeof(x))(x))(3.0)


def test_accumulators_loops_and_branches():
    def total(xs):
        def step(c, x):
            return lax.cond(x > 0.5, lambda: c + square(x), lambda: c), None

        return lax.scan(step, 0.0, xs)[0]

    np.testing.assert_allclose(hl.grad(total)(X), np.where(np.asarray(X) > 0.5, 2 * np.asarray(X), 0), rtol=1e-6)
    with pytest.raises(DifferentiationError, match="Square"):
        hl.jvp(square, (1.0,), (1.0,))
    ref = hl.new_ref(hnp.zeros(2))
    RefAccum(hl.typeof(X), ref).accum(hnp.ones(2))
    NullAccum(None).accum(1.0)
    np.testing.assert_array_equal(ref[...], [1, 1])


class Apply(VJPHiPrimitive):
    """A matrix on a vector, with another way for many vectors."""

    def __init__(self, a, x):
        self.in_avals, self.out_aval, self.params = (a, x), ShapedArray(a.shape[:1], a.dtype), {}
        super().__init__()

    def expand(self, a, x):
        return a @ x

    def batch(self, axis, args, dims):
        assert dims == (None, 0) and axis.size == 5
        return 2 * args[0] @ args[1].T, 1


def test_vmap_by_a_rule():
    a, xs = hnp.arange(6.0).reshape(2, 3), hnp.arange(15.0).reshape(5, 3)
    np.testing.assert_allclose(
        hl.vmap(lambda x: Apply(hl.typeof(a), hl.typeof(x))(a, x))(xs), 2 * np.asarray(xs) @ np.asarray(a).T
    )


class Point(NamedTuple):
    x: object
    y: object


class Polar(VJPHiPrimitive):
    def __init__(self, point):
        self.in_avals, self.out_aval, self.params = (point,), {"r2": point.x}, {}
        super().__init__()

    def expand(self, point):
        return {"r2": point.x**2 + point.y**2}


def test_trees_zeros_and_mistakes():
    point = Point(3.0, 4.0)
    polar = Polar(hl.tree.map(hl.typeof, point))
    assert float(hl.jit(polar)(point)["r2"]) == 25.0
    with pytest.raises(DifferentiationError, match="no rule"):
        hl.grad(lambda p: polar(p)["r2"])(point)
    with pytest.raises(TreeError, match="in_avals"):
        polar(3.0)
    assert instantiate_zeros(Zero(hl.typeof(X))).shape == (4,) and instantiate_zeros(2.0) == 2.0


def test_symbolic_zeros_tell_what_is_differentiated_by():
    seen = []

    @hl.custom_vjp
    def f(x, y):
        return x * y

    def fwd(x, y):
        seen.append((x.perturbed, y.perturbed))
        return x.value * y.value, (x.value, y.value)

    f.defvjp(fwd, lambda r, g: (10 * g * r[1], 10 * g * r[0]), symbolic_zeros=True)
    assert float(hl.grad(f)(2.0, 3.0)) == 30.0 and seen == [(True, False)]
    assert float(hl.jit(hl.grad(f, 1))(2.0, 3.0)) == 20.0 and seen[1:] == [(False, True)]
    np.testing.assert_array_equal(hl.vmap(hl.grad(f), (0, None))(hnp.arange(3.0), 2.0), [20, 20, 20])
    assert set(seen[2:]) == {(True, False)}
    assert float(hl.grad(lambda x: lax.scan(lambda c, y: (f(c, y), None), x, hnp.ones(3))[0])(1.0)) == 1000.0


def test_numbers_among_residuals_may_decide():
    @hl.custom_vjp
    def f(x):
        return x

    def bwd(residuals, g):
        squared, x, (count, _) = residuals
        return ((g * x * count) if squared else g,)

    f.defvjp(lambda x: (x, (True, x, (3, None))), bwd)
    assert float(hl.grad(f)(2.0)) == 6.0 and float(hl.jit(hl.grad(f))(2.0)) == 6.0
    np.testing.assert_array_equal(hl.vmap(hl.grad(f))(hnp.arange(3.0)), [0, 3, 6])

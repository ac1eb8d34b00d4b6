"""custom_jvp, custom_vjp, custom_gradient, closure_convert: values, nesting with all transforms, errors."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, DifferentiationError, DTypeError, HloomError, ShapeError, TreeError
from hloom.tracing.custom_rules import SymbolicZero

X = np.linspace(-1.0, 2.0, 5).astype(np.float32)


def scaled():
    """x ** 2 with the derivative 10 x, so that it shows where the rule is used."""

    @hl.custom_jvp
    def f(x):
        return x * x

    @f.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x), 10.0 * x * t

    return f


def reversed_square():
    """The same with a rule for reverse mode."""

    @hl.custom_vjp
    def f(x):
        return x * x

    f.defvjp(lambda x: (f(x), x), lambda x, g: (10.0 * x * g,))
    return f


@pytest.mark.parametrize("make", [scaled, reversed_square])
def test_in_every_nesting(make):
    f = make()
    np.testing.assert_allclose(f(X), X * X)
    np.testing.assert_allclose(hl.jit(f)(X), X * X)
    for g in (
        lambda x: hl.grad(lambda x: f(x).sum())(x),
        hl.vmap(hl.grad(f)),
        hl.grad(lambda x: hl.vmap(f)(x).sum()),
        hl.grad(lambda x: hl.jit(f)(x).sum()),
        lambda x: hl.vmap(hl.vmap(hl.grad(f)))(x[:, None])[:, 0],
        lambda x: hl.vjp(f, x)[1](hnp.ones(5))[0],
        hl.vmap(hl.grad(lambda x: hl.vmap(f)(hnp.stack([x, x])).sum() / 2)),
    ):
        np.testing.assert_allclose(g(X), 10 * X, rtol=1e-6)
        np.testing.assert_allclose(hl.jit(g)(X), 10 * X, rtol=1e-6)
    # The rule is differentiated where its result is: the second derivative is 10.
    for g in (hl.vmap(hl.grad(hl.grad(f))), hl.jit(hl.vmap(hl.grad(hl.jit(hl.grad(f)))))):
        np.testing.assert_allclose(g(X), np.full(5, 10.0), rtol=1e-6)
    np.testing.assert_allclose(hl.grad(lambda x: f(x) * x)(2.0), 10 * 2 * 2 + 4.0)


def test_jvp_uses_the_rule_and_its_value():
    @hl.custom_jvp
    def f(x):
        return hnp.sin(x)

    f.defjvp(lambda primals, tangents: (hnp.sin(primals[0]) + 1.0, 3.0 * tangents[0]))
    value, tangent = hl.jvp(f, (X,), (np.ones(5, np.float32),))
    np.testing.assert_allclose(value, np.sin(X) + 1, rtol=1e-6)
    np.testing.assert_allclose(tangent, np.full(5, 3.0))
    value, linear = hl.linearize(f, X)
    np.testing.assert_allclose(linear(X), 3 * X, rtol=1e-6)


def test_a_rule_may_hand_its_argument_through():
    """Gradient reversal: the result is the argument itself, with another tangent."""

    @hl.custom_vjp
    def turn(x):
        return x

    turn.defvjp(lambda x: (x, None), lambda _, g: (-g,))
    np.testing.assert_allclose(hl.grad(lambda x: (turn(x) * x).sum())(X), X - X)
    np.testing.assert_allclose(hl.grad(lambda x: (turn(turn(x))).sum())(X), np.ones(5))

    @hl.custom_jvp
    def twice(x, y):
        return x, x, y

    twice.defjvp(lambda p, t: ((p[0], p[0], p[1]), (t[0] * 2, t[0] * 3, t[1])))
    a, b, c = hl.jvp(twice, (1.0, 2.0), (1.0, 1.0))[1]
    assert (float(a), float(b), float(c)) == (2.0, 3.0, 1.0)


def test_trees_several_arguments_and_integers():
    @hl.custom_vjp
    def f(d, n, pair):
        return {"y": d["x"] * n, "z": pair[0] + pair[1]}

    def fwd(d, n, pair):
        return f(d, n, pair), (d["x"], n)

    def bwd(residuals, g):
        x, n = residuals
        return {"x": g["y"] * n * 2}, None, (g["z"], None)

    f.defvjp(fwd, bwd)

    def loss(d, pair):
        out = f(d, 3, pair)
        return out["y"].sum() + out["z"].sum()

    gd, gp = hl.grad(loss, argnums=(0, 1))({"x": X}, (X, X))
    np.testing.assert_allclose(gd["x"], np.full(5, 6.0))
    np.testing.assert_allclose(gp[0], np.ones(5))
    np.testing.assert_allclose(gp[1], np.zeros(5))


def test_arguments_that_are_not_differentiated_by():
    f = hl.custom_jvp(lambda g, x: g(x), nondiff_argnums=(0,))
    f.defjvp(lambda g, primals, tangents: (g(primals[0]), 5.0 * tangents[0]))
    np.testing.assert_allclose(hl.grad(lambda x: f(hnp.sin, x))(2.0), 5.0)

    h = hl.custom_vjp(lambda x, n, y: x**n * y, nondiff_argnums=(1,))
    h.defvjp(lambda x, n, y: (x**n * y, (x, y)), lambda n, residuals, g: (g * n, g * residuals[0]))
    assert hl.grad(lambda x, y: h(x, 3, y), argnums=(0, 1))(2.0, 4.0) == (3.0, 2.0)
    assert float(hl.grad(lambda x: h(x, n=3, y=4.0))(2.0)) == 3.0  # by name


def test_defjvps():
    f = hl.custom_jvp(lambda x, y: hnp.sin(x) * y)
    f.defjvps(lambda t, z, x, y: t * 7.0, None)
    assert [float(g) for g in hl.grad(f, argnums=(0, 1))(1.0, 2.0)] == [7.0, 0.0]
    f.defjvps(lambda t, z, x, y: hnp.cos(x) * t * y, lambda t, z, x, y: hnp.sin(x) * t)
    found = hl.grad(f, argnums=(0, 1))(1.0, 2.0)
    np.testing.assert_allclose(found, [2 * np.cos(1.0), np.sin(1.0)], rtol=1e-6)
    with pytest.raises(ArgumentError):
        hl.custom_jvp(lambda n, x: x, nondiff_argnums=(0,)).defjvps(None)


def test_symbolic_zeros():
    seen = []
    f = hl.custom_jvp(lambda x, y: x * y)

    def rule(primals, tangents):
        seen.append([type(t) is SymbolicZero for t in tangents])
        x, y = primals
        tx, ty = tangents
        return x * y, hnp.zeros(()) if type(tx) is SymbolicZero else tx * y

    f.defjvp(rule, symbolic_zeros=True)
    assert float(hl.grad(lambda x: f(x, 3.0))(2.0)) == 3.0
    assert seen == [[False, True]]


def test_values_from_outside():
    """Functions and rules may use traced values of the functions around them, but have no derivative by them."""

    def loss(x, w):
        w = hl.lax.stop_gradient(w)
        f = hl.custom_jvp(lambda x: x * w)
        f.defjvp(lambda p, t: (p[0] * w, t[0] * w * 2))
        g = hl.custom_vjp(lambda x: x + w)
        g.defvjp(lambda x: (x + w, x), lambda x, ct: (ct * w * x,))
        return f(g(x))

    expected = 2.0 * 3.0 * 3.0 * 5.0
    for grad in (
        hl.grad(loss),
        hl.jit(hl.grad(loss)),
        lambda x, w: hl.vmap(hl.grad(loss))(hnp.full(2, x), hnp.full(2, w))[0],
    ):
        np.testing.assert_allclose(grad(5.0, 3.0), expected)

    def by_outside(w):
        f = hl.custom_jvp(lambda x: x * w)
        f.defjvp(lambda p, t: (p[0] * w, t[0] * w))
        return f(2.0)

    fails(DifferentiationError, lambda: hl.grad(by_outside)(3.0), "captured value", "pass the value as an argument")


def test_an_operand_that_is_the_same_for_all_problems_gets_the_sum():
    f = hl.custom_vjp(lambda w, x: w * x)
    f.defvjp(lambda w, x: (w * x, (w, x)), lambda r, g: (g * r[1], g * r[0]))
    found = hl.grad(lambda w: hl.vmap(f, (None, 0))(w, X).sum())(2.0)
    np.testing.assert_allclose(found, X.sum(), rtol=1e-6)
    np.testing.assert_allclose(hl.vmap(hl.grad(f), (None, 0))(2.0, X), X)
    g = hl.custom_jvp(lambda w, x: w * x)
    g.defjvp(lambda p, t: (p[0] * p[1], t[0] * p[1] + p[0] * t[1]))
    np.testing.assert_allclose(hl.grad(lambda w: hl.vmap(g, (None, 0))(w, X).sum())(2.0), X.sum(), rtol=1e-6)


def test_methods_and_names():
    class Model:
        def __init__(self, w):
            self.w = w

        @hl.custom_vjp
        def apply(self, x):
            """Doc."""
            return x * self.w

        apply.defvjp(lambda self, x: (x * self.w, None), lambda r, g: (None, g * 7))

    assert Model.apply.__name__ == "apply" and Model.apply.__doc__ == "Doc."
    hl.tree.register(Model, lambda m: ((m.w,), None), lambda _, children: Model(*children))
    assert float(hl.grad(Model(3.0).apply)(2.0)) == 7.0


def test_custom_gradient():
    @hl.custom_gradient
    def f(x):
        return x**2, lambda g: (g * x,)

    assert float(hl.grad(f)(3.0)) == 3.0
    np.testing.assert_allclose(hl.jit(hl.vmap(hl.grad(f)))(X), X)

    @hl.custom_gradient
    def g(x, y):
        return x * y, lambda ct: (y, x)

    assert hl.grad(g, argnums=(0, 1))(3.0, 4.0) == (4.0, 3.0)
    assert float(g(3.0, 4.0)) == 12.0


def test_closure_convert():
    def loss(w, x):
        converted, values = hl.closure_convert(lambda x: hnp.sin(x * w), x)
        assert len(values) == 1

        f = hl.custom_vjp(lambda x, *values: converted(x, *values), nondiff_argnums=())
        f.defvjp(lambda x, *v: (converted(x, *v), (x, v)), lambda r, g: (g, *(g * r[0] for _ in r[1])))
        return f(x, *values)

    np.testing.assert_allclose(hl.grad(loss)(2.0, 3.0), 3.0)
    converted, values = hl.closure_convert(lambda x: x * 2, X)
    assert values == []
    np.testing.assert_allclose(converted(X), 2 * X)


def test_python_control_flow_on_values_outside_of_jit():
    f = hl.custom_vjp(lambda x: hnp.sin(x) if x > 0 else hnp.cos(x))
    f.defvjp(lambda x: (f(x), x), lambda x, g: (2 * g,) if x > 0 else (3 * g,))
    assert float(hl.grad(f)(1.0)) == 2.0 and float(hl.grad(f)(-1.0)) == 3.0
    h = hl.custom_jvp(lambda x: x)
    h.defjvp(lambda p, t: (p[0], t[0] * 4 if p[0] > 0 else t[0] * 5))
    assert float(hl.grad(h)(1.0)) == 4.0 and float(hl.grad(h)(-1.0)) == 5.0


def test_xla_accepts_the_text_of_calls_with_rules():
    """The rules are not written: what is printed are calls."""
    f, g = scaled(), reversed_square()
    h = hl.checkpoint(lambda x: hnp.sin(x).sum())

    def loss(x):
        return (f(x) * g(x)).sum() + h(x) + hl.lax.fori_loop(0, 3, lambda i, x: f(x) * 0.1, x).sum()

    pytest.importorskip("jaxlib._hlo")
    from jaxlib import _hlo

    for function in (loss, hl.grad(loss), lambda x: hl.vmap(hl.grad(loss))(x[None])):
        text = hl.jit(function).lower(X).as_text()
        _hlo.hlo_module_from_text(text)
        _hlo.hlo_module_from_text(hl.jit(function).lower(X).compile().as_text())
        assert "rule" not in text
    assert "to_apply" in hl.jit(loss).lower(X).as_text()


# --- errors -------------------------------------------------------------------------------------------------------


def fails(error, function, *parts):
    with pytest.raises(error) as caught:
        function()
    assert isinstance(caught.value, HloomError)
    text = str(caught.value)
    for part in (*parts, "found:", "repair:", "where:"):
        assert part in text, text


def test_a_function_without_a_rule():
    fails(DifferentiationError, lambda: hl.custom_jvp(lambda x: x)(1.0), "it has no rule yet", "defjvp")
    fails(DifferentiationError, lambda: hl.custom_vjp(lambda x: x)(1.0), "it has no rule yet", "defvjp")
    fails(ArgumentError, lambda: hl.custom_jvp(3), "custom_jvp takes a function")
    fails(ArgumentError, lambda: hl.custom_vjp(None), "custom_vjp takes a function")


def test_forward_mode_of_custom_vjp():
    f = reversed_square()
    fails(DifferentiationError, lambda: hl.jvp(f, (1.0,), (1.0,)), "custom_vjp function 'f'", "reverse mode only")
    fails(DifferentiationError, lambda: hl.jit(lambda x: hl.jvp(f, (x,), (x,)))(1.0), "custom_vjp function 'f'")


def wrong_jvp(result, tangent):
    f = hl.custom_jvp(lambda x: (x, x * 2))
    f.defjvp(lambda p, t: (result(p[0]), tangent(t[0])))
    return lambda: hl.jvp(f, (X,), (X,))


def test_wrong_results_of_jvp_rules():
    both = lambda v: (v, v)  # noqa: E731
    fails(TreeError, wrong_jvp(lambda x: x, both), "the result of the rule of the custom_jvp function '<lambda>'")
    fails(TreeError, wrong_jvp(both, lambda t: [t, t]), "the tangent of the rule")
    fails(ShapeError, wrong_jvp(both, lambda t: (t, t[:2])), "tangent 1", "f32[5]", "f32[2]")
    fails(DTypeError, wrong_jvp(both, lambda t: (t.astype("f64"), t)), "tangent 0", "f32", "f64[5]")
    fails(ShapeError, wrong_jvp(lambda x: (x, x.sum()), both), "result 1", "f32[]")
    f = hl.custom_jvp(lambda x: x)
    f.defjvp(lambda p, t: p[0])
    fails(TreeError, lambda: hl.grad(f)(1.0), "returns a pair")


def wrong_vjp(bwd, fwd=None):
    def f(weights, points):
        return weights * points

    g = hl.custom_vjp(f)
    g.defvjp(fwd or (lambda w, p: (w * p, None)), bwd)
    return lambda: hl.grad(lambda w, p: g(w, p).sum(), argnums=(0, 1))(X, X)


def test_wrong_results_of_vjp_rules():
    fails(TreeError, wrong_vjp(lambda r, g: g), "each of the 2 differentiated")
    fails(TreeError, wrong_vjp(lambda r, g: (g,)), "1 values")
    fails(ShapeError, wrong_vjp(lambda r, g: (g, g[:2])), "the cotangent of 'points'", "f32[5]", "f32[2]")
    fails(DTypeError, wrong_vjp(lambda r, g: (g.astype("f16"), g)), "the cotangent of 'weights'", "f32", "f16[5]")
    fails(TreeError, wrong_vjp(lambda r, g: ((g, g), g)), "the cotangent of 'weights'")
    fails(TreeError, wrong_vjp(lambda r, g: (g, g), fwd=lambda w, p: w * p), "returns a pair")
    fails(ShapeError, wrong_vjp(lambda r, g: (g, g), fwd=lambda w, p: (w[:1], None)), "result 0", "f32[1]")


def test_symbolic_zeros_of_custom_vjp():
    from hloom.transforms.custom_derivatives import CustomVJPPrimal, custom_vjp_primal_tree_values, zero_from_primal

    seen = []

    @hl.custom_vjp
    def f(pair, n):
        return pair["x"] * 2 + n

    def forward(pair, n):
        seen.append((type(pair["x"]), pair["x"].perturbed, n.perturbed))
        values = custom_vjp_primal_tree_values(pair)
        return f(values, n.value), values["x"]

    def backward(x, g):
        return {"x": g * x}, zero_from_primal(x.astype("s32"), symbolic_zeros=True)

    f.defvjp(forward, backward, symbolic_zeros=True)
    gradient = hl.grad(lambda x: f({"x": x}, hnp.int32(1)).sum())(hnp.asarray([3.0, 4.0]))
    assert gradient.tolist() == [3, 4] and seen == [(CustomVJPPrimal, True, False)]
    assert zero_from_primal(hnp.ones(3)).tolist() == [0, 0, 0]


def test_a_number_takes_the_cotangent_of_the_arrays_beside_it():
    """2.5 alone is an f32; beside an array of f64 the rule's cotangent for it is one of f64."""
    product = hl.custom_vjp(lambda x, y: hnp.sin(x) * y)
    product.defvjp(lambda x, y: (hnp.sin(x) * y, (x, y)), lambda r, g: (g * hnp.cos(r[0]) * r[1], g * hnp.sin(r[0])))
    x = hnp.asarray(np.array([0.3, 0.7]))
    by_x, by_y = hl.grad(lambda x, y: hl.vmap(product, in_axes=(0, None))(x, y).sum(), argnums=(0, 1))(x, 2.5)
    np.testing.assert_allclose(by_x, np.cos(x) * 2.5, rtol=1e-15)
    np.testing.assert_allclose(by_y, np.sin(x).sum(), rtol=1e-6)
    assert by_x.dtype == np.float64


def test_a_value_that_overflows_single_precision_has_its_derivative():
    @hl.custom_jvp
    def log1pexp(x):
        return hnp.log(1 + hnp.exp(x))

    @log1pexp.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return log1pexp(x), t * (1 - 1 / (1 + hnp.exp(x)))

    for call in (hl.grad(log1pexp), hl.jit(hl.grad(log1pexp)), hl.grad(hl.jit(log1pexp))):
        assert call(100.0) == 1.0
        assert call(hnp.asarray(100.0)) == 1.0
        np.testing.assert_allclose(call(1.0), 1 / (1 + np.exp(-1.0)), rtol=1e-6)
    value, slope = hl.jvp(log1pexp, (100.0,), (2.0,))
    assert float(value) in (100.0, np.inf) and float(slope) == 2.0  # single precision overflows in between

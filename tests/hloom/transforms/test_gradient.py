"""grad, value_and_grad, vjp, jvp, linearize: JAX's behaviour, control flow, nesting, trees, errors."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax, tree
from hloom.arrays.array import Array
from hloom.errors import (
    ArgumentError,
    DifferentiationError,
    DTypeError,
    LeakedTracerError,
    ShapeError,
    TracerBoolError,
    TreeError,
)
from hloom.ir.interpret import evaluate
from hloom.ir.ops.programs.structure import CUSTOM_CALLS
from hloom.tracing.trace import bind, trace_function


def line_of_next():
    """The number of the line after the caller's."""
    return inspect.currentframe().f_back.f_lineno + 1


def staged(function):
    """`function` as inside jit: traced without values, then interpreted. Needs no kernels."""

    def run(*args):
        leaves, structure = tree.flatten((args, {}))
        leaves = [hnp.asarray(leaf) for leaf in leaves]
        traced = trace_function(function, leaves, structure, "staged")
        assert not traced.captures
        result = evaluate(traced.computation, [np.asarray(leaf) for leaf in leaves])
        result = result if isinstance(result, tuple) else (result,)
        return tree.unflatten(traced.out_tree, [Array(np.ascontiguousarray(r).reshape(r.shape)) for r in result])

    return run


def f32(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def close(a, b, tolerance=2e-5):
    left, right = tree.leaves(a), tree.leaves(b)
    assert len(left) == len(right)
    for x, y in zip(left, right, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        scale = 1 + np.max(np.abs(y), initial=0, where=np.isfinite(y))
        np.testing.assert_allclose(x / scale, y / scale, rtol=0, atol=tolerance)


# --- against jax --------------------------------------------------------------------------------------------------

# Scalar functions of float32 arrays, written for hloom.numpy and jax.numpy alike: (function, shapes of the arguments).
SCALAR_FUNCTIONS = {
    "square": (lambda m, x: m.sum(x * x), (5,)),
    "mean-tanh": (lambda m, x: m.mean(m.tanh(x) ** 2), (3, 4)),
    "variance": (lambda m, x: m.var(x, axis=0).sum(), (6, 3)),
    "layer": (lambda m, x, w, b: m.sum(m.tanh(x @ w + b)), (4, 3), (3, 2), (2,)),
    "batched-matmul": (lambda m, x, y: m.sum(m.sin(m.matmul(x, y))), (2, 3, 4), (2, 4, 5)),
    "einsum": (lambda m, x, y: m.sum(m.einsum("bij,bkj->bik", x, y) ** 2), (2, 3, 4), (2, 5, 4)),
    "log-sum-exp": (lambda m, x: m.sum(m.log(m.sum(m.exp(x), axis=1))), (3, 5)),
    "maximum": (lambda m, x, y: m.sum(m.maximum(x, y) * x), (7,), (7,)),
    "max": (lambda m, x: m.sum(m.max(x, axis=1) ** 2), (3, 5)),
    "max-of-ties": (lambda m, x: m.max(x * 0.0 + 1.0, axis=0), (4,)),
    "min": (lambda m, x: m.min(x), (3, 5)),
    "prod": (lambda m, x: m.prod(x), (5,)),
    "prod-rows": (lambda m, x: m.sum(m.prod(x, axis=0)), (4, 3)),
    "where": (lambda m, x, y: m.sum(m.where(x > 0, x * y, m.exp(y))), (6,), (6,)),
    "abs-at-zero": (lambda m, x: m.sum(m.abs(x * 0.0)), (3,)),
    "power": (lambda m, x: m.sum(m.abs(x) ** 1.7), (4,)),
    "broadcast": (lambda m, x, y: m.sum((x + y) ** 2 * y), (3, 1), (4,)),
    "reshape": (lambda m, x: m.sum(m.reshape(x.T, (2, 6)) * m.arange(6.0)), (3, 4)),
    "concatenate": (lambda m, x, y: m.sum(m.concatenate([x, y, x]) ** 3), (3,), (2,)),
    "slices": (lambda m, x: m.sum(x[1:, ::2] * x[:-1, 1::2]), (4, 6)),
    "flip": (lambda m, x: m.sum(m.flip(x) * x), (5,)),
    "divide": (lambda m, x, y: m.sum(x / (1 + y * y)), (5,), (5,)),
    "norm": (lambda m, x: m.sqrt(m.sum(x * x)), (5,)),
    "arctan2": (lambda m, x, y: m.sum(m.arctan2(x, y)), (5,), (5,)),
    "complex": (lambda m, x, y: m.sum(m.abs((x + 1j * y) * (y - 2j * x)) ** 2), (5,), (5,)),
    "rounding": (lambda m, x: m.sum(m.floor(x) * x + m.sign(x)), (5,)),
    "no-dependence": (lambda m, x: m.asarray(3.0, m.float32), (5,)),
    "integers-inside": (lambda m, x: m.sum(x * (x > 0).astype(m.int32)), (5,)),
}  # fmt: skip


@pytest.fixture(scope="module")
def jax():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(False):  # as hloom: Python numbers alone have 32 bits
        yield jax


@pytest.fixture(scope="module")
def jnp(jax):
    import jax.numpy

    return jax.numpy


def scalar_function(name):
    function, *shapes = SCALAR_FUNCTIONS[name]
    return function, [f32(*shape, seed=k) for k, shape in enumerate(shapes)]


@pytest.mark.parametrize("name", SCALAR_FUNCTIONS)
def test_value_and_grad_as_jax(jax, jnp, name):
    function, arguments = scalar_function(name)
    argnums = tuple(range(len(arguments)))
    ours = lambda *a: function(hnp, *a)  # noqa: E731
    expected = jax.value_and_grad(lambda *a: function(jnp, *a), argnums)(*arguments)
    close(hl.value_and_grad(ours, argnums)(*arguments), expected)
    close(staged(hl.value_and_grad(ours, argnums))(*arguments), expected)
    close(hl.value_and_grad(hl.jit(ours), argnums)(*arguments), expected)


@pytest.mark.parametrize("name", SCALAR_FUNCTIONS)
def test_jvp_and_linearize_as_jax(jax, jnp, name):
    function, arguments = scalar_function(name)
    tangents = [f32(*a.shape, seed=9) for a in arguments]
    ours = lambda *a: function(hnp, *a)  # noqa: E731
    expected = jax.jvp(lambda *a: function(jnp, *a), arguments, tangents)
    close(hl.jvp(ours, arguments, tangents), expected)
    close(staged(lambda a, t: hl.jvp(ours, a, t))(arguments, tangents), expected)
    value, derivative = hl.linearize(ours, *arguments)
    close((value, derivative(*tangents)), expected)


@pytest.mark.parametrize(
    "name", ["layer", "log-sum-exp", "max", "prod", "where", "complex", "slices", "norm", "einsum"]
)
def test_second_derivatives_as_jax(jax, jnp, name):
    """Hessian times vector, in each of the four ways to nest forward and reverse mode."""
    function, arguments = scalar_function(name)
    tangents = [f32(*a.shape, seed=9) for a in arguments]
    argnums = tuple(range(len(arguments)))

    def pairing(m, a, b):
        return sum(m.sum(x * y) for x, y in zip(a, b, strict=True))

    theirs = jax.grad(lambda *a: function(jnp, *a), argnums)
    expected = jax.grad(lambda *a: pairing(jnp, theirs(*a), tangents), argnums)(*arguments)
    ours = lambda *a: function(hnp, *a)  # noqa: E731
    gradient = hl.grad(ours, argnums)
    close(hl.grad(lambda *a: pairing(hnp, gradient(*a), tangents), argnums)(*arguments), expected, 1e-4)
    close(hl.jvp(gradient, arguments, tangents)[1], expected, 1e-4)
    close(hl.grad(lambda *a: hl.jvp(ours, a, tangents)[1], argnums)(*arguments), expected, 1e-4)
    close(
        staged(lambda *a: hl.jvp(hl.jit(gradient), a, tuple(map(hnp.asarray, tangents)))[1])(*arguments), expected, 1e-4
    )


def test_vjp_as_jax(jax, jnp):
    x, w = f32(4, 3), f32(3, 2)

    def function(m, x, w):
        y = m.tanh(x @ w)
        return {"y": y, "both": (y.sum(), x)}

    cotangent = {"y": f32(4, 2), "both": (np.float32(2.0), f32(4, 3, seed=1))}
    value, pull = jax.vjp(lambda *a: function(jnp, *a), x, w)
    expected = pull(tree.map(jnp.asarray, cotangent))
    found, ours = hl.vjp(lambda *a: function(hnp, *a), x, w)
    close(found, value)
    close(ours(cotangent), expected)
    close(ours(cotangent), expected)  # more than once
    close(staged(lambda c: ours(c))(cotangent), expected)  # and in a later trace
    close(staged(lambda x, w, c: hl.vjp(lambda *a: function(hnp, *a), x, w)[1](c))(x, w, cotangent), expected)


def test_complex_conventions_as_jax(jax, jnp):
    z = (f32(4) + 1j * f32(4, seed=1)).astype(np.complex64)
    close(hl.grad(lambda z: hnp.sum(hnp.abs(z) ** 2))(z), jax.grad(lambda z: jnp.sum(jnp.abs(z) ** 2))(z))
    close(hl.grad(lambda z: hnp.real(z * z).sum())(z), jax.grad(lambda z: jnp.real(z * z).sum())(z))
    ours = hl.grad(lambda z: hnp.sum(hnp.sin(z)), holomorphic=True)(z)
    close(ours, jax.grad(lambda z: jnp.sum(jnp.sin(z)), holomorphic=True)(z))
    close(ours, np.cos(z))


# --- what gradients are given and give ----------------------------------------------------------------------------


def test_python_numbers():
    assert float(hl.grad(lambda x: x**3)(2.0)) == 12.0
    value, gradient = hl.value_and_grad(lambda x: x * x)(3.0)
    assert (float(value), float(gradient)) == (9.0, 6.0)
    assert gradient.dtype == np.float32 and gradient.weak


def test_dtype_and_weakness_follow_the_argument():
    for dtype in ("f16", "bf16", "f32", "f64"):
        x = hnp.ones(3, dtype)
        gradient = hl.grad(lambda x: hnp.sum(x * x).astype("f32"))(x)
        assert gradient.dtype == x.dtype and not gradient.weak
        np.testing.assert_array_equal(gradient.astype("f32"), [2, 2, 2])


def test_argnums():
    def function(x, y, z):
        return x * y + 2.0 * z

    assert float(hl.grad(function, 1)(3.0, 4.0, 5.0)) == 3.0
    assert float(hl.grad(function, -1)(3.0, 4.0, 5.0)) == 2.0
    gradients = hl.grad(function, argnums=(2, 0))(3.0, 4.0, 5.0)
    assert isinstance(gradients, tuple) and [float(g) for g in gradients] == [2.0, 4.0]
    (single,) = hl.grad(function, argnums=(0,))(3.0, 4.0, 5.0)
    assert float(single) == 4.0


def test_trees():
    parameters = {"layers": [(f32(2, 3), f32(3)), (f32(3, 1), f32(1))], "scale": np.float32(2.0), "nothing": None}

    def loss(p, x):
        for w, b in p["layers"]:
            x = hnp.tanh(x @ w + b)
        return hnp.sum(x) * p["scale"]

    gradients = hl.grad(loss)(parameters, f32(5, 2))
    assert tree.structure(gradients) == tree.structure(parameters)
    for g, p in zip(tree.leaves(gradients), tree.leaves(parameters), strict=True):
        assert g.shape == p.shape and g.dtype == p.dtype
    step = 1e-2
    moved = [float(loss({**parameters, "scale": np.float32(2.0 + sign * step)}, f32(5, 2))) for sign in (1, -1)]
    assert float(gradients["scale"]) == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-3)


def test_other_arguments_are_passed_as_they_are():
    seen = []

    def function(x, mode, n, *, scale):
        seen.append((mode, n, scale))
        return hnp.sum(x) * n * scale if mode == "sum" else None

    gradient = hl.grad(function)(f32(2), "sum", 3, scale=2.0)
    np.testing.assert_array_equal(gradient, [6, 6])
    assert seen == [("sum", 3, 2.0)]


def test_has_aux():
    def function(x):
        return hnp.sum(x * x), {"double": x * 2, "count": 3}

    x = f32(3)
    gradient, aux = hl.grad(function, has_aux=True)(x)
    np.testing.assert_array_equal(gradient, 2 * x)
    np.testing.assert_array_equal(aux["double"], 2 * x)
    assert int(aux["count"]) == 3
    (value, aux), gradient = hl.value_and_grad(function, has_aux=True)(x)
    np.testing.assert_array_equal(aux["double"], 2 * x)
    np.testing.assert_array_equal(gradient, 2 * x)
    value, pull, aux = hl.vjp(function, x, has_aux=True)
    np.testing.assert_array_equal(pull(2.0)[0], 4 * x)
    np.testing.assert_array_equal(aux["double"], 2 * x)
    value, tangent, aux = hl.jvp(function, (x,), (x,), has_aux=True)
    np.testing.assert_allclose(tangent, 2 * np.sum(x * x), rtol=1e-6)
    np.testing.assert_array_equal(aux["double"], 2 * x)


def test_aux_of_an_inner_gradient_is_differentiated():
    def inner(x):
        return x * x, x * x * x

    assert float(hl.grad(lambda x: hl.grad(inner, has_aux=True)(x)[1])(2.0)) == 12.0


def test_integers():
    def function(x, n):
        return hnp.sum(x * n)

    x, n = f32(3), np.array([1, 2, 3], np.int32)
    by_x, by_n = hl.grad(function, argnums=(0, 1), allow_int=True)(x, n)
    np.testing.assert_array_equal(by_x, [1, 2, 3])
    assert by_n.dtype == np.bool_ and by_n.shape == (3,) and not np.any(by_n)
    value, pull = hl.vjp(lambda x, n: (x * n, n + 1), x, n)
    by_x, by_n = pull((np.ones(3, np.float32), np.zeros(3, bool)))
    np.testing.assert_array_equal(by_x, [1, 2, 3])
    assert by_n.dtype == np.bool_
    value, tangent = hl.jvp(lambda x, n: (x * n, n + 1), (x, n), (np.ones(3, np.float32), np.zeros(3, bool)))
    np.testing.assert_array_equal(tangent[0], [1, 2, 3])
    assert tangent[1].dtype == np.bool_


def test_decorator_keeps_the_name():
    @hl.grad
    def loss(x):
        """Its text."""
        return x * x

    assert loss.__name__ == "loss" and loss.__doc__ == "Its text."
    assert float(loss(4.0)) == 8.0


def test_callable_objects_and_methods():
    class Model:
        scale = 3.0

        def __call__(self, x):
            return self.scale * x * x

        def loss(self, x):
            return self.scale * x

    assert float(hl.grad(Model())(2.0)) == 12.0
    assert float(hl.grad(Model().loss)(2.0)) == 3.0


def test_stop_gradient():
    assert float(hl.grad(lambda x: x * lax.stop_gradient(x))(3.0)) == 3.0
    assert float(hl.grad(lambda x: lax.stop_gradient(x) + 0.0)(3.0)) == 0.0
    assert float(hl.jvp(lambda x: x * lax.stop_gradient(x), (3.0,), (1.0,))[1]) == 3.0


# --- control flow and values --------------------------------------------------------------------------------------


def test_python_control_flow_on_values():
    def function(x):
        total = x
        while total < 10:
            total = total * 2 if total > 0 else total + 5
        return total

    assert float(hl.grad(function)(3.0)) == 4.0
    assert float(hl.grad(function)(-4.0)) == 16.0
    assert float(hl.grad(hl.grad(lambda x: x**3 if x > 0 else x))(2.0)) == 12.0
    assert float(hl.jvp(function, (3.0,), (1.0,))[1]) == 4.0


def test_numbers_can_be_read_while_differentiating():
    seen = []

    def function(x):
        y = x * 2
        seen.append((float(y), int(y), f"{float(y):.1f}", np.asarray(y).item(), math.floor(float(y))))
        return y * int(y)

    assert float(hl.grad(function)(1.75)) == 6.0
    assert seen == [(3.5, 3, "3.5", 3.5, 3)]
    hl.grad(hl.grad(function))(1.75)
    assert len(seen) == 2


def test_control_flow_within_a_trace_without_values_is_an_error():
    with pytest.raises(TracerBoolError) as error:
        line = line_of_next()
        staged(hl.grad(lambda x: x if x > 0 else -x))(2.0)
    assert error.value.source.line == line


def test_values_pass_through_inlined_gradients():
    """The inner gradient's result decides in the outer function, which is differentiated too."""

    def outer(x):
        slope = hl.grad(lambda y: y * y * y)(x)
        return slope * 2 if slope > 10 else slope

    assert float(hl.grad(outer)(3.0)) == 36.0
    assert float(hl.grad(outer)(1.0)) == 6.0

    def with_vjp(x):
        value, pull = hl.vjp(lambda y: (y * y, y), x)
        (g,) = pull((x, 1.0))
        return g if g > 0 and value[0] > 0 else -g

    assert float(hl.grad(with_vjp)(2.0)) == 8.0


def test_nothing_is_computed_twice(monkeypatch):
    calls = []

    def solver(a):
        calls.append(1)
        return a * 2

    monkeypatch.setitem(CUSTOM_CALLS, "counted", solver)

    def function(x):
        y = bind("custom-call", lax.stop_gradient(x), shape=x._shape, custom_call_target="counted")
        return hnp.sum(x * y)

    value, gradient = hl.value_and_grad(function)(f32(3))
    assert len(calls) == 1
    np.testing.assert_array_equal(gradient, 2 * f32(3))
    value, pull = hl.vjp(function, f32(3))
    pull(1.0)
    pull(2.0)
    assert len(calls) == 2


# --- nesting and closures -----------------------------------------------------------------------------------------


def test_higher_orders():
    function = hnp.sin
    for expected in (math.cos, lambda x: -math.sin(x), lambda x: -math.cos(x), math.sin):
        function = hl.grad(function)
        assert float(function(0.7)) == pytest.approx(expected(0.7), rel=1e-5)
        assert float(staged(function)(0.7)) == pytest.approx(expected(0.7), rel=1e-5)


def test_closures_over_outer_tracers():
    """d/dx of x^2 y at y = x, where x is captured by the inner function."""

    def outer(x):
        return hl.grad(lambda y: x * x * y * y)(x)

    assert float(outer(3.0)) == 54.0
    assert float(hl.grad(outer)(3.0)) == 54.0
    assert float(hl.grad(lambda x: hl.grad(outer)(x))(3.0)) == 36.0
    assert float(staged(hl.grad(outer))(3.0)) == 54.0


def test_perturbations_are_not_confused():
    """Siskind and Pearlmutter's example: 1, and not 2."""
    assert float(hl.grad(lambda x: x * hl.grad(lambda y: x + y)(1.0))(1.0)) == 1.0
    inner = lambda x: hl.jvp(lambda y: x + y, (1.0,), (1.0,))[1]  # noqa: E731
    assert float(hl.jvp(lambda x: x * inner(x), (1.0,), (1.0,))[1]) == 1.0


def test_closures_two_levels_up_and_with_jit_between():
    def function(x):
        def middle(y):
            @hl.jit
            def innermost(z):
                return x * y * z * z

            return hl.grad(innermost)(y)

        return hl.grad(middle)(x)

    # innermost' = 2 x y z at z = y: 2 x y^2; its derivative 4 x y at y = x: 4 x^2.
    assert float(function(3.0)) == 36.0
    assert float(hl.grad(function)(3.0)) == 24.0
    assert float(staged(hl.grad(function))(3.0)) == 24.0


def test_vjp_function_used_within_an_outer_trace():
    _, pull = hl.vjp(lambda x: x * x, 3.0)
    assert float(hl.grad(lambda c: pull(c)[0])(1.0)) == 6.0


def test_jit_functions_within():
    square = hl.jit(lambda x: (x * x, x + 1.0))
    assert float(hl.grad(lambda x: square(x)[0] * square(square(x)[1])[0])(2.0)) == 2 * 2 * 9 + 4 * 2 * 3


def test_escaped_tracers_are_reported():
    kept = []

    def function(x):
        kept.append(x * 2)
        return x

    hl.grad(function)(1.0)
    with pytest.raises(LeakedTracerError):
        kept[0] + 1.0


# --- errors -------------------------------------------------------------------------------------------------------


def raised(error_class, function, *words):
    with pytest.raises(error_class) as error:
        function()
    for word in words:
        assert word in str(error.value), str(error.value)
    assert error.value.repair
    return error.value


def loss(x):
    return hnp.sum(x)


def test_errors_of_grad_name_argument_line_and_repair():
    line = line_of_next()
    call = lambda: hl.grad(loss)(np.arange(3))  # noqa: E731
    error = raised(DifferentiationError, call, "'x'", "s64[3]", "allow_int", "grad of 'loss'")
    assert error.source.line == line and error.source.file == __file__
    raised(DifferentiationError, lambda: hl.grad(lambda a, b: a * b, 1)(1.0, 2), "'b'", "s32[]")
    raised(DifferentiationError, lambda: hl.grad(lambda p: p["w"])({"w": True}), "'p_w'", "pred[]")
    raised(DifferentiationError, lambda: hl.grad(lambda x: x * 2)(f32(3)), "f32[3]", "hl.vjp")
    raised(DifferentiationError, lambda: hl.grad(lambda x: (x, x))(1.0), "has_aux")
    raised(DifferentiationError, lambda: hl.grad(lambda x: None)(1.0), "scalar")
    raised(DifferentiationError, lambda: hl.grad(lambda x: (x > 0).astype("s32"))(1.0), "s32")
    raised(DifferentiationError, lambda: hl.value_and_grad(lambda x: x * 1j)(1.0), "c64", "value_and_grad")
    raised(DifferentiationError, lambda: hl.grad(loss, holomorphic=True)(f32(3)), "complex", "'x'")
    raised(DifferentiationError, lambda: hl.grad(hnp.abs, holomorphic=True)(1j), "f32")


def test_errors_of_arguments():
    raised(ArgumentError, lambda: hl.grad(loss, 1)(f32(3)), "argument 1", "1 positional argument")
    raised(ArgumentError, lambda: hl.grad(loss)(x=f32(3)), "argument 0", "0 positional arguments")
    raised(ArgumentError, lambda: hl.grad(lambda x, y: x, (0, -2))(1.0, 2.0), "twice")
    raised(ArgumentError, lambda: hl.grad(loss, "x"), "'x'")
    raised(ArgumentError, lambda: hl.grad(3), "int")
    raised(ArgumentError, lambda: hl.grad(loss)("text"), "str")
    raised(TreeError, lambda: hl.grad(loss, has_aux=True)(f32(3)), "(result, aux)")
    raised(ArgumentError, lambda: hl.jvp(loss, f32(3), f32(3)), "primals", "(x,)")


def test_errors_of_tangents_and_cotangents():
    x = f32(3)
    raised(TreeError, lambda: hl.jvp(loss, (x,), ([x],)), "tangents")
    raised(ShapeError, lambda: hl.jvp(loss, (x,), (f32(2),)), "f32[3]", "f32[2]")
    raised(DTypeError, lambda: hl.jvp(loss, (x,), (x.astype(np.float64),)), "f32", "f64[3]")
    raised(DTypeError, lambda: hl.jvp(lambda n: n, (np.arange(3),), (np.arange(3),)), "pred", "no tangents")
    _, pull = hl.vjp(lambda x: {"a": x, "b": x}, x)
    raised(TreeError, lambda: pull({"a": x}), "cotangent")
    line = line_of_next()
    error = raised(ShapeError, lambda: pull({"a": x, "b": f32(4)}), "f32[4]")
    assert error.source.line == line
    raised(DTypeError, lambda: pull({"a": x, "b": x.astype(np.float16)}), "f16")
    _, linear = hl.linearize(loss, x)
    raised(ShapeError, lambda: linear(f32(2)), "f32[2]")


def test_missing_derivatives_name_the_line_of_the_op():
    def function(x):
        y = x * 2
        return hnp.sum(bind("custom-call", y, shape=y._shape, custom_call_target="identity"))

    line = function.__code__.co_firstlineno + 2
    CUSTOM_CALLS["identity"] = lambda a: a
    try:
        error = raised(DifferentiationError, lambda: hl.grad(function)(f32(3)), "custom-call")
    finally:
        del CUSTOM_CALLS["identity"]
    assert (error.source.file, error.source.line) == (__file__, line)


def test_pullbacks_and_linear_functions_pass_through_jit():
    """They are trees whose leaves are the values that they hold."""
    x = np.arange(3.0, dtype=np.float32)
    value, back = hl.jit(lambda x: hl.vjp(lambda x: hnp.sin(x) * x, x))(x)
    expected = np.cos(x) * x + np.sin(x)
    np.testing.assert_allclose(back(np.ones(3, np.float32))[0], expected, rtol=1e-6)
    np.testing.assert_allclose(hl.jit(lambda f, g: f(g)[0])(back, np.ones(3, np.float32)), expected, rtol=1e-6)
    _, push = hl.jit(lambda x: hl.linearize(lambda x: hnp.sin(x) * x, x))(x)
    np.testing.assert_allclose(push(np.ones(3, np.float32)), expected, rtol=1e-6)
    leaves, structure = hl.tree.flatten(back)
    assert leaves and np.allclose(hl.tree.unflatten(structure, leaves)(np.ones(3, np.float32))[0], expected)

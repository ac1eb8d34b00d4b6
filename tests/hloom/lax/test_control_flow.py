"""Loops and branches of the front end: in jit and outside, in derivatives and vmap, against JAX; errors."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ArgumentError, DTypeError, ShapeError, TreeError
from hloom.ir.interpret import run as interpret

jax = pytest.importorskip("jax")
jnp = jax.numpy


def same(function, *arguments, rtol=1e-5):
    """`function(lib, np)(*arguments)` agrees: hloom eager and in jit, JAX; and the interpreter on the graph."""
    ours, theirs = function(hl, hnp), function(jax, jnp)
    want = jax.tree.leaves(theirs(*arguments))
    jitted = hl.jit(ours)
    for found in (ours(*arguments), jitted(*arguments)):
        got = hl.tree.leaves(found)
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype and np.shape(a) == np.shape(b)
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=1e-6)
    module = jitted.lower(*arguments).module
    result = interpret(module, [np.asarray(hnp.asarray(a)) for a in hl.tree.leaves(arguments)])
    for a, b in zip(result if isinstance(result, tuple) else (result,), want, strict=True):
        np.testing.assert_allclose(a, np.asarray(b), rtol=rtol, atol=1e-6)


X = np.array([1.0, -2.0, 3.0, 0.5], np.float32)
M = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


# --- while and fori -----------------------------------------------------------------------------------------------


def test_while_loop():
    same(lambda l, n: lambda x: l.lax.while_loop(lambda v: v < 100, lambda v: v * 2, x), np.float32(1.5))
    same(lambda l, n: lambda x: l.lax.while_loop(lambda v: v[0].sum() < 50, lambda v: (v[0] * 2, v[1] + 1), (x, 0)), M)


def test_while_loop_of_no_steps():
    same(lambda l, n: lambda x: l.lax.while_loop(lambda v: (v < 0).any() & False, lambda v: v + 1, x), X)


def test_closures_of_condition_and_body():
    def function(l, n):
        def run(x, limit, step):
            return l.lax.while_loop(lambda v: v.sum() < limit, lambda v: v + step * n.abs(x), x)

        return run

    same(function, X, np.float32(40), np.float32(0.5))


def test_a_bounded_while_loop():
    found = lax.while_loop(lambda x: x < 100.0, lambda x: x * 2.0, 1.0, max_steps=50)
    assert float(found) == 128
    assert float(lax.while_loop(lambda x: x < 100.0, lambda x: x * 2.0, 1.0, max_steps=3)) == 8
    gradient = hl.grad(lambda x: lax.while_loop(lambda v: v < 100.0, lambda v: v * 2.0, x, max_steps=20))(3.0)
    assert float(gradient) == 64


def test_fori_loop():
    same(lambda l, n: lambda x: l.lax.fori_loop(0, 5, lambda i, v: v * 0.5 + i, x), X)
    same(lambda l, n: lambda x, k: l.lax.fori_loop(1, k, lambda i, v: v + i * x, x * 0), X, np.int32(6))
    same(lambda l, n: lambda x: l.lax.fori_loop(5, 2, lambda i, v: v + 1, x), X)
    same(lambda l, n: lambda x: l.lax.fori_loop(-2, 3, lambda i, v: {"a": v["a"] + i}, {"a": x}), X)
    same(lambda l, n: lambda x: l.lax.fori_loop(0, 4, lambda i, v: v.at[i].set(v[i - 1] + v[i]), x), X)


# --- scan ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [1, 2, True])
def test_scan(reverse, unroll):
    def function(l, n):
        def step(carry, x):
            total, count = carry
            return (total + x.sum(), count + 1), {"mean": total / (count + 1), "row": x * 2}

        return lambda m: l.lax.scan(step, (0.0, 0), m, reverse=reverse, unroll=unroll)

    same(function, M)


def test_scan_without_xs_and_without_ys():
    same(lambda l, n: lambda x: l.lax.scan(lambda c, _: (c * 0.5 + 1, None), x, None, length=7), X)
    same(lambda l, n: lambda x: l.lax.scan(lambda c, _: (c, c + 1), x, length=3), X)
    same(lambda l, n: lambda x: l.lax.scan(lambda _, v: (None, v * 2), None, x), X)
    same(lambda l, n: lambda x: l.lax.scan(lambda c, _: (c + 1, c), x, length=0), X)


def test_scan_over_trees():
    def function(l, n):
        def step(c, x):
            return {"s": c["s"] + x["a"] * x["b"][0]}, (x["a"], c["s"])

        return lambda a, b: l.lax.scan(step, {"s": n.zeros(3)}, {"a": a, "b": (b,)})

    same(function, M, X)


def test_nested_scans():
    def function(l, n):
        def row(c, x):
            inner, ys = l.lax.scan(lambda d, v: (d * 0.9 + v * c, d), c, x)
            return inner, ys

        return lambda m: l.lax.scan(row, 1.0, m)

    same(function, M)


def test_weak_carries_take_the_dtype_of_the_body():
    same(lambda l, n: lambda x: l.lax.scan(lambda c, v: (c + v, c), 0, x), X)
    same(lambda l, n: lambda x: l.lax.while_loop(lambda c: c < 5, lambda c: c + x, 1), np.float32(1.5))


# --- branches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pred", [True, False, 0, 3, 0.0])
def test_cond(pred):
    same(lambda l, n: lambda p, x: l.lax.cond(p, lambda v: v * 2, lambda v: v - 1, x), np.asarray(pred), X)
    same(lambda l, n: lambda p, x: l.lax.cond(p, x, lambda v: v * 2, -x, lambda v: v - 1), np.asarray(pred), X)
    same(lambda l, n: lambda p, x: l.lax.cond(p, lambda: x, lambda: -x), np.asarray(pred), X)
    same(lambda l, n: lambda x: l.lax.cond(pred, lambda v: v * 2, lambda v: v - 1, operand=x), X)


@pytest.mark.parametrize("index", [-5, 0, 1, 2, 7])
def test_switch(index):
    def function(l, n):
        def run(k, x, y):
            branches = [lambda a, b: (a, b), lambda a, b: (b, a), lambda a, b: (a + b, a * y)]
            return l.lax.switch(k, branches, x, y)

        return run

    same(function, np.int32(index), X, X[::-1].copy())
    same(lambda l, n: lambda k, x: l.lax.switch(k, [n.sin], x), np.int32(index), X)


def test_only_the_branch_is_run():
    seen = []
    hl.register_custom_call("test.seen", lambda x: (seen.append(1), x)[1])
    mark = lambda x: lax.custom_call("test.seen", x, shape=("f32", (4,)))  # noqa: E731
    function = hl.jit(lambda p, x: lax.cond(p, mark, lambda v: v, x))
    function(False, X)
    assert not seen
    function(True, X)
    assert len(seen) == 1


def test_branches_with_python_numbers():
    same(lambda l, n: lambda p, x: l.lax.cond(p, lambda: x, lambda: 0.0), np.bool_(False), np.float32(3))


# --- map and associative_scan -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, 1, 3, 4, 9])
def test_map(size):
    same(lambda l, n: lambda m: l.lax.map(lambda r: (r.sum(), r * 2), m, batch_size=size), M)


@pytest.mark.parametrize("extent", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(extent, reverse):
    x = np.random.default_rng(extent).standard_normal((2, extent, 2)).astype(np.float32)
    same(lambda l, n: lambda v: l.lax.associative_scan(l.numpy.add, v, axis=1, reverse=reverse), x)

    def function(l, n):
        def combine(a, b):
            return a[0] * b[0], a[1] * b[0] + b[1]

        return lambda a, b: l.lax.associative_scan(combine, (a, b), reverse=reverse, axis=1)

    same(function, x, x[::-1].copy())


def test_platform_dependent():
    assert lax.platform_dependent(3, cpu=lambda x: x + 1, default=lambda x: x) == 4
    assert lax.platform_dependent(3, cuda=lambda x: x + 1, default=lambda x: x) == 3
    with pytest.raises(ArgumentError, match="function for the platform"):
        lax.platform_dependent(3, cuda=lambda x: x)


# --- transforms ---------------------------------------------------------------------------------------------------


def rnn(l, n):
    def loss(w, x0, xs):
        def step(h, x):
            h = n.tanh(w @ h + x)
            return h, h.sum()

        last, ys = l.lax.scan(step, x0, xs)
        return (last * last).sum() + ys.mean()

    return loss


W = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)


def test_gradient_of_a_scan():
    same(lambda l, n: l.grad(rnn(l, n), argnums=(0, 1, 2)), W, M[0], M)
    same(lambda l, n: l.value_and_grad(rnn(l, n)), W, M[0], M)


def test_a_gradient_step_in_a_loop():
    """Gradients inside of loops, and the gradient of such a loop."""

    def function(l, n):
        def train(w):
            inner = l.grad(rnn(l, n))
            return l.lax.fori_loop(0, 3, lambda i, v: v - 0.1 * inner(v, M[0], M), w)

        return train

    same(function, W)
    same(lambda l, n: l.grad(lambda w: function(l, n)(w).sum()), W, rtol=1e-4)


def test_gradients_of_branches():
    def function(l, n):
        def f(x, k):
            y = l.lax.switch(k, [n.sin, lambda v: v * v, lambda v: v * 0 + 1], x)
            return l.lax.cond(y.sum() > 0, lambda v: v**3, lambda v: -v, y).sum()

        return l.grad(f)

    for k in range(3):
        same(function, X, np.int32(k))


def test_forward_mode_of_a_while_loop():
    def function(l, n):
        def f(x):
            return l.lax.while_loop(lambda v: n.sum(v) < 30, lambda v: v * 1.5 + x, n.abs(x))

        return lambda x, t: l.jvp(f, (x,), (t,))

    same(function, X, X)


@pytest.mark.parametrize("axes", [0, 1])
def test_vmap_of_loops(axes):
    same(lambda l, n: l.vmap(lambda r: l.lax.scan(lambda c, v: (c + v, c * v), 0.0, r), in_axes=axes), M)
    same(
        lambda l, n: l.vmap(lambda r: l.lax.while_loop(lambda v: v.sum() < 9, lambda v: v * 2 + 1, r), in_axes=axes), M
    )
    same(lambda l, n: l.vmap(lambda r: l.lax.cond(r.sum() > 1.5, lambda v: v, lambda v: -v, r), in_axes=axes), M)


def test_the_gradient_outside_of_jit_carries_values():
    """Python control flow on what a loop computed, inside of grad."""

    def f(x):
        y = lax.fori_loop(0, 3, lambda i, v: v * x, x)
        return y * 2 if y > 10 else y

    assert float(hl.grad(f)(2.0)) == 64
    assert float(hl.grad(f)(1.0)) == 4


# --- errors -------------------------------------------------------------------------------------------------------


def fails(error, function, *parts):
    with pytest.raises(error) as caught:
        function()
    text = str(caught.value)
    for part in (*parts, "found:", "where:", "repair:", "test_control_flow.py"):
        assert part in text, text


def test_a_carry_that_changes_its_shape():
    fails(
        ShapeError,
        lambda: lax.scan(lambda c, x: ({"h": hnp.ones(4)}, x), {"h": hnp.ones(3)}, X),
        "init['h'] goes in as f32[3] and comes out as f32[4]",
    )


def test_a_carry_that_changes_its_dtype():
    fails(
        DTypeError,
        lambda: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1.5, c[1]), (np.int32(1), 2)),
        "init_val[0] goes in as s32[] and comes out as f32[]",
    )


def test_a_carry_of_another_structure():
    fails(TreeError, lambda: lax.scan(lambda c, x: ((c, c), x), 1.0, X), "scan: the body returns a carry")
    fails(TreeError, lambda: lax.scan(lambda c, x: c, {"a": X}, X), "found:  {'a': array}\n")
    fails(TreeError, lambda: lax.while_loop(lambda v: v < 3, lambda v: (v, v), 1.0), "(array, array), expected array")


@pytest.mark.parametrize("upper", [3, hnp.asarray(3)], ids=["static", "traced"])
def test_errors_of_fori_loop_name_it_and_its_arguments(upper):
    """It is made of scan, or of while_loop, whose carry has more than the user's value."""
    loop = lambda body, init: lambda: lax.fori_loop(0, upper, body, init)  # noqa: E731
    fails(TreeError, loop(lambda i, v: (v, v), 1.0), "fori_loop: body_fun returns the structure of init_val\n")
    fails(TreeError, loop(lambda i, v: None, {"a": X}), "found:  None, expected {'a': array}\n")
    fails(ShapeError, loop(lambda i, v: v.sum(), X), "fori_loop: every leaf of the carry has one type")
    fails(
        ShapeError, loop(lambda i, v: {"a": v["a"][:2]}, {"a": X}), "init_val['a'] goes in as f32[4] and comes out as"
    )
    fails(DTypeError, loop(lambda i, v: v * 1.5, hnp.arange(3)), "convert the body's init_val with astype")
    fails(ArgumentError, loop(lambda i, v: v, {"a": "text"}), "init_val['a'] of fori_loop must be an array")
    fails(ArgumentError, loop(lambda i, v: "text", X), "the body's init_val of fori_loop must be an array")
    fails(ArgumentError, loop(lambda v: v, X), "'<lambda>' was called with 2 by position; it takes (v)")


def test_functions_that_take_other_arguments():
    fails(ArgumentError, lambda: lax.scan(lambda c: c, X, X), "called with 2 by position; it takes (c)")
    fails(ArgumentError, lambda: lax.while_loop(lambda: True, lambda v: v, X), "called with 1 by position; it takes ()")
    fails(ArgumentError, lambda: lax.cond(True, lambda x: x, lambda: 1, X), "called with 1 by position; it takes ()")
    with pytest.raises(TypeError, match="of the user's"):  # an error of the body itself stays as it is

        def own(v):
            raise TypeError("of the user's")

        lax.scan(lambda c, x: (own(c), x), X, X)


def test_a_condition_that_is_no_bool():
    fails(DTypeError, lambda: lax.while_loop(lambda x: x, lambda x: x, 1.0), "returns a bool scalar")
    fails(ShapeError, lambda: lax.while_loop(lambda x: x < 3, lambda x: x, X), "returns a bool scalar")


def test_branches_that_differ():
    fails(DTypeError, lambda: lax.cond(True, lambda x: x, lambda x: x > 0, X), "result of true_fun is f32[4]")
    fails(ShapeError, lambda: lax.switch(0, [lambda x: x, lambda x: x[:2]], X), "branch 1 f32[2]")
    fails(TreeError, lambda: lax.cond(True, lambda x: x, lambda x: (x, x), X), "one structure")


def test_xs_of_different_extents():
    fails(ShapeError, lambda: lax.scan(lambda c, x: (c, x), 0, (X, X[:2])), "xs[0] 4, xs[1] 2")
    fails(ArgumentError, lambda: lax.scan(lambda c, x: (c, x), 0), "neither xs nor length")
    fails(ShapeError, lambda: lax.scan(lambda c, x: (c, x), 0, X, length=3), "length 3")


def test_a_predicate_with_elements():
    fails(ShapeError, lambda: lax.cond(X > 0, lambda: 1, lambda: 2), "pred[4]")


def test_an_unbounded_loop_has_no_reverse_mode():
    function = hl.grad(lambda x: lax.while_loop(lambda v: v < 100.0, lambda v: v * 2.0, x))
    fails(hl.errors.DifferentiationError, lambda: function(3.0), "max_steps")


# --- what JAX prints ----------------------------------------------------------------------------------------------

PRINTED = {
    "while": (lambda x: jax.lax.while_loop(lambda v: v.sum() < 50, lambda v: v * 1.5 + 1, x), [X]),
    "update": (lambda x: jax.lax.fori_loop(0, 5, lambda i, v: v.at[i % 4].set(v[i % 4] * 2 + i), x), [X]),
    "scan": (lambda m: jax.lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(3), m, reverse=True), [M]),
    "cond": (lambda p, x: jax.lax.cond(p, lambda v: v * 2, lambda v: jnp.sin(v), x), [np.bool_(True), X]),
    "switch": (lambda k, x: jax.lax.switch(k, [jnp.sin, jnp.cos, jnp.square], x), [np.int32(2), X]),
    "gradient": (lambda x: jax.grad(lambda v: jax.lax.scan(lambda c, r: (jnp.tanh(c * r), c), 1.0, v)[0])(x), [X]),
    "vmap": (jax.vmap(lambda x: jax.lax.while_loop(lambda v: v < 50, lambda v: v * 1.5 + 1, x)), [np.abs(X)]),
}


@pytest.mark.parametrize("name", PRINTED)
def test_programs_that_jax_prints(name):
    from hloom.backends.cpu.compilation import compile_module
    from hloom.ir.text import parse_module
    from hloom.ir.verify import verify

    function, arguments = PRINTED[name]
    module = parse_module(jax.jit(function).lower(*arguments).as_text(dialect="hlo"))
    verify(module)
    found = compile_module(module)([np.asarray(a) for a in arguments])
    for a, b in zip(found, jax.tree.leaves(function(*arguments)), strict=True):
        np.testing.assert_allclose(a, np.asarray(b), rtol=1e-5, atol=1e-6)


def test_the_page_about_control_flow():
    from pathlib import Path

    page = (Path(__file__).parents[3] / "docs" / "guides" / "control_flow.md").read_text(encoding="utf-8")
    scope: dict = {}
    exec(compile(page.split("```python\n")[1].split("```")[0], "control_flow.md", "exec"), scope)
    np.testing.assert_allclose(scope["sums"], [2.0, 3.4, 4.46], rtol=1e-6)
    assert abs(float(scope["root"]) - 2**0.5) < 1e-5 and float(scope["slope"]) == 64


def test_known_bounds_inside_of_a_gradient():
    """A bound that is an array with a value is as good as a Python integer."""
    assert float(hl.grad(lambda x: lax.fori_loop(0, hnp.asarray(3), lambda i, v: v * x, x))(2.0)) == 32

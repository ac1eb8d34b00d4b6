"""hl.vmap against stacking: trees, axes, nesting with itself, jit and derivatives; its errors."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ArgumentError, BatchingError, HloomError, ShapeError, TracerBoolError, TreeError

pytestmark = pytest.mark.quick

rng = np.random.default_rng(0)
A = rng.normal(size=(3, 4, 5)).astype(np.float32)
B = rng.normal(size=(3, 5)).astype(np.float32)
V = rng.normal(size=5).astype(np.float32)

Pair = namedtuple("Pair", "left right")


def stacked(function, count, *arguments):
    """The function on each problem, and the results stacked; arguments are functions of the problem's number."""
    results = [function(*(hnp.asarray(a(k)) for a in arguments)) for k in range(count)]
    leaves = zip(*(hl.tree.leaves(r) for r in results), strict=True)
    return [np.stack([np.asarray(x) for x in column]) for column in leaves]


FUNCTIONS = {
    "product": lambda m, v: m @ v,
    "softmax": lambda m, v: hl.nn.softmax(m * v, axis=-1),
    "mean": lambda m, v: m.mean(0) - v.sum(),
    "tree": lambda m, v: {"a": m.T, "b": (v[::-1], hnp.where(v > 0, v, 0.0))},
    "norm": lambda m, v: hnp.sqrt((m**2).sum()) + v.max(),
    "einsum": lambda m, v: hnp.einsum("ij,kj,j->ik", m, m, v),
    "index": lambda m, v: m[1:, ::2].ravel() - v[0],
    "cumsum": lambda m, v: hnp.cumsum(m, axis=1) * v,
    "argmax": lambda m, v: hnp.argmax(m + v, axis=1),
    "constant": lambda m, v: (hnp.ones(2), hnp.float32(3), m),
    "pad": lambda m, v: hnp.pad(m, 1) + v.min(),
    "concatenate": lambda m, v: hnp.concatenate([m, v[None]], 0),
    "convert": lambda m, v: (m > v).astype("s32"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("compiled", [False, True])
def test_against_stacking(name, compiled):
    function = FUNCTIONS[name]
    wrap = hl.jit if compiled else (lambda f: f)
    cases = [
        ((0, 0), (A, B), (lambda k: A[k], lambda k: B[k])),
        ((0, None), (A, V), (lambda k: A[k], lambda k: V)),
        ((None, 0), (A[0], B), (lambda k: A[0], lambda k: B[k])),
        ((-2, -1), (A.transpose(1, 0, 2), B.T), (lambda k: A[k], lambda k: B[k])),
    ]
    for axes, arguments, one in cases:
        found = hl.tree.leaves(wrap(hl.vmap(function, in_axes=axes))(*arguments))
        for a, b in zip(found, stacked(function, 3, *one), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(np.asarray(a), b, rtol=3e-6, atol=3e-6)


def test_gradients_of_each_problem():
    def loss(w, x, y):
        return hnp.sum((hnp.tanh(x @ w) - y) ** 2)

    w, y = V, A[:, :, 0]
    found = hl.jit(hl.vmap(hl.grad(loss, argnums=(0, 1)), in_axes=(None, 0, 0)))(w, A, y)
    for k in range(3):
        one = hl.grad(loss, argnums=(0, 1))(w, A[k], y[k])
        np.testing.assert_allclose(found[0][k], one[0], rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(found[1][k], one[1], rtol=2e-5, atol=1e-6)
    # The gradient of a sum over problems is the sum of the problems' gradients.
    total = hl.grad(lambda w: hl.vmap(loss, in_axes=(None, 0, 0))(w, A, y).sum())(w)
    np.testing.assert_allclose(total, np.asarray(found[0]).sum(0), rtol=2e-5, atol=1e-5)


def test_nesting_with_jit_in_any_order():
    @hl.jit
    def inner(a, b):
        return hnp.exp(a) * b.sum()

    expected = np.exp(A) * B.sum(1)[:, None, None]
    np.testing.assert_allclose(hl.vmap(inner)(A, B), expected, rtol=1e-5)
    np.testing.assert_allclose(hl.jit(hl.vmap(inner))(A, B), expected, rtol=1e-5)
    np.testing.assert_allclose(hl.vmap(hl.jit(hl.vmap(inner, (0, None))))(A, B), expected, rtol=1e-5)


def test_derivatives_of_vmapped_functions():
    f = hl.vmap(lambda x: hnp.sin(x) * x.sum())
    x, t = B, rng.normal(size=B.shape).astype(np.float32)
    value, tangent = hl.jvp(f, (x,), (t,))
    for k in range(3):
        one, one_t = hl.jvp(lambda x: hnp.sin(x) * x.sum(), (x[k],), (t[k],))
        np.testing.assert_allclose(value[k], one, rtol=1e-5)
        np.testing.assert_allclose(tangent[k], one_t, rtol=1e-5, atol=1e-6)
    _, back = hl.vjp(f, x)
    (gradient,) = back(t)
    _, each = hl.vmap(lambda x, t: (x, hl.vjp(lambda x: hnp.sin(x) * x.sum(), x)[1](t)[0]))(x, t)
    np.testing.assert_allclose(gradient, each, rtol=1e-4, atol=1e-5)


def test_twice_and_products_of_all_pairs():
    outer = hl.vmap(hl.vmap(lambda a, b: (a * b).sum(), (None, 0)), (0, None))
    np.testing.assert_allclose(outer(B, B), B @ B.T, rtol=1e-5)
    swapped = hl.vmap(hl.vmap(lambda a, b: (a * b).sum(), (None, 0), out_axes=0), (0, None), out_axes=1)
    np.testing.assert_allclose(swapped(B, B), (B @ B.T).T, rtol=1e-5)


def test_trees_and_prefixes():
    arguments = {"m": A, "p": Pair(B, (V, None))}
    axes = ({"m": 0, "p": Pair(0, None)},)
    found = hl.vmap(lambda d: {"x": d["m"] @ d["p"].left, "y": d["p"].right[0]}, axes, {"x": 0, "y": None})(arguments)
    np.testing.assert_allclose(found["x"], np.einsum("kij,kj->ki", A, B), rtol=1e-5)
    np.testing.assert_array_equal(found["y"], V)
    np.testing.assert_allclose(hl.vmap(lambda t: t[0] + t[1], in_axes=([0, None],))([B, V]), B + V)


def test_keywords_are_mapped_over_the_first_axis():
    found = hl.vmap(lambda x, *, scale: x * scale, in_axes=0)(B, scale=np.arange(3.0, dtype=np.float32))
    np.testing.assert_allclose(found, B * np.arange(3.0, dtype=np.float32)[:, None])


def test_out_axes():
    f = lambda x: (x, x.sum())  # noqa: E731
    moved, total = hl.vmap(f, out_axes=(1, 0))(B)
    np.testing.assert_array_equal(moved, B.T)
    np.testing.assert_allclose(total, B.sum(1), rtol=1e-5)
    np.testing.assert_array_equal(hl.vmap(f, out_axes=-1)(B)[0], B.T)


def test_the_number_of_problems():
    np.testing.assert_array_equal(hl.vmap(lambda: hnp.ones(2), axis_size=3)(), np.ones((3, 2)))
    np.testing.assert_array_equal(hl.vmap(lambda x: x, in_axes=None, axis_size=2)(V), np.stack([V, V]))
    assert hl.vmap(lambda x: x * 2)(np.ones((0, 3), np.float32)).shape == (0, 3)


def test_arguments_that_are_the_same_for_all_keep_their_values():
    def f(x, n, name):
        assert name == "sum"
        return x.sum() if n > 2 else x.max()

    np.testing.assert_allclose(hl.vmap(f, in_axes=(0, None, None))(B, 3, "sum"), B.sum(1), rtol=1e-5)


def test_weak_types_stay():
    assert hl.vmap(lambda x: x * 2)(np.ones(3, np.float16)).dtype == np.float16
    assert hl.vmap(lambda x: (x, 2.0))(B)[1].weak


def test_dynamic_slices():
    rows = rng.normal(size=(3, 6, 4)).astype(np.float32)
    starts = np.array([1, 5, -3], np.int32)
    f = lambda x, i: lax.dynamic_slice(x, (i, 1), (2, 3))  # noqa: E731
    found = hl.vmap(f)(rows, starts)
    np.testing.assert_array_equal(found, np.stack([np.asarray(f(rows[k], starts[k])) for k in range(3)]))
    found = hl.vmap(f, (None, 0))(rows[0], starts)
    np.testing.assert_array_equal(found, np.stack([np.asarray(f(rows[0], starts[k])) for k in range(3)]))
    g = lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 1))  # noqa: E731
    update = rng.normal(size=(2, 2)).astype(np.float32)
    for compiled in (lambda f: f, hl.jit):
        found = compiled(hl.vmap(g, (0, None, 0)))(rows, update, starts)
        np.testing.assert_array_equal(found, np.stack([np.asarray(g(rows[k], update, starts[k])) for k in range(3)]))


def test_spmd_axis_name_and_axis_name_are_accepted():
    np.testing.assert_array_equal(hl.vmap(lambda x: x + 1, axis_name="i", spmd_axis_name="devices")(B), B + 1)


# --- errors -------------------------------------------------------------------------------------------------------


def fails(error, function, *parts):
    with pytest.raises(error) as caught:
        function()
    assert isinstance(caught.value, HloomError)
    text = str(caught.value)
    for part in (*parts, "found:", "repair:", __file__.rsplit("/", 1)[1]):
        assert part in text, text


def test_unequal_extents_name_each_argument():
    def g(weights, points, *, scale):
        return weights

    fails(
        ShapeError,
        lambda: hl.vmap(g, in_axes=(1, {"a": 0}))(A, {"a": B}, scale=V),
        "'weights' f32[3,4,5] has 4 along axis 1",
        "'points_a' f32[3,5] has 3 along axis 0",
        "'scale' f32[5] has 5 along axis 0",
    )
    fails(ShapeError, lambda: hl.vmap(lambda x: x, axis_size=7)(B), "axis_size is 7")


def test_axes_that_do_not_exist():
    fails(ShapeError, lambda: hl.vmap(lambda x: x, in_axes=2)(B), "axis 2 of argument 'x'", "f32[3,5]")
    fails(ShapeError, lambda: hl.vmap(lambda x: x)(1.0), "f32[]")
    fails(ShapeError, lambda: hl.vmap(lambda x: x.sum(), out_axes=1)(B), "axis at 1 of result 0")


def test_trees_that_do_not_fit():
    fails(TreeError, lambda: hl.vmap(lambda x, y: x, in_axes=(0,))(B, B), "1 entries, 2 arguments")
    fails(TreeError, lambda: hl.vmap(lambda x: x, in_axes=([0, 0],))((B, B, B)), "in_axes of argument 0")
    fails(TreeError, lambda: hl.vmap(lambda x: x, in_axes={"a": 0})({"a": B}), "in_axes is an integer, None or a tuple")
    fails(TreeError, lambda: hl.vmap(lambda x: (x, x), out_axes=(0, 0, 0))(B), "out_axes")


def test_arguments_that_vmap_cannot_take():
    fails(ArgumentError, lambda: hl.vmap(3), "vmap of a function")
    fails(ArgumentError, lambda: hl.vmap(lambda x: x, in_axes="i"), "in_axes", "'i'")
    fails(ArgumentError, lambda: hl.vmap(lambda x: x, in_axes=None)(B), "axis_size")
    fails(ArgumentError, lambda: hl.vmap(lambda x: x)("text"), "argument 'x'")


def test_a_result_that_differs_needs_an_axis():
    fails(BatchingError, lambda: hl.vmap(lambda x: x, out_axes=None)(B), "out_axes None", "differs")


def test_python_control_flow_on_a_mapped_value():
    fails(TracerBoolError, lambda: hl.vmap(lambda x: x if x > 0 else -x)(V), "hnp.where", "inside vmap of '<lambda>'")


def test_sums_over_two_named_axes():
    """The inner axis is summed first, and what is left is a sum over the outer one."""
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)

    def both(a, b):
        return lax.psum((a, b), ("rows", "columns")), lax.psum(a, "rows"), lax.pmax(a, ("columns", "rows"))

    found = hl.vmap(hl.vmap(both, axis_name="columns"), axis_name="rows")(x, y)
    wanted = (np.full((2, 3), 15), np.full((2, 3), 6)), np.tile(x.sum(0), (2, 1)), np.full((2, 3), 5)
    for a, b in zip(hl.tree.leaves(found), hl.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(np.broadcast_to(np.asarray(a), (2, 3)), b)

"""Explicit mesh axes: layouts in the types of values, errors for ambiguous operations, and the words around them.

The expected layouts and errors are those of jax 0.10.
"""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax
from hloom.errors import ShardingTypeError
from hloom.sharding import AxisType

pytestmark = pytest.mark.quick


@pytest.fixture
def mesh():
    with hl.config(num_cpu_devices=8):
        mesh = hl.make_mesh((4, 2), ("x", "y"))
        with hl.set_mesh(mesh):
            yield mesh


def put(shape, *spec):
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 100
    return hl.device_put(value, P(*spec))


def spec_inside(function, *arguments):
    """The spec in the type of a result within jit; that of the computed array is the same, and so are its numbers."""
    seen = []

    def traced(*arguments):
        result = function(*arguments)
        seen.append(hl.typeof(result).sharding.spec)
        return result

    result = hl.jit(traced)(*arguments)
    assert result.sharding.is_equivalent_to(NamedSharding(result.sharding.mesh, seen[0]), result.ndim)
    plain = hl.jit(function)(*(np.asarray(a) for a in arguments))
    np.testing.assert_allclose(result, plain, rtol=1e-5, atol=1e-5)
    return seen[0]


A, B = ((8, 16), "x", None), ((16, 8), None, "y")
LAYOUTS = {
    "product": (lambda a, b: a @ b, [A, B], ("x", "y")),
    "one side split": (lambda a, b: a @ b, [((8, 16), None, None), ((16, 8), "y", None)], (None, None)),
    "sum with a whole array": (lambda a, b: a + b, [A, ((8, 16), None, None)], ("x", None)),
    "reduction": (lambda a: a.sum(0), [A], (None,)),
    "kept": (lambda a: a.max(1), [A], ("x",)),
    "scalar": (lambda a: a.mean(), [A], ()),
    "merged": (lambda a: a.reshape(128), [A], ("x",)),
    "divided": (lambda a: a.reshape(4, 2, 16), [A], ("x", None, None)),
    "transposed": (lambda a: a.T, [A], (None, "x")),
    "sorted along the other": (lambda a: hnp.sort(a, 1), [A], ("x", None)),
    "summed up along the other": (lambda a: hnp.cumsum(a, 1), [A], ("x", None)),
    "softmax": (hl.nn.softmax, [A], ("x", None)),
    "part": (lambda a: a[:, :3], [A], ("x", None)),
    "even part": (lambda a: a[:4], [A], ("x", None)),
    "joined": (lambda a, b: hnp.concatenate([a, b]), [A, A], ("x", None)),
    "columns looked up": (lambda a: a[:, np.array([1, 2])], [A], ("x", None)),
    "padded": (lambda a: hnp.pad(a, ((0, 0), (1, 1))), [A], ("x", None)),
    "reversed": (lambda a: a[::-1], [A], ("x", None)),
    "largest": (lambda a: lax.top_k(a, 2)[0], [A], ("x", None)),
    "einsum": (lambda a, b: hnp.einsum("ij,ij->i", a, b), [A, A], ("x",)),
    "broadcast": (lambda a: hnp.broadcast_to(a[None], (3, 8, 16)), [A], (None, "x", None)),
    "updated": (lambda a: a.at[:, 0].set(1.0), [A], ("x", None)),
    "loop": (lambda a: lax.fori_loop(0, 3, lambda _, h: h * 2, a), [A], ("x", None)),
    "scan": (lambda a: lax.scan(lambda h, r: (h + r, h * r), a[0] * 0, a)[1], [((6, 8), None, "x")], (None, "x")),
    "branch": (lambda a: lax.cond(a.sum() > 0, lambda a: a, lambda a: a * 2, a), [A], ("x", None)),
    "vmap": (lambda a, b: hl.vmap(lambda r: r @ b)(a), [A, B], ("x", "y")),
    "inner jit": (lambda a: hl.jit(lambda a: a * 2)(a), [A], ("x", None)),
    "counted": (lambda a: hnp.arange(8) + a[:, 0], [A], ("x",)),
    "rematerialized": (lambda a: hl.checkpoint(hnp.tanh)(a), [A], ("x", None)),
    "gradient": (lambda a, b: hl.grad(lambda b: (hnp.tanh(a @ b) ** 2).sum())(b), [A, B], (None, "y")),
    "gradient of whole weights": (lambda a, b: hl.grad(lambda b: ((a @ b) ** 2).sum())(b),
                                  [A, ((16, 8), None, None)], (None, None)),
    "gradient of the other": (lambda a, b: hl.grad(lambda a: ((a @ b) ** 2).sum())(a), [A, B], ("x", None)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_types_say_how_values_are_laid_out(mesh, name):
    function, arguments, expected = LAYOUTS[name]
    assert tuple(spec_inside(function, *(put(s, *spec) for s, *spec in arguments))) == expected


AMBIGUOUS = {
    "contraction": (lambda a, b: a @ b, [((8, 16), "x", "y"), ((16, 8), "y", None)], "both dimensions"),
    "different axes": (lambda a, b: a + b, [A, ((8, 16), "y", None)], "different axes"),
    "one axis twice": (lambda a, b: a + b, [A, ((8, 16), None, "x")], "two dimensions"),
    "one axis twice in a product": (lambda a, b: a @ b, [A, ((16, 8), None, "x")], "two dimensions"),
    "split too finely": (lambda a: a.reshape(2, 4, 16), [A], r"f32\[8@x,16\]"),
    "minor dimension merged": (lambda a: a.reshape(128), [((8, 16), None, "x")], "out_sharding"),
    "sort": (lambda a: hnp.sort(a, 0), [A], "needs all"),
    "branches": (
        lambda a: lax.cond(a.sum() > 0, lambda a: a, lambda a: hl.sharding.reshard(a, P()), a),
        [A],
        "branch 1",
    ),
    "a branch of zeros": (
        lambda a: lax.cond(a.sum() > 0, lambda a: a, lambda a: hnp.zeros((8, 16)), a),
        [A],
        r"f32\[8@x,16\] branch 0, f32\[8,16\] branch 1",
    ),
    "state of a loop": (
        lambda a: lax.while_loop(lambda a: a.sum() < 0, lambda a: hl.sharding.reshard(a, P(None, "x")), a),
        [A],
        "after a step",
    ),
    "carry": (lambda a: lax.scan(lambda c, _: (hl.sharding.reshard(c, P("y")), None), a, None, 2)[0], [A], "a scan"),
    "running sum": (lambda a: hnp.cumsum(a, 0), [A], "runs along"),
    "uneven part": (lambda a: a[:3], [A], "4 parts"),
    "lookup": (lambda a: a[np.array([1, 2])], [A], r"get\(out_sharding"),
    "update": (lambda a: a.at[np.array([1, 2])].set(0.0), [A], r"set\(values, out_sharding"),
    "padding": (lambda a: hnp.pad(a, ((1, 1), (0, 0))), [A], "size 10"),
    "rows of a scan": (lambda a: lax.scan(lambda h, r: (h + r, h), a[:, 0].sum(), a[:, 0])[0], [A], "scan over"),
    "within a loop": (lambda a: lax.fori_loop(0, 3, lambda _, h: hnp.sort(h, 0), a), [A], "needs all"),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_ambiguous_operations_are_errors(mesh, name):
    function, arguments, text = AMBIGUOUS[name]
    given = [put(s, *spec) for s, *spec in arguments]
    for call in (hl.jit(function), function):  # jitted and eagerly
        if (call is function and "scan" in name + text) or (call is function and ("loop" in name or "branch" in name)):
            continue  # eager loops and branches are compiled
        with pytest.raises(ShardingTypeError, match=text) as caught:
            call(*given)
        assert caught.value.source.file == __file__ and "AxisType.Auto" in caught.value.repair


def test_out_sharding_says_what_is_meant(mesh):
    a, b = put((8, 16), "x", "y"), put((16, 8), "y", None)
    whole = np.asarray(a) @ np.asarray(b)
    for call in (
        lambda: hnp.matmul(a, b, out_sharding=P("x", None)),
        lambda: hnp.dot(a, b, out_sharding=P("x", None)),
        lambda: hnp.einsum("ij,jk->ik", a, b, out_sharding=P("x", None)),
        lambda: hnp.tensordot(a, b, 1, out_sharding=P("x", None)),
        lambda: lax.dot_general(a, b, (((1,), (0,)), ((), ())), out_sharding=P("x", None)),
        lambda: hl.jit(lambda a, b: hnp.matmul(a, b, out_sharding=P("x", None)))(a, b),
    ):
        result = call()
        assert result.sharding.spec == P("x", None)
        np.testing.assert_allclose(result, whole, rtol=1e-5)
    scattered = hl.jit(lambda a, b: hnp.matmul(a, b, out_sharding=P("x", "y")))
    assert [c.kind for c in scattered.lower(a, b).compile().collectives()] == ["reduce-scatter"]
    looked_up = hl.jit(lambda a: a.at[np.array([1, 2])].get(out_sharding=P(None, "y")))(a)
    np.testing.assert_array_equal(looked_up, np.asarray(a)[[1, 2]])
    np.testing.assert_array_equal(hnp.reshape(a, (128,), out_sharding=P("x")), np.asarray(a).reshape(128))
    for made in (
        hnp.zeros((8, 8), out_sharding=P("x")),
        hnp.arange(8, out_sharding=P("x")),
        hl.jit(lambda: hnp.ones((8, 8), out_sharding=P("x", None)))(),
        hl.random.normal(hl.random.key(0), (8, 8), out_sharding=P("x")),
    ):
        assert made.sharding.spec[0] == "x"


def test_reshard_and_axes_of_other_types(mesh):
    a, b = put((8, 16), "x", "y"), put((16, 8), "y", None)
    assert spec_inside(lambda a: hl.sharding.reshard(a, P(None, "y")), a) == P(None, "y")
    inside = []

    @hl.sharding.auto_axes
    def product(a, b):
        inside.append(hl.typeof(a).sharding.spec)
        return a @ b

    result = hl.jit(lambda a, b: product(a, b, out_sharding=P("x", None)))(a, b)
    assert result.sharding.spec == P("x", None) and inside == [P(None, None)]
    np.testing.assert_allclose(result, np.asarray(a) @ np.asarray(b), rtol=1e-5)
    auto = hl.make_mesh((4, 2), ("x", "y"), AxisType.Auto)
    with hl.set_mesh(auto):

        @hl.sharding.explicit_axes(axes=("x", "y"), in_sharding=P("x", None))
        def double(a):
            inside.append(hl.typeof(a).sharding.spec)
            return a * 2

        hl.jit(double)(np.ones((8, 4), np.float32))
    assert inside[1] == P("x", None)


def test_the_compiler_chooses_along_automatic_axes(mesh):
    mixed = hl.make_mesh((4, 2), ("x", "y"), (AxisType.Explicit, AxisType.Auto))
    place = NamedSharding(mixed, P("x", "y"))
    a, b = (
        hl.device_put(np.ones((8, 16), np.float32), place),
        hl.device_put(np.ones((16, 8), np.float32), NamedSharding(mixed, P("y", None))),
    )
    seen = []

    def product(a, b):
        c = a @ b
        seen.append(hl.typeof(c).sharding.spec)
        return c

    np.testing.assert_array_equal(hl.jit(product)(a, b), np.full((8, 8), 16.0))
    assert seen == [P("x", None)]


def test_layouts_are_part_of_the_version(mesh):
    traces = []

    @hl.jit
    def double(a):
        traces.append(hl.typeof(a).sharding.spec)
        return a * 2

    for spec in (("x", None), ("y", None), ("x", None)):
        assert double(put((8, 8), *spec)).sharding.spec == P(*spec)
    assert traces == [P("x", None), P("y", None)]


def test_types_are_those_of_arguments_not_of_in_shardings(mesh):
    """As in jax: in_shardings lay out what has no layout; its type stays whole, so that no product is ambiguous."""
    w, v, x = (np.ones(s, np.float32) for s in ((4, 8), (8, 4), (8, 4)))
    places = (P(None, "y"), P("y", None), P("x"))
    inside = []

    def loss(w, v, x):
        place = hl.typeof(w).sharding
        inside.append(P(None, None) if place is None else place.spec)
        return ((x @ w @ v) ** 2).sum()

    expected = hl.grad(loss, (0, 1))(w, v, x)
    inside.clear()
    both = hl.jit(hl.value_and_grad(loss, (0, 1)), in_shardings=places)(w, v, x)
    one = hl.jit(hl.grad(loss), in_shardings=places, out_shardings=P("x"))(w, v, x)
    named = hl.jit(
        lambda p, n, x: hl.grad(lambda p: loss(*p, x))(p)[n], static_argnums=1, in_shardings=(places[:2], places[2])
    )
    scanned = hl.jit(
        lambda w, v, x: lax.scan(lambda c, _: (c + loss(w, v, x), None), 0.0, None, length=2)[0], in_shardings=places
    )
    mapped = hl.jit(lambda w, v, x: hl.vmap(lambda row: loss(w, v, row[None]))(x).sum(), in_shardings=places)
    assert set(inside) == {P(None, None)}
    assert [g.sharding.spec for g in both[1]] == [P(None, None)] * 2 and one.sharding.spec[0] == "x"
    for found, value in (
        (both[1][0], expected[0]),
        (both[1][1], expected[1]),
        (one, expected[0]),
        (named((w, v), 1, x), expected[1]),
    ):
        np.testing.assert_allclose(found, value)
    assert float(scanned(w, v, x)) == 2 * float(loss(w, v, x)) == 2 * float(mapped(w, v, x))
    # An array that has the layout brings it in its type.
    laid_out = [hl.device_put(a, p) for a, p in zip((w, v, x), places, strict=True)]
    with pytest.raises(ShardingTypeError, match="ambiguous"):
        hl.jit(loss, in_shardings=places)(*laid_out)
    assert float(hl.jit(loss, in_shardings=places)(w, v, x)) == float(loss(w, v, x))

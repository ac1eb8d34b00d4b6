"""Collectives over named axes against NumPy, their derivatives and batches; collectives of programs."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import errors, lax
from hloom.backends.cpu.compilation import compile_module
from hloom.errors import ArgumentError, AttributeValueError, HloomError, ParticipantsError, ShapeError
from hloom.ir.interpret import run
from hloom.ir.text import parse_module, print_module
from hloom.jax.test_util import check_grads

X = np.arange(12.0).reshape(3, 4) + 1
SQUARE = np.arange(9.0).reshape(3, 3)


def over(function, *arguments, **options):
    eager = hl.vmap(function, axis_name="i", **options)(*arguments)
    compiled = hl.jit(hl.vmap(function, axis_name="i", **options))(*arguments)
    for a, b in zip(hl.tree.leaves(eager), hl.tree.leaves(compiled), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    return eager


def test_reductions():
    np.testing.assert_array_equal(over(lambda x: lax.psum(x, "i"), X), np.tile(X.sum(0), (3, 1)))
    np.testing.assert_array_equal(over(lambda x: lax.psum(x, "i"), X, out_axes=None), X.sum(0))
    np.testing.assert_allclose(over(lambda x: x / lax.psum(x, "i"), X), X / X.sum(0))
    np.testing.assert_array_equal(over(lambda x: lax.pmean(x, "i"), X, out_axes=None), X.mean(0))
    np.testing.assert_array_equal(over(lambda x: lax.pmax(x, "i"), X, out_axes=None), X.max(0))
    np.testing.assert_array_equal(over(lambda x: lax.pmin(x, "i"), X, out_axes=None), X.min(0))
    tree = over(lambda x: lax.psum({"a": x, "b": x[0] > 5}, "i"), X, out_axes=None)
    np.testing.assert_array_equal(tree["a"], X.sum(0))
    assert int(tree["b"]) == 1
    groups = [[0, 2], [1, 3]]
    y = np.arange(4.0)
    np.testing.assert_array_equal(over(lambda x: lax.psum(x, "i", axis_index_groups=groups), y), [2, 4, 2, 4])
    np.testing.assert_array_equal(over(lambda x: lax.pmean(x, "i", axis_index_groups=groups), y), [1, 2, 1, 2])


def test_numbers_and_sizes():
    def f(x):
        assert lax.psum(1, "i") == 3 and lax.axis_size("i") == 3
        return lax.axis_index("i"), lax.psum(2.0, "i")

    index, six = over(f, X, out_axes=(0, None))
    np.testing.assert_array_equal(index, [0, 1, 2])
    assert index.dtype == np.int32 and float(six) == 6.0
    # A value that is the same for all is still summed over all.
    np.testing.assert_array_equal(
        hl.vmap(lambda x, y: lax.psum(y, "i"), (0, None), None, axis_name="i")(X, X[0]), 3 * X[0]
    )


def test_gathers_and_scatters():
    np.testing.assert_array_equal(over(lambda x: lax.all_gather(x, "i"), X, out_axes=None), X)
    np.testing.assert_array_equal(over(lambda x: lax.all_gather(x, "i", axis=1), X, out_axes=None), X.T)
    np.testing.assert_array_equal(over(lambda x: lax.all_gather(x, "i", axis=-1), X, out_axes=None), X.T)
    np.testing.assert_array_equal(over(lambda x: lax.all_gather(x, "i", tiled=True), X, out_axes=None), X.ravel())
    np.testing.assert_array_equal(over(lambda x: lax.psum_scatter(x, "i"), SQUARE), SQUARE.sum(0))
    wide = np.arange(18.0).reshape(3, 6)
    found = over(lambda x: lax.psum_scatter(x, "i", tiled=True), wide)
    np.testing.assert_array_equal(found, wide.sum(0).reshape(3, 2))


@pytest.mark.parametrize("split, concat", [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1)])
def test_all_to_all(split, concat):
    x = np.arange(3 * 27.0).reshape(3, 3, 3, 3)
    found = np.asarray(over(lambda x: lax.all_to_all(x, "i", split, concat), x))
    for receiver in range(3):
        sent = [np.take(x[sender], receiver, split) for sender in range(3)]
        np.testing.assert_array_equal(found[receiver], np.stack(sent, concat))
    tiled = np.arange(3 * 6 * 6 * 6.0).reshape(3, 6, 6, 6)
    found = np.asarray(over(lambda x: lax.all_to_all(x, "i", split, concat, tiled=True), tiled))
    for receiver in range(3):
        sent = [np.split(tiled[sender], 3, split)[receiver] for sender in range(3)]
        np.testing.assert_array_equal(found[receiver], np.concatenate(sent, concat))


def test_permutations_and_broadcasts():
    x = np.array([10.0, 20.0, 30.0])
    np.testing.assert_array_equal(over(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]), x), [30, 10, 20])
    np.testing.assert_array_equal(over(lambda x: lax.ppermute(x, "i", [(0, 2)]), x), [0, 0, 10])
    np.testing.assert_array_equal(over(lambda x: lax.pshuffle(x, "i", [2, 0, 1]), x), [30, 10, 20])
    np.testing.assert_array_equal(over(lambda x: lax.pbroadcast(x, "i", 1), x), [20, 20, 20])
    np.testing.assert_array_equal(over(lambda x: lax.pswapaxes(x, "i", 0), SQUARE), SQUARE.T)


def test_derivatives():
    x = np.array([1.0, 2.0, 3.0])
    weights = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0], [4.0, 1.0, 0.0]])
    functions = {
        "psum": lambda x, w: lax.psum(x * w[0], "i") * x,
        "pmean": lambda x, w: lax.pmean(x**2, "i") * w[1],
        "pmax": lambda x, w: lax.pmax(x * w[0], "i") * x,
        "all_gather": lambda x, w: (lax.all_gather(x**2, "i") * w).sum(),
        "psum_scatter": lambda x, w: lax.psum_scatter(x * w, "i") * w[0],
        "all_to_all": lambda x, w: (lax.all_to_all(x * w, "i", 0, 0) * w).sum(),
        "ppermute": lambda x, w: lax.ppermute(x**2, "i", [(0, 2), (1, 0)]) * w[1],
        "pbroadcast": lambda x, w: lax.pbroadcast(x**2, "i", 1) * w[2],
        "index": lambda x, w: lax.psum(x * lax.axis_index("i"), "i") * x,
    }
    for f in functions.values():
        mapped = hl.vmap(f, axis_name="i")
        check_grads(lambda x, mapped=mapped: mapped(x, weights), (x,), order=2)
        # The gradient inside: the sum of what all participants' results depend on this participant's value.
        inside = hl.vmap(hl.grad(f), axis_name="i")(x, weights)
        outside = hl.grad(lambda x, mapped=mapped: mapped(x, weights).sum())(x)
        np.testing.assert_allclose(inside, outside, rtol=1e-10)


def test_two_axes_and_other_batches():
    x = np.arange(24.0).reshape(2, 3, 4)

    def both(f):
        return hl.vmap(hl.vmap(f, axis_name="j"), axis_name="i")(x)

    np.testing.assert_array_equal(both(lambda x: lax.psum(x, ("i", "j")))[0, 0], x.sum((0, 1)))
    np.testing.assert_array_equal(both(lambda x: lax.psum(x, "i"))[0], x.sum(0))
    np.testing.assert_array_equal(both(lambda x: lax.psum(x, "j"))[:, 0], x.sum(1))
    np.testing.assert_array_equal(both(lambda x: lax.axis_index(("i", "j"))), np.arange(6).reshape(2, 3))
    for f in (
        lambda x: lax.all_gather(x, "i").sum(0),
        lambda x: lax.ppermute(x, "i", [(0, 1), (1, 0)]),
        lambda x: lax.pbroadcast(x, "i", 1),
        lambda x: lax.psum_scatter(hnp.stack([x, x]), "i"),
        lambda x: lax.all_to_all(hnp.stack([x, x * 2]), "i", 0, 0),
        lambda x: lax.pmax(x, "i"),
    ):
        expected = hl.vmap(f, axis_name="i")
        # The named axis outside, an unnamed one inside: the same as one after the other.
        found = hl.vmap(lambda rows, f=f: hl.vmap(f)(rows), axis_name="i")(x)
        for k in range(3):
            np.testing.assert_allclose(np.asarray(found)[:, k], expected(x[:, k]), rtol=1e-12)


def test_under_jit_loops_and_rules():
    inner = hl.jit(lambda x: lax.psum(x, "i"))
    for _ in range(2):
        np.testing.assert_array_equal(hl.vmap(inner, axis_name="i")(X)[0], X.sum(0))
    np.testing.assert_array_equal(hl.vmap(inner, axis_name="i")(X[:2])[0], X[:2].sum(0))
    twice = lambda x: lax.fori_loop(0, 2, lambda k, x: lax.psum(x, "i") * 0.5, x)  # noqa: E731
    np.testing.assert_allclose(over(twice, X)[0], X.sum(0) * 0.75)

    f = hl.custom_vjp(lambda x: lax.psum(x, "i"))
    f.defvjp(lambda x: (lax.psum(x, "i"), None), lambda _, g: (lax.psum(g, "i") * 5,))
    total = hl.grad(lambda x: hl.vmap(f, axis_name="i")(x).sum())(X)
    np.testing.assert_array_equal(total, np.full((3, 4), 15.0))


# --- errors -------------------------------------------------------------------------------------------------------


def fails(error, function, *parts):
    with pytest.raises(error) as caught:
        function()
    assert isinstance(caught.value, HloomError)
    for part in (*parts, "found:", "repair:"):
        assert part in str(caught.value), str(caught.value)


def test_errors():
    mapped = lambda f: lambda: hl.vmap(f, axis_name="i")(X)  # noqa: E731
    fails(ParticipantsError, lambda: lax.psum(X, "i"), "psum over the axis 'i'", "none")
    fails(ParticipantsError, mapped(lambda x: lax.axis_index("j")), "'j'", "'i'", "axis_name='j'")
    fails(ShapeError, mapped(lambda x: lax.psum_scatter(x, "i")), "3 participants", "f64[4]")
    fails(ShapeError, mapped(lambda x: lax.all_to_all(x, "i", 0, 0)), "3 participants")
    fails(ShapeError, mapped(lambda x: lax.all_gather(x, "i", axis=5)), "axis 5")
    fails(ArgumentError, mapped(lambda x: lax.ppermute(x, "i", [(0, 3)])), "(0, 3)")
    fails(AttributeValueError, mapped(lambda x: lax.ppermute(x, "i", [(0, 1), (0, 2)])), "source once")
    fails(ArgumentError, mapped(lambda x: lax.pshuffle(x, "i", [0, 0, 1])), "permutation")
    fails(ArgumentError, mapped(lambda x: lax.pbroadcast(x, "i", 3)), "3")
    fails(ArgumentError, mapped(lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1], [2]])), "axis_index_groups")
    fails(
        ArgumentError,
        mapped(lambda x: lax.all_gather(x, "i", axis_index_groups=[[0, 1, 2]])),
        "groups",
    )


MODULE = """HloModule exchange

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}}

ENTRY main {{
  x = f32[4,2]{{1,0}} parameter(0)
  reduced = f32[4,2]{{1,0}} all-reduce(x), replica_groups={groups}, to_apply=add
  gathered = f32[4,2]{{1,0}} all-gather(reduced), replica_groups={groups}, dimensions={{0}}
  scattered = f32[4,2]{{1,0}} reduce-scatter(gathered), replica_groups={groups}, dimensions={{0}}, to_apply=add
  crossed = f32[4,2]{{1,0}} all-to-all(scattered), replica_groups={groups}, dimensions={{0}}
  permuted = f32[4,2]{{1,0}} collective-permute(crossed), source_target_pairs={{{{0,0}}}}
  spread = f32[4,2]{{1,0}} collective-broadcast(permuted), replica_groups={groups}
  me = u32[] partition-id()
  mine = u32[] replica-id()
  ROOT all = (f32[4,2]{{1,0}}, u32[], u32[]) tuple(spread, me, mine)
}}
"""


def test_programs_of_one_participant():
    module = parse_module(MODULE.format(groups="{{0}}"))
    x = np.arange(8.0, dtype=np.float32).reshape(4, 2)
    found = run(module, [x])
    np.testing.assert_array_equal(found[0], x)
    assert int(found[1]) == 0 and int(found[2]) == 0
    assert "replica_groups={{0}}" in print_module(module)
    compiled = compile_module(module)
    np.testing.assert_array_equal(compiled([x])[0], x)


def test_programs_of_more_participants():
    text = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
ENTRY main {
  x = f32[4]{0} parameter(0)
  ROOT y = f32[4]{0} all-reduce(x), replica_groups={{0,1}}, to_apply=add
}
"""
    module = parse_module(text)
    fails(
        ParticipantsError,
        lambda: run(module, [np.ones(4, np.float32)]),
        "all-reduce among 2 participants",
        "one device",
    )


@pytest.fixture
def three_devices():
    before = hl.config.num_cpu_devices
    hl.config.num_cpu_devices = 3
    yield
    hl.config.num_cpu_devices = before


def test_pmap_is_over_devices(three_devices):
    mean = hl.pmap(lambda x, n: x * n - lax.pmean(x * n, "d"), "d", in_axes=(0, None))
    np.testing.assert_allclose(mean(X, 2.0), 2 * (X - X.mean(0)))
    shifted = hl.pmap(lambda x, n: lax.ppermute(x, "d", [(0, n)]), axis_name="d", static_broadcasted_argnums=1)
    np.testing.assert_array_equal(shifted(X[:, 0], 2), [0, 0, X[0, 0]])
    fails(errors.DeviceError, lambda: hl.pmap(lambda x: x)(np.ones(4)), "over 4 elements", "3 devices")
    fails(errors.DeviceError, lambda: hl.pmap(lambda x: x, devices=hl.devices()[:2])(X), "2 devices")

"""shard_map and pmap on the devices of a mesh: collectives, transformations, axes left to the compiler."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax

A = np.sin(np.arange(64, dtype=np.float32)).reshape(8, 8)


def close(found, expected, **options):
    np.testing.assert_allclose(found, expected, **{"rtol": 1e-4, "atol": 1e-5, **options})


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
def test_collectives(mesh, wrap):
    def on_rows(f, outs=None):
        outs = P("x") if outs is None else outs
        return wrap(hl.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=outs, check_vma=False))(A)

    blocks = A.reshape(4, 2, 8)
    close(on_rows(lambda a: lax.psum(a, "x")), np.tile(blocks.sum(0), (4, 1)))
    close(on_rows(lambda a: lax.pmean(a, "x"), P()), blocks.mean(0))
    close(on_rows(lambda a: lax.pmax(a, "x") - lax.pmin(a, "x"), P()), blocks.max(0) - blocks.min(0))
    close(on_rows(lambda a: lax.all_gather(a, "x")[2], P()), blocks[2])
    close(on_rows(lambda a: lax.all_gather(a, "x", tiled=True), P()), A)
    close(on_rows(lambda a: lax.psum_scatter(lax.all_gather(a, "x", tiled=True), "x", tiled=True)), 4 * A)
    close(on_rows(lambda a: lax.ppermute(a, "x", [(0, 1), (1, 0)])), np.concatenate([A[2:4], A[:2], 0 * A[4:]]))
    close(on_rows(lambda a: lax.all_to_all(a, "x", 1, 0, tiled=True), P(None, "x")), A)
    close(on_rows(lambda a: lax.pbroadcast(a, "x", 3), P()), blocks[3])
    close(
        on_rows(lambda a: a + lax.axis_index("x") * lax.axis_size("x")),
        (blocks + 4 * np.arange(4)[:, None, None]).reshape(8, 8),
    )
    close(on_rows(lambda a: lax.pcast(a * 2, "x", to="varying")), 2 * A)
    both = wrap(
        hl.shard_map(
            lambda a: lax.all_gather(a, ("x", "y"), tiled=True), mesh=mesh, in_specs=P(("x", "y")), out_specs=P()
        )
    )
    close(both(A), A)


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
def test_transformations(mesh, put, wrap):
    def f(a, w):
        return lax.psum(hnp.tanh(a @ w), "y")

    mapped = hl.shard_map(f, mesh=mesh, in_specs=(P("x", "y"), P("y")), out_specs=P("x"))

    def plain(a, w):
        return hnp.tanh(a[:, :4] @ w[:4]) + hnp.tanh(a[:, 4:] @ w[4:])

    x, w = put(A, "x", "y"), A[:, :3]
    close(wrap(mapped)(x, w), plain(A, w))
    gradient = wrap(hl.grad(lambda a, w: (mapped(a, w) ** 2).sum(), (0, 1)))(x, w)
    expected = hl.grad(lambda a, w: (plain(a, w) ** 2).sum(), (0, 1))(A, w)
    for found, wanted in zip(gradient, expected, strict=True):
        close(found, wanted)
    stacked = np.stack([A, 2 * A])
    close(wrap(hl.vmap(mapped, (0, None)))(stacked, w), np.stack([plain(A, w), plain(2 * A, w)]))
    value, tangent = wrap(lambda a: hl.jvp(lambda a: mapped(a, w), (a,), (a,)))(A)
    close(tangent, hl.jvp(lambda a: plain(a, w), (hnp.asarray(A),), (hnp.asarray(A),))[1])
    outer = hnp.asarray(A[0])
    close(
        wrap(lambda o: hl.shard_map(lambda a: a * o, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(A))(outer), A * A[0]
    )


def test_axes_left_to_the_compiler(mesh, put):
    seen = []

    def f(a):
        seen.append(a.shape)
        return lax.psum(a @ a.T, "x")

    mapped = hl.jit(hl.shard_map(f, mesh=mesh, in_specs=P(None, "x"), out_specs=P(), axis_names={"x"}))
    found = mapped(put(A, "y", "x"))
    close(found, A @ A.T)
    assert seen == [(8, 2)]
    gathered = hl.jit(
        hl.shard_map(
            lambda a: lax.all_gather(a, "x", tiled=True), mesh=mesh, in_specs=P("x"), out_specs=P(), axis_names={"x"}
        )
    )
    close(gathered(put(A, "x", "y")), A)
    with hl.set_mesh(mesh):
        split = hl.smap(lambda a: a - lax.pmean(a, "x"), in_axes=0, out_axes=0, axis_name="x")
        close(split(A), (A.reshape(4, 2, 8) - A.reshape(4, 2, 8).mean(0)).reshape(8, 8))


def test_specs_of_the_arguments_own_layouts(mesh, put):
    x = put(A, "x", "y")
    close(
        hl.shard_map(lambda a: a.sum(keepdims=True), mesh=mesh, out_specs=P("x", "y"))(x),
        A.reshape(4, 2, 2, 4).sum((1, 3)),
    )


def test_inside_loops_and_branches(mesh):
    ring = [(k, (k + 1) % 4) for k in range(4)]
    mapped = hl.shard_map(lambda a: lax.ppermute(a, "x", ring), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    close(hl.jit(lambda a: lax.fori_loop(0, 3, lambda k, a: mapped(a), a))(A), np.roll(A, 6, 0))
    close(hl.jit(lambda a: lax.cond(a.sum() > 100, lambda a: a, mapped, a))(A), np.roll(A, 2, 0))


def test_the_mesh_in_the_body(mesh):
    def f(a):
        inner = hl.sharding.get_abstract_mesh()
        assert inner.manual_axes == ("x", "y")
        return a

    close(hl.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(A), A)


def test_pmap(mesh):
    mapped = hl.pmap(
        lambda a, n: (a * n - lax.pmean(a, "d"), lax.axis_index("d")), "d", in_axes=(0, None), out_axes=(1, 0)
    )
    found, numbers = mapped(A, 3.0)
    close(found, (3 * A - A.mean(0)).T)
    np.testing.assert_array_equal(numbers, np.arange(8))
    assert found.sharding.spec == P(None, "d") and [str(s.device) for s in numbers.addressable_shards][:2] == [
        "cpu:0",
        "cpu:1",
    ]
    some = hl.pmap(lambda tree: {"s": tree["a"].sum() + tree["b"]})({"a": A[:3], "b": np.arange(3.0)})
    close(some["s"], A[:3].sum(1) + np.arange(3))
    static = hl.pmap(lambda a, name: a if name == "same" else -a, static_broadcasted_argnums=1)
    close(static(A[:2], "other"), -A[:2])
    close(hl.grad(lambda a: hl.pmap(lambda r: lax.psum((r**2).sum(), "i"), "i")(a)[0])(A), 2 * A)
    twice = hl.pmap(lambda a: a + 1)(hl.pmap(lambda a: a * 2)(A))
    close(twice, 2 * A + 1)
    assert twice.sharding.spec == P("_pmap")


def test_sums_have_the_same_bits_each_time(mesh, put):
    x = put(np.random.default_rng(0).normal(size=(64, 33)).astype(np.float32), "x", None)
    f = hl.jit(lambda x: (x.sum(0), (x.T @ x).sum()))
    first = [np.asarray(r).tobytes() for r in f(x)]
    assert all([np.asarray(r).tobytes() for r in f(x)] == first for _ in range(5))


def test_replicated_arguments_without_a_device(mesh):
    place = NamedSharding(mesh, P("x"))
    assert hl.jit(lambda a, b: a + b, in_shardings=(place, None))(A, A).sharding.spec == P("x")


def test_constraints_in_a_body_with_automatic_axes(mesh, put):
    """The mesh of the shard_map is the current one in its body."""

    @hl.jit
    @hl.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    def f(a):
        return lax.with_sharding_constraint(a * 2, P(None, "y")) + lax.psum(a, "x")

    a = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    expected = a * 2 + np.tile(a.reshape(4, 2, 8).sum(0), (4, 1))
    np.testing.assert_allclose(f(put(a, "x", "y")), expected, rtol=1e-6)

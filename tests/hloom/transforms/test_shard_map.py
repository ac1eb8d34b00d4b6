"""shard_map: parts of arrays, collectives between them, derivatives, and what does not fit."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import P, lax
from hloom.errors import ArgumentError, BatchingError, ShapeError


@pytest.fixture
def mesh():
    with hl.config(num_cpu_devices=8):
        yield hl.make_mesh((4, 2), ("x", "y"))


A = np.arange(8 * 6, dtype=np.float32).reshape(8, 6)
B = np.sin(np.arange(6 * 4, dtype=np.float32)).reshape(6, 4)


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
def test_matrix_product_of_blocks(mesh, wrap):
    shapes = []

    @hl.shard_map(mesh=mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", None))
    def multiply(a, b):
        shapes.append((a.shape, b.shape))
        return lax.psum(a @ b, "y")

    np.testing.assert_allclose(wrap(multiply)(A, B), A @ B, rtol=1e-5)
    assert shapes[0] == ((2, 3), (3, 4))


def test_parts_are_numbered_and_come_back_in_place(mesh):
    def number(a):
        return a * 0 + 10 * lax.axis_index("x") + lax.axis_index("y")

    found = hl.shard_map(number, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))(A)
    expected = 10 * np.arange(4)[:, None] + np.arange(2)
    np.testing.assert_array_equal(found, np.repeat(np.repeat(expected, 2, 0), 3, 1))
    both = hl.shard_map(number, mesh=mesh, in_specs=P(("x", "y")), out_specs=P(("x", "y")))(A)
    np.testing.assert_array_equal(both[:, 0], expected.ravel())
    turned = hl.shard_map(lambda a: a.T, mesh=mesh, in_specs=P("x", "y"), out_specs=P("y", "x"))(A)
    np.testing.assert_array_equal(turned, A.T)


def test_collectives_and_gradients(mesh):
    ring = [(k, (k + 1) % 4) for k in range(4)]
    shift = hl.shard_map(lambda a: lax.ppermute(a, "x", ring), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    np.testing.assert_array_equal(shift(A), np.roll(A, 2, 0))
    gather = hl.shard_map(
        lambda a: lax.all_gather(a, "x", tiled=True), mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False
    )
    np.testing.assert_array_equal(gather(A), A)

    def loss(w):
        part = hl.shard_map(
            lambda a, w: lax.pmean((a @ w) ** 2, ("x", "y")).sum(), mesh=mesh, in_specs=(P("x"), P()), out_specs=P()
        )
        return part(A, w)

    w = hnp.ones(6)
    np.testing.assert_allclose(hl.jit(hl.grad(loss))(w), 2 * A.T @ (A @ np.ones(6)) / 4, rtol=1e-5)


def test_trees_and_the_current_mesh(mesh):
    def f(params, x):
        return {"y": x @ params["w"] + params["b"], "n": lax.psum(x.shape[0], "x")}

    with hl.set_mesh(mesh):
        mapped = hl.shard_map(f, in_specs=(P(), P("x")), out_specs={"y": P("x"), "n": P()})
        found = mapped({"w": B, "b": hnp.ones(4)}, A)
    np.testing.assert_allclose(found["y"], A @ B + 1, rtol=1e-5)
    assert int(found["n"]) == 8
    from hloom.jax.experimental.shard_map import shard_map

    assert shard_map is hl.shard_map


def test_mistakes(mesh):
    with pytest.raises(ShapeError, match="dimension 1 of"):
        hl.shard_map(lambda a: a, mesh=mesh, in_specs=P(None, "x"), out_specs=P(None, "x"))(A)
    for ins, outs, what in ((P("z"), P(), "in_specs"), (P("x"), P("z"), "out_specs"), (P(("x", "z")), P(), "in_specs")):
        with pytest.raises(ShapeError, match=f"^{what} of shard_map of '<lambda>' name axes of the mesh\n.*with 'z'"):
            hl.shard_map(lambda a: a, mesh=mesh, in_specs=ins, out_specs=outs)(A)
    with pytest.raises(ShapeError, match="did you mean 'data'"):
        one = hl.make_mesh((1,), ("data",))
        hl.shard_map(lambda a: a, mesh=one, in_specs=P("date"), out_specs=P())(A)
    with pytest.raises(BatchingError):
        hl.shard_map(lambda a: a, mesh=mesh, in_specs=P("x"), out_specs=P())(A)
    with pytest.raises(ArgumentError, match="mesh"):
        hl.shard_map(lambda a: a, in_specs=P("x"), out_specs=P("x"))(A)
    with pytest.raises(ArgumentError, match="entry"):
        hl.shard_map(lambda a: a, mesh=mesh, in_specs=P(None, None, "x"), out_specs=P())(A)


@pytest.mark.parametrize("axes", [("d",), ("d", "e")])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: lax.psum(x, "d"), lambda x: lax.pmean(x, "d"), lambda x: lax.all_gather(x, "d", tiled=True),
        lambda x: lax.ppermute(x, "d", [(0, 0)]), lambda x: lax.psum_scatter(x, "d", tiled=True),
        lambda x: lax.all_to_all(x[None], "d", 0, 0)[0], lambda x: x * (1 + lax.axis_index("d")),
    ],
)  # fmt: skip
def test_a_mesh_of_one_device(mesh, function, axes):
    """A program that is written for many devices runs on one, in a program over several too."""
    alone = hl.sharding.Mesh(np.array(hl.devices()[:1]).reshape((1,) * len(axes)), axes)
    x = np.arange(4, dtype=np.float32)
    mapped = hl.shard_map(function, mesh=alone, in_specs=P("d"), out_specs=P("d"), check_vma=False)
    several = hl.device_put(x, hl.NamedSharding(mesh, P("x")))
    for found in (mapped(x), hl.jit(mapped)(x), hl.vmap(mapped)(x[None])[0], hl.jit(lambda x: mapped(x) + 0)(several)):
        np.testing.assert_array_equal(found, x)
    np.testing.assert_array_equal(hl.jit(hl.grad(lambda x: (mapped(x) ** 2).sum()))(x), 2 * x)
    lost = hl.shard_map(lambda x: lax.ppermute(x, "d", []), mesh=alone, in_specs=P("d"), out_specs=P("d"))
    assert not np.asarray(lost(x)).any()

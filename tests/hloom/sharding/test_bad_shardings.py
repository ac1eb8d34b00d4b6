"""Mistakes with meshes and shardings: clear errors with the user's line."""

from __future__ import annotations

import os

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax
from hloom.errors import ArgumentError, BatchingError, DeviceError, ShapeError, TreeError

A = np.arange(64, dtype=np.float32).reshape(8, 8)


def fails(kind, call, *texts: str) -> None:
    """The error is of this kind, has four parts and the line of this file, and says these texts."""
    with pytest.raises(kind) as found:
        call()
    message = str(found.value)
    assert all(part in message for part in ("found:", "where:", "repair:")), message
    assert os.path.basename(__file__) in message, message
    for text in texts:
        assert text in message, message


def test_meshes(mesh):
    devices = hl.devices()
    fails(DeviceError, lambda: hl.make_mesh((16,), ("x",)), "mesh of 16 devices", "HLOOM_NUM_CPU_DEVICES")
    fails(ArgumentError, lambda: hl.make_mesh((2, 2), ("x",)), "one name per axis")
    fails(ArgumentError, lambda: hl.sharding.Mesh(np.array(devices).reshape(4, 2), ("x", "x")), "name of its own")
    fails(ArgumentError, lambda: hl.sharding.Mesh([devices[0], devices[0]], "x"), "cpu:0 is there more than once")
    fails(DeviceError, lambda: hl.sharding.Mesh(["cpu:0", "cpu:9"], "x"), "cpu:9")


def test_specs(mesh):
    fails(ArgumentError, lambda: NamedSharding(mesh, P("z")), "mesh axis 'z'", "('x', 'y')")
    fails(ArgumentError, lambda: NamedSharding(mesh, P("xs")), "did you mean 'x'?")
    fails(ArgumentError, lambda: NamedSharding(mesh, P("x", "x")), "names it 2 times")
    fails(ArgumentError, lambda: NamedSharding(mesh, P(("x", "y"), "y")), "names it 2 times")
    fails(ShapeError, lambda: hl.device_put(A[0], NamedSharding(mesh, P("x", "y"))), "2 entries", "1 dimension")
    fails(ShapeError, lambda: hl.device_put(A[:6], NamedSharding(mesh, P("x"))), "in 4 parts", "f32[6,8]", "to 8")
    fails(ArgumentError, lambda: hl.device_put(A, P("x")), "no mesh is current", "hl.set_mesh")
    fails(ArgumentError, lambda: lax.with_sharding_constraint(A, P("x")), "no mesh is current")
    fails(ArgumentError, lambda: hl.jit(lambda x: lax.with_sharding_constraint(x, P("x")))(A), "no mesh is current")


def test_arrays_on_different_meshes(mesh, put):
    half = hl.sharding.Mesh(np.array(hl.devices()[:4]), "x")
    x, y = put(A, "x"), hl.device_put(A, NamedSharding(half, P("x")))
    for call in (lambda: x + y, lambda: hl.jit(hnp.add)(x, y), lambda: x @ y):
        fails(DeviceError, call, "cpu:7", "f32[8,8]", "hl.device_put(x, NamedSharding(mesh, spec))")
    on_one = hl.device_put(A, hl.devices()[1])
    fails(DeviceError, lambda: x * on_one, "on cpu:1")
    fails(
        DeviceError, lambda: hl.jit(lambda a: lax.with_sharding_constraint(a, y.sharding))(x), "one mesh in a program"
    )
    fails(DeviceError, lambda: lax.with_sharding_constraint(x, y.sharding), "on other devices")
    fails(DeviceError, lambda: hl.jit(lambda a: a, device="cpu:1")(x), "leave out device=")


def test_layouts_of_jit_that_contradict(mesh, put):
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "x"))
    f = hl.jit(lambda a: a, in_shardings=rows)
    fails(ArgumentError, lambda: f(put(A, None, "x")), "argument 0 as in_shardings", "move it with hl.device_put")
    np.testing.assert_array_equal(f(put(A, "x", None)), A)  # the same layout in other words
    g = hl.jit(lambda a: (a, a), out_shardings=(rows, columns, rows))
    fails(TreeError, lambda: g(A), "out_shardings")
    fails(ShapeError, lambda: hl.jit(lambda a: a[:6], out_shardings=rows)(A), "result 0", "f32[6,8]")
    fails(ShapeError, lambda: hl.jit(lambda a: a.sum(), out_shardings=rows)(A), "0 dimensions")
    fails(ShapeError, lambda: f(A[:6]), "in 4 parts")


def test_shard_map(mesh, put):
    def mapped(f, ins, outs, **options):
        return lambda: hl.shard_map(f, mesh=mesh, in_specs=ins, out_specs=outs, **options)(A)

    fails(BatchingError, mapped(lambda a: a, P("x"), P()), "is the same on all devices along 'x'", "lax.psum")
    fails(BatchingError, mapped(lambda a: lax.psum(a, "x"), P("x", "y"), P()), "along 'y'")
    fails(BatchingError, mapped(lambda a: a[0, 0] + lax.axis_index("y"), P(), P()), "along 'y'")
    fails(ShapeError, mapped(lambda a: a, P("z"), P()), "'z'")
    uneven = hl.shard_map(lambda a: a, mesh=mesh, in_specs=P(None, "x"), out_specs=P())
    fails(ShapeError, lambda: uneven(A[:, :6]), "splits dimension 1 of f32[8,6]")
    fails(TreeError, mapped(lambda a: a, (P("x"), P()), P()), "in_specs of shard_map", "no prefix")
    with pytest.raises(TreeError) as found:
        mapped(lambda a: a, (P("x"), P()), P())()
    assert len(str(found.value)) < 800  # not the values of the arguments
    fails(hl.errors.ParticipantsError, mapped(lambda a: lax.psum(a, "xx"), P("x"), P()), "did you mean 'x'?")
    fails(ArgumentError, mapped(lambda a: a, P(None, None, "x"), P()), "one entry per dimension")
    fails(ArgumentError, mapped(lambda a: a.sum(), P("x"), P("x")), "one entry per dimension", "result 0")
    fails(ArgumentError, mapped(lambda a: a, P("y"), P("y"), axis_names={"x"}), "name the axes in axis_names")
    fails(ArgumentError, mapped(lambda a: a, P("x"), P("x"), axis_names={"w"}), "'w'")
    fails(ArgumentError, mapped(lambda a: lax.with_sharding_constraint(a, P("x")), P("x"), P("x")), "'x' is manual")
    fails(ArgumentError, lambda: P("x", unreduced={"y"}), "unreduced", "'y'")
    fails(hl.errors.ParticipantsError, mapped(lambda a: lax.psum(a, "w"), P("x"), P("x")), "'w'")


def test_results_that_are_proved_to_be_equal(mesh):
    """What the check of shard_map follows: sums in loops and branches, gathers, operations on what is equal."""

    def f(a):
        def step(carry, row):
            return carry + lax.psum(row.sum(), ("x", "y")), None

        total, _ = lax.scan(step, 0.0, a)
        larger = lax.cond(total > 0, lambda t: t * 2, lambda t: t, total)
        rounds = lax.fori_loop(0, 3, lambda k, v: v + larger, total)
        return rounds + lax.all_gather(a, ("x", "y"), tiled=True).sum() + lax.pmax(a.max(), ("x", "y"))

    found = hl.shard_map(f, mesh=mesh, in_specs=P(("x", "y")), out_specs=P())(A)
    np.testing.assert_allclose(found, 7 * A.sum() + A.sum() + A.max(), rtol=1e-5)
    unequal = hl.shard_map(
        lambda a: lax.fori_loop(0, lax.axis_index("x"), lambda k, v: v + 1, 0), mesh=mesh, in_specs=P(), out_specs=P()
    )
    fails(BatchingError, lambda: unequal(A), "along 'x'")


def test_pmap(mesh):
    fails(DeviceError, lambda: hl.pmap(lambda a: a)(np.ones((9, 2))), "over 9 elements", "8 devices")
    add = hl.pmap(lambda a, b: a + b)
    fails(ShapeError, lambda: add(np.ones((4, 2)), np.ones((3, 2))), "over 4 elements", "argument 1 has 3")


def test_an_op_that_needs_all_of_a_split_matrix_says_so(put):
    x = put(np.eye(8, dtype=np.float32), "x")
    with pytest.warns(
        hl.errors.ReplicationWarning, match=r"cholesky(.|\n)*256 bytes(.|\n)*test_bad_shardings"
    ) as found:
        np.testing.assert_array_equal(hl.jit(hnp.linalg.cholesky)(x), np.eye(8))
    assert len(found) == 1

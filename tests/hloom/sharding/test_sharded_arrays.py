"""Arrays over several devices: their parts, eager operations, conversions, transformations."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax

A = np.sin(np.arange(64, dtype=np.float32)).reshape(8, 8)


def test_an_array_knows_its_parts(mesh, put):
    x = put(A, "x", "y")
    assert x.sharding == NamedSharding(mesh, P("x", "y")) and x.devices() == set(hl.devices())
    assert x.is_fully_addressable and not x.is_fully_replicated and x.committed
    shards = x.addressable_shards
    assert [str(s.device) for s in shards] == [f"cpu:{k}" for k in range(8)] and len(x.global_shards) == 8
    for shard in shards:
        np.testing.assert_array_equal(shard.data, A[shard.index])
        assert shard.data.shape == (2, 4) and shard.data.devices() == {shard.device} and shard.replica_id == 0
    np.testing.assert_array_equal(x.addressable_data(3), A[2:4, 4:])
    half = put(A, None, "y")
    assert [s.replica_id for s in half.addressable_shards] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert half.addressable_shards[0].index == (slice(None), slice(0, 4))
    assert put(A).is_fully_replicated and put(A).addressable_data(7).shape == (8, 8)
    assert x.sharding.devices_indices_map((8, 8))[hl.devices()[1]] == (slice(0, 2), slice(4, 8))
    assert hl.typeof(x).sharding == x.sharding


def test_both_names_on_one_dimension_and_other_orders_of_devices(mesh, put):
    x = put(A, ("y", "x"))
    np.testing.assert_array_equal(x, A)
    assert x.addressable_shards[1].index[0] == slice(4, 5)  # device 1 is y = 1, x = 0
    turned = hl.sharding.Mesh(np.array(hl.devices())[::-1], "d")
    y = hl.device_put(A, NamedSharding(turned, P("d")))
    assert y.addressable_shards[0].device == hl.devices()[7]
    np.testing.assert_array_equal(hl.jit(lambda a, b: a - 2 * b)(x, y), -A)
    assert not x.sharding.is_equivalent_to(y.sharding, 2)
    assert put(A, "x").sharding.is_equivalent_to(put(A, "x", None).sharding, 2)


def test_conversions(put):
    x = put(A, "x", "y")
    assert type(np.asarray(x)) is np.ndarray and np.asarray(x, np.float64).dtype == np.float64
    assert repr(x) == repr(hnp.asarray(A)) and str(x) == str(A) and x.tolist() == A.tolist()
    np.testing.assert_allclose([float(row.sum()) for row in x], A.sum(1), rtol=1e-4, atol=1e-6)
    assert float(x[3, 3]) == A[3, 3] and f"{x[0, 0]:.3f}" == f"{A[0, 0]:.3f}" and bool((x == A).all())
    assert len(x) == 8 and x.item(2, 1) == A[2, 1]
    for other in (pickle.loads(pickle.dumps(x)), copy.copy(x), hl.device_get(x), hnp.copy(x), np.from_dlpack(x)):
        np.testing.assert_array_equal(other, A)
    hl.block_until_ready(x)
    with pytest.raises(hl.errors.ArgumentError, match="each of 8 devices"):
        x.unsafe_buffer_pointer()


def test_moves(mesh, put):
    x = put(A, "x", "y")
    for spec in (P("y", "x"), P(None, ("x", "y")), P(), P(("x", "y")), P("x", "y")):
        moved = hl.device_put(x, NamedSharding(mesh, spec))
        assert moved.sharding.spec == spec
        np.testing.assert_array_equal(moved, A)
        np.testing.assert_array_equal(moved.addressable_data(5), A[moved.addressable_shards[5].index])
    back = hl.device_put(x, hl.devices()[3])
    assert back.devices() == {hl.devices()[3]} and back.sharding == hl.sharding.SingleDeviceSharding(hl.devices()[3])
    with hl.set_mesh(mesh):
        assert hl.sharding.reshard(x, P("y")).sharding.spec == P("y")
    tree = hl.device_put({"a": A, "b": (A[0], A)}, {"a": NamedSharding(mesh, P("x")), "b": NamedSharding(mesh, P("y"))})
    assert tree["a"].sharding.spec == P("x") and tree["b"][0].sharding.spec == P("y")
    numbers = np.arange(8.0)
    y = hl.device_put(numbers, NamedSharding(mesh, P("x")))
    numbers[:] = 0
    np.testing.assert_array_equal(y, np.arange(8.0))


def test_eager_operations_keep_the_layout(put):
    x, row = put(A, "x", "y"), hnp.asarray(A[0])
    for found, expected in [
        (hnp.tanh(x) + 1, np.tanh(A) + 1),
        (x * row, A * A[0]),
        (-x, -A),
        (hnp.where(x > 0, x, 0), np.where(A > 0, A, 0)),
        (x.astype("s32"), A.astype(np.int32)),
    ]:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert found.sharding == x.sharding, found.sharding
    for found, expected in [
        (x @ x.T, A @ A.T),
        (x.sum(0), A.sum(0)),
        (x.mean(), A.mean()),
        (x.max(1), A.max(1)),
        (x.reshape(4, 16), A.reshape(4, 16)),
        (x[1:5], A[1:5]),
        (x[np.array([5, 1])], A[np.array([5, 1])]),
        (x.at[2].set(0.0), np.concatenate([A[:2], A[:1] * 0, A[3:]])),
        (hnp.concatenate([x, x]), np.concatenate([A, A])),
        (hnp.sort(x, 0), np.sort(A, 0)),
        (hnp.cumsum(x, 0), np.cumsum(A, 0)),
        (hnp.argmax(x, 1), A.argmax(1)),
    ]:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        assert found.devices() == x.devices()


def test_programs_of_eager_operations_are_for_their_shapes(put):
    for size in (4, 8, 12, 16):
        assert float(put(np.arange(size)).max()) == size - 1


def test_transformations_outside_of_jit(put):
    x = put(A, "x", "y")
    gradient = hl.grad(lambda w: (hnp.sin(w) * x).sum())(x)
    np.testing.assert_allclose(gradient, np.cos(A) * A, rtol=1e-4, atol=1e-6)
    assert gradient.sharding == x.sharding
    value, pull = hl.vjp(lambda w: w @ w.T, x)
    np.testing.assert_allclose(pull(hnp.ones((8, 8)))[0], 2 * np.ones((8, 8)) @ A, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(hl.vmap(hnp.sum)(x), A.sum(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(hl.jvp(hnp.exp, (x,), (x,))[1], np.exp(A) * A, rtol=1e-5)

    np.testing.assert_allclose(hl.hessian(lambda v: (v**3).sum())(x[0]), np.diag(6 * A[0]), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(hl.jacfwd(lambda v: v.sum(0))(x).sum(), 64, rtol=1e-6)

    def branching(w):
        return (w * 2).sum() if float(w.sum()) > 100 else (w * 3).sum()

    np.testing.assert_allclose(hl.grad(branching)(x), np.full((8, 8), 3.0))


def test_control_flow(put):
    x = put(A, "x", "y")

    def step(carry, row):
        return carry + row, carry.sum()

    total, sums = hl.jit(lambda x: lax.scan(step, hnp.zeros(8), x))(x)
    np.testing.assert_allclose(total, A.sum(0), rtol=1e-4, atol=1e-5)
    assert sums.shape == (8,)
    doubled = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, x))[1]
    np.testing.assert_allclose(doubled, 8 * A, rtol=1e-6)
    chosen = hl.jit(lambda x: lax.cond(x.sum() > 100, lambda x: x, lambda x: x.T * 2, x))(x)
    np.testing.assert_allclose(chosen, A.T * 2, rtol=1e-6)
    kept = hl.jit(hl.grad(lambda x: hl.checkpoint(lambda v: hnp.sin(hnp.sin(v)).sum())(x)))(x)
    np.testing.assert_allclose(kept, np.cos(np.sin(A)) * np.cos(A), rtol=1e-4, atol=1e-6)
    assert kept.sharding == x.sharding


def test_donation_and_assignment(put):
    x = put(A, "x", "y")
    y = hl.jit(lambda x: x + 1, donate_argnums=0)(x)
    np.testing.assert_allclose(y, A + 1)
    assert x.is_deleted()
    with hl.config(item_assignment=True):
        z = put(A, "x")
        z[0] = 5.0
        np.testing.assert_array_equal(z, np.concatenate([np.full((1, 8), 5.0), A[1:]]))
        assert z.sharding.spec == P("x")


def test_arrays_from_parts(mesh):
    sharding = NamedSharding(mesh, P("x", "y"))
    asked = []

    def part(index):
        asked.append(index)
        return A[index]

    x = hl.make_array_from_callback((8, 8), sharding, part)
    np.testing.assert_array_equal(x, A)
    assert x.sharding == sharding and len(asked) == 8
    single = [hl.device_put(A[i], d) for d, i in sharding.addressable_devices_indices_map((8, 8)).items()]
    y = hl.make_array_from_single_device_arrays((8, 8), sharding, single[::-1])
    np.testing.assert_array_equal(y, A)
    z = hl.make_array_from_process_local_data(sharding, A)
    assert z.sharding == sharding
    np.testing.assert_array_equal(z, A)
    from hloom.jax.experimental import multihost_utils

    np.testing.assert_array_equal(multihost_utils.process_allgather(z, tiled=True), A)
    with pytest.raises(hl.errors.ShapeError, match=r"has the shape \(2, 4\)"):
        hl.make_array_from_callback((8, 8), sharding, lambda index: A)


def test_constants_that_functions_close_over(put):
    x = put(A, "x", "y")
    found = hl.jit(lambda y: x + y)(hnp.ones(8))
    np.testing.assert_allclose(found, A + 1)
    assert found.devices() == x.devices()


def test_checks_of_numbers(put):
    x = put(A * 0, "x")
    for operation in (lambda: x / x, lambda: hl.jit(lambda x: x / x)(x), lambda: (x / 0.0 - x / 0.0).sum()):
        with hl.config(debug_nans=True), pytest.raises(hl.errors.NonFiniteError, match="divide"):
            operation()
    assert np.isnan(np.asarray(x / x)).all()


def test_padding_is_never_seen(put):
    x = put(np.arange(1, 9, dtype=np.float32), "x")
    uneven = hl.jit(lambda x: hnp.concatenate([x, x[:3]]))(x)
    expected = np.concatenate([np.arange(1, 9), np.arange(1, 4)])
    for found, wanted in [
        (1 / uneven, 1 / expected),
        (uneven.prod(), expected.prod()),
        (uneven.min(), 1),
        (uneven[::-1], expected[::-1]),
    ]:
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert sum(s.data.size for s in uneven.addressable_shards) >= uneven.size


def test_pictures_of_layouts(mesh, put, capsys):
    hl.debug.visualize_array_sharding(put(A, "x"), use_color=False)
    rows = [line.strip("│┃ ") for line in capsys.readouterr().out.splitlines() if "CPU" in line]
    assert rows == ["CPU 0,1", "CPU 2,3", "CPU 4,5", "CPU 6,7"]
    hl.debug.visualize_sharding((8,), NamedSharding(mesh, P("y")))
    assert "CPU 0,2,4,6" in capsys.readouterr().out
    with pytest.raises(hl.errors.ArgumentError, match="one or two dimensions"):
        hl.debug.visualize_sharding((2, 2, 2), NamedSharding(mesh, P("y")))


def test_layouts_inside_of_jit_are_told_when_it_is_compiled(mesh, put, capsys):
    seen = []

    @hl.jit
    def f(x):
        y = (x * 2).T
        hl.debug.inspect_array_sharding(y, callback=seen.append)
        hl.debug.visualize_array_sharding(y, use_color=False)
        return y.sum()

    for _ in range(2):
        np.testing.assert_allclose(f(put(A, "x")), 2 * A.sum(), rtol=1e-4)
    assert seen == [NamedSharding(mesh, P(None, "x"))]
    assert "CPU 0,1  │     CPU 2,3" in capsys.readouterr().out
    f(A)
    assert seen[1:] == [hl.sharding.SingleDeviceSharding(hl.devices()[0])]


def test_arrays_like_sharded_ones(put):
    x = put(A, "x", "y")
    for like in (hnp.zeros_like(x), hnp.ones_like(x), hnp.full_like(x, 2.0), lax.full_like(x, 3.0), hnp.empty_like(x)):
        assert like.sharding == x.sharding
    assert hnp.zeros_like(x, shape=(3,)).sharding != x.sharding
    state = hl.optim.adam(0.1).init({"w": x})
    assert all(leaf.sharding == x.sharding for leaf in hl.tree.leaves(state) if leaf.shape == x.shape)

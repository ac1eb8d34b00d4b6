"""jit of arrays over several devices: what the user says of layouts, and what the compiled function tells."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax

A = np.cos(np.arange(64, dtype=np.float32)).reshape(8, 8)


def test_layouts_of_arguments_and_results(mesh, put):
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "y"))
    f = hl.jit(lambda a, b: (a @ b, a.sum()), in_shardings=(rows, columns), out_shardings=(columns, None))
    for _ in range(2):
        product, total = f(A, A)
        np.testing.assert_allclose(product, A @ A, rtol=1e-5, atol=1e-5)
        assert product.sharding == columns and total.sharding.is_fully_replicated
    np.testing.assert_allclose(f(put(A, "x"), hnp.asarray(A))[0], A @ A, rtol=1e-5, atol=1e-5)
    made = hl.jit(lambda: hnp.ones((8, 8)), out_shardings=rows)()
    assert made.sharding == rows and made.addressable_data(0).shape == (2, 8)
    with hl.set_mesh(mesh):
        g = hl.jit(lambda tree: tree["a"] * 2, in_shardings=({"a": P("y"), "b": None},), out_shardings=P("x"))
        assert g({"a": A, "b": 1.0}).sharding == rows


def test_propagation_keeps_the_batch_split(put):
    x, w = put(A, ("x", "y")), hnp.asarray(A)
    y = hl.jit(lambda x, w: hnp.tanh(x @ w) + 1)(x, w)
    assert y.sharding.spec == P(("x", "y"))
    np.testing.assert_allclose(y, np.tanh(A @ A) + 1, rtol=1e-5, atol=1e-5)


def test_constraints(mesh, put):
    @hl.jit
    def f(x):
        y = lax.with_sharding_constraint(x * 2, P(None, "y"))
        return y, lax.with_sharding_constraint(y + 1, NamedSharding(mesh, P("x", P.UNCONSTRAINED)))

    with hl.set_mesh(mesh):
        y, z = f(put(A, "x"))
    assert y.sharding.spec == P(None, "y") and z.sharding.spec[0] == "x"
    np.testing.assert_allclose(z, A * 2 + 1)
    alone = hl.jit(lambda x: lax.with_sharding_constraint(x, NamedSharding(mesh, P("y"))))(A)
    assert alone.sharding.spec == P("y")
    eager = lax.with_sharding_constraint(put(A, "x"), NamedSharding(mesh, P("y")))
    assert eager.sharding.spec == P("y")
    gradient = hl.jit(hl.grad(lambda x: f(x)[1].sum()))
    with hl.set_mesh(mesh):
        np.testing.assert_allclose(gradient(put(A, "x")), np.full((8, 8), 2.0))


def test_the_current_mesh_is_part_of_the_key(mesh):
    f = hl.jit(lambda x: lax.with_sharding_constraint(x, P("x")))
    other = hl.make_mesh((2, 4), ("x", "y"), hl.sharding.AxisType.Auto)
    for current in (mesh, other, mesh):
        with hl.set_mesh(current):
            assert f(A).sharding.mesh.axis_sizes == current.axis_sizes


def test_sizes_that_the_mesh_does_not_divide(put):
    x = put(A, "x")
    y = hl.jit(lambda x: hnp.concatenate([x, x[:3]]) + 1)(x)
    np.testing.assert_allclose(y, np.concatenate([A, A[:3]]) + 1)
    np.testing.assert_allclose(y.sum(0), (np.concatenate([A, A[:3]]) + 1).sum(0), rtol=1e-4)


def test_unused_and_repeated_arguments_and_numbers(put):
    x = put(A, "x")
    np.testing.assert_allclose(hl.jit(lambda x, y, n, unused: x * n + y)(x, x, 3, np.ones(5)), 4 * A, rtol=1e-6)


def test_what_a_compiled_function_tells(mesh, put, capsys):
    f = hl.jit(lambda x, w: ((x @ w) ** 2).sum())
    compiled = f.lower(put(A, "x"), put(A, None, "y")).compile()
    found = compiled.collectives()
    assert [row.kind for row in found] == ["all-reduce"] and found[0].axes and found[0].bytes > 0
    assert "all-reduce" in str(found) and "test_jit_shardings" in str(found)
    assert compiled.input_shardings[0][0].spec == P("x") and compiled.output_shardings.is_fully_replicated
    module = f.lower(put(A, "x"), A).module
    assert module.partitions == 8 and module.entry.parameters[0].sharding.dims == (("x",), ())
    np.testing.assert_allclose(compiled(put(A, "x"), put(A, None, "y")), ((A @ A) ** 2).sum(), rtol=1e-5)
    assert f.lower(A, A).compile().collectives() == []
    shape = hl.ShapeDtypeStruct((8, 8), "f32", sharding=NamedSharding(mesh, P("x")))
    assert f.lower(shape, shape).compile().output_shardings.is_fully_replicated
    with hl.config(debug=1):
        hl.jit(lambda x: (x * 3).sum())(put(A, "x"))
    assert "each device sends" in capsys.readouterr().err


def test_ordinary_calls_beside_sharded_ones(put):
    f = hl.jit(lambda x: x.sum(0) * 2)
    for _ in range(2):
        assert f(A).devices() == {hl.devices()[0]}
        assert len(f(put(A, "x")).devices()) == 8
        np.testing.assert_allclose(f(put(A, "x")), f(A), rtol=1e-5, atol=1e-6)


def test_random_keys_and_normal_numbers(mesh, put):
    key = hl.random.key(0)
    f = hl.jit(lambda key, x: hl.random.normal(key, (8, 8)) + x)
    np.testing.assert_array_equal(f(key, put(A * 0, "x", "y")), hl.random.normal(key, (8, 8)))


@pytest.mark.parametrize("size", [2, 3, 8])
def test_a_training_step(size):
    with hl.config(num_cpu_devices=8):
        mesh = hl.make_mesh((size,), ("data",), hl.sharding.AxisType.Auto)
        images = np.random.default_rng(0).normal(size=(24, 16)).astype(np.float32)
        labels = (images[:, 0] > 0).astype(np.float32)

        def loss(w, x, y):
            return hnp.mean((hnp.tanh(x @ w[0]) @ w[1] - y) ** 2)

        @hl.jit
        def step(w, x, y):
            return [a - 0.1 * g for a, g in zip(w, hl.grad(loss)(w, x, y), strict=True)]

        rng = np.random.default_rng(1)
        w = [rng.normal(size=(16, 8)).astype(np.float32), rng.normal(size=8).astype(np.float32)]
        whole = w
        split = hl.device_put(w, NamedSharding(mesh, P()))
        x, y = (hl.device_put(a, NamedSharding(mesh, P("data"))) for a in (images, labels))
        for _ in range(3):
            whole, split = step(whole, images, labels), step(split, x, y)
        for a, b in zip(whole, split, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
            assert b.sharding.is_fully_replicated

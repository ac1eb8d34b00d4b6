"""Programs as `jax.export` and sharded functions print them: open extents, platforms, meshes."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ShapeError

jax = pytest.importorskip("jax")
jnp, lax, P = jax.numpy, jax.lax, jax.sharding.PartitionSpec
X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)


def _check(found, wanted) -> None:
    found = [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]
    wanted = [np.asarray(x) for x in jax.tree.leaves(wanted)]
    assert [(x.shape, x.dtype) for x in found] == [(x.shape, x.dtype) for x in wanted]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


POLYMORPHIC = {
    "extents": ("n, m", lambda a: (jax.nn.softmax(a) * a.shape[0], a.reshape(-1), jnp.arange(2 * a.shape[1]))),
    "cumsum": ("n, 6", lambda a: lax.cumsum(a, 0)),
    "pooling": ("n, m", lambda a: lax.reduce_window(a, -jnp.inf, lax.max, (2, 2), (2, 2), "SAME")),
    "sort": ("n, 6", lambda a: (jnp.sort(a, 0), lax.top_k(a, 3))),
    "loop": ("n, 6", lambda a: lax.scan(lambda c, r: (c + r, c), jnp.zeros(6, np.float32), a)),
    "branch": ("n, 6", lambda a: lax.cond(a.sum() > 0, lambda t: 2 * t, lambda t: t - 1, a)),
    "random": ("n, 6", lambda a: a + jax.random.normal(jax.random.key(1), a.shape, np.float32)),
    "singular values": ("n, 6", lambda a: jnp.linalg.svd(a, compute_uv=False)),
    "padding": ("n, m", lambda a: jnp.pad(a, ((1, a.shape[1]), (0, 0)))),
}


@pytest.mark.parametrize("name", POLYMORPHIC)
def test_extents_that_an_export_leaves_open(name):
    extents, function = POLYMORPHIC[name]
    shape = jax.export.symbolic_shape(extents, constraints=["n >= 3"])
    exported = jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct(shape, np.float32))
    _check(hl.from_stablehlo(str(exported.mlir_module()))(X), function(X))


def test_platforms():
    def function(a):
        return jnp.linalg.cholesky(a @ a.T + 5 * jnp.eye(4, dtype=np.float32))

    exported = jax.export.export(jax.jit(function), platforms=["cuda", "cpu"])(X)
    _check(hl.from_stablehlo(str(exported.mlir_module()))(np.int32(1), X), function(X))


def _sharded(a):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    a = lax.with_sharding_constraint(a, jax.sharding.NamedSharding(mesh, P("i")))

    def inner(t):
        return (
            lax.psum(2 * t, "i"),
            lax.all_gather(t, "i"),
            lax.axis_index("i") + t[0, 0],
            lax.ppermute(t, "i", [(0, 0)]),
        )

    return jax.shard_map(inner, mesh=mesh, in_specs=P("i"), out_specs=(P(), P("i"), P(), P("i")), check_vma=False)(a)


@pytest.mark.parametrize("text", ["pretty", "hlo", "optimized"])
def test_meshes(text):
    lowered = jax.jit(_sharded).lower(X)
    if text == "pretty":
        assert "sdy.mesh @" in lowered.as_text()
        found = hl.from_stablehlo(lowered.as_text())(X)
    else:
        made = lowered.compile().as_text() if text == "optimized" else lowered.compiler_ir("hlo").as_hlo_text()
        found = hl.from_hlo(made)(X)
    _check(found, _sharded(X))


def test_meshes_are_printed_as_they_were_read():
    from hloom.ir.stablehlo import parse_program, print_program

    text = print_program(parse_program(jax.jit(_sharded).lower(X).as_text(), "f"))
    assert 'sdy.mesh @mesh = <["i" = 1]>' in text and 'sdy.sharding_constraint %arg0 <@mesh, [{"i"}, {}]> :' in text
    assert print_program(parse_program(text, "f")) == text


@pytest.mark.parametrize("size", ["?", "3"])
def test_an_assertion_about_sizes(size):
    """What jax writes for the constraints of an exported program with symbolic shapes."""
    text = """
        func.func public @main(%x: tensor<SIZExf32>) -> tensor<SIZExf32> {
          %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<SIZExf32>) -> tensor<i32>
          %c = stablehlo.constant dense<4> : tensor<i32>
          %p = stablehlo.compare GE, %n, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.custom_call @shape_assertion(%p, %n) {error_message = "at least 4, found {0}"}
            : (tensor<i1>, tensor<i32>) -> ()
          return %x : tensor<SIZExf32>
        }"""
    with pytest.raises(ShapeError, match="at least 4, found 3"):
        hl.from_stablehlo(text.replace("SIZE", size))(np.ones(3, np.float32))
    size = size.replace("3", "5")
    np.testing.assert_array_equal(hl.from_stablehlo(text.replace("SIZE", size))(np.ones(5, np.float32)), np.ones(5))

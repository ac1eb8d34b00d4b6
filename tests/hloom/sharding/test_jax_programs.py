"""Programs written for `jax.sharding`, run unchanged with hloom in jax's place."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os
os.environ["HLOOM_NUM_CPU_DEVICES"] = "8"
import hloom
hloom.as_jax()
from functools import partial
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import mesh_utils, multihost_utils
from jax.experimental.pjit import pjit
from jax.experimental.shard_map import shard_map
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P, auto_axes, explicit_axes

mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), axis_names=("a", "b"))
x = jax.random.normal(jax.random.key(0), (64, 8))
y = jax.device_put(x, NamedSharding(mesh, P("a", "b")))
assert jnp.sin(y).sharding == y.sharding
with mesh:
    f = jax.jit(lambda x: jax.lax.with_sharding_constraint(x @ x.T, P("a", None)))
    assert f(y).sharding.is_equivalent_to(NamedSharding(mesh, P("a")), 2)
    np.testing.assert_allclose(f(y), x @ x.T, rtol=1e-4, atol=1e-4)

line = jax.make_mesh((8,), ("i",), axis_types=(AxisType.Auto,))

@partial(shard_map, mesh=line, in_specs=P("i"), out_specs=P("i"))
def numbered(a):
    return a * jax.lax.axis_index("i")

np.testing.assert_array_equal(numbered(jnp.arange(8.0)), np.arange(8.0) ** 2)
total = jax.shard_map(lambda a: jax.lax.psum(a, "i"), mesh=line, in_specs=P("i"), out_specs=P())
assert total(jnp.arange(8)) == jax.jit(total)(jnp.arange(8)) == 28
jax.set_mesh(line)
w = jax.device_put(jnp.arange(16.0), P("i"))
gradient = jax.jit(lambda w: jax.grad(lambda v: (v**2).sum())(w), out_shardings=P("i"))(w)
np.testing.assert_array_equal(gradient, 2 * np.arange(16.0))
keys = jax.device_put(jax.random.split(jax.random.key(1), 8), NamedSharding(line, P("i")))
assert jax.vmap(jax.random.normal)(keys).shape == (8,) and keys.sharding.spec == P("i")
assert jnp.zeros((8, 2), device=NamedSharding(line, P("i"))).sharding.spec == P("i")
assert pjit(lambda a: a * 2, in_shardings=P("i"), out_shardings=P())(w).sharding.is_fully_replicated
assert auto_axes(lambda a: a * 2, out_sharding=P("i"))(w).sharding.spec == P("i")
assert explicit_axes(lambda a: a * 2, in_sharding=(P(),))(w).sharding.is_fully_replicated
np.testing.assert_array_equal(multihost_utils.process_allgather(w, tiled=True), np.arange(16.0))
assert jax.typeof(w).sharding == w.sharding
print("done")
"""


def test_a_program_of_jax():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "done", done.stderr

"""Functions that say themselves how devices share their work, and callbacks by parts: as on jax's CPU devices."""

from __future__ import annotations

import pytest

DEVICES = {"HLOOM_NUM_CPU_DEVICES": "8", "JAX_NUM_CPU_DEVICES": "8"}

START = """
import functools, threading
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
meshes = {name: Mesh(np.array(jax.devices(name)).reshape(4, 2), ('x', 'y')) for name in ('hloom', 'cpu')}
values = np.arange(48, dtype=np.float32).reshape(8, 6)
def put(name, array, *spec):
    return jax.device_put(array, NamedSharding(meshes[name], P(*spec)))
def on_both(program):
    found, wanted = (program(name) for name in ('hloom', 'cpu'))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        if isinstance(a, jax.Array):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-5, 1e-5)
            assert a.sharding.spec == b.sharding.spec, (a.sharding, b.sharding)
        else:
            assert a == b, (a, b)
"""

CALLED = """
def function(lower, asked, keep=None, rule='i j -> i j'):
    @custom_partitioning
    def f(x):
        return jnp.sin(x)
    def partition(mesh, args, result):
        asked.append((str(args[0].sharding.spec), str(result.sharding.spec), args[0].shape))
        layout = args[0].sharding if keep is None else NamedSharding(mesh, keep)
        return mesh, lower, layout, (layout,)
    f.def_partition(partition, sharding_rule=rule)
    return f

# What each device computes is what `partition` says (here not what the function says), and jax is told the layout.
def program(name):
    asked = []
    f = function(lambda x: jnp.sin(x) + x.shape[0], asked)
    by_x, by_both = (put(name, values, *spec) for spec in (('x',), ('x', 'y')))
    one, other = jax.jit(f)(by_x), jax.jit(f)(by_both)
    loop = jax.jit(lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0])(by_x)
    whole = jax.jit(f)(put(name, values))
    calls = jax.jit(functools.partial(function(lambda x: lax.psum(x, 'x'), asked, P('x'))))(by_x)
    moved = jax.jit(function(lambda x: x * 2, asked, P(('x', 'y'))))(put(name, values, 'y'))
    user = jax.jit(function(lambda x: x * 3, asked, P('x', 'y')), out_shardings=by_both.sharding)(by_x)
    return one, other, loop, whole, calls, moved, user, sorted(set(asked))
on_both(program)
found = jax.jit(function(lambda x: x + x.shape[0], []))(put('hloom', values, 'x'))
np.testing.assert_array_equal(found, values + 2)

# Dimensions that the axes do not divide: the devices' parts are padded.
def uneven(name):
    seen = []
    def lower(x):
        seen.append(x.shape)
        return x + x.shape[1]
    keep = NamedSharding(meshes[name], P(None, 'x'))
    return jax.jit(function(lower, [], P(None, 'x')))(put(name, values)), seen
on_both(uneven)

# Several results, one of them the same on all devices; static arguments; a rule that depends on them.
def several(name):
    @functools.partial(custom_partitioning, static_argnums=(2,))
    def both(x, y, scale):
        return x + 1, (y * scale).sum()
    def partition(scale, mesh, args, results):
        split, whole = NamedSharding(mesh, P('x')), NamedSharding(mesh, P())
        return mesh, lambda x, y: (x + 1, lax.psum((y * scale).sum(), 'x')), (split, whole), (split, split)
    both.def_partition(partition, sharding_rule=lambda scale, mesh, args, results: 'i j, k l -> i j, ')
    return jax.jit(both, static_argnums=2)(put(name, values, 'x'), put(name, values), 2)
on_both(several)

# Collectives and places are those of the mesh, also of one that has the devices in another order, or some of them.
def sums(mesh):
    @custom_partitioning
    def f(x):
        return jnp.cumsum(x, 0)
    def partition(mesh, args, result):
        def lower(x):
            own = jnp.cumsum(x, 0)
            ends = lax.all_gather(own[-1], 'x')
            before = jnp.arange(ends.shape[0])[:, None] < lax.axis_index('x')
            return own + jnp.where(before, ends, 0).sum(0)
        layout = NamedSharding(mesh, P('x', None))
        return mesh, lower, layout, (layout,)
    f.def_partition(partition, sharding_rule='i j -> i j')
    return jax.jit(f)(jax.device_put(values, NamedSharding(mesh, P('x', 'y'))))
for order, sizes in (([7, 6, 5, 4, 3, 2, 1, 0], (4, 2)), ([0, 2, 1, 3], (2, 2)), ([6, 7], (1, 2))):
    found = sums(Mesh(np.array(jax.devices('hloom'))[order].reshape(sizes), ('x', 'y')))
    np.testing.assert_allclose(found, np.cumsum(values, 0), 1e-5, 1e-5)

# Errors name what the user's functions did.
def failing(lower, text, layout=None):
    @custom_partitioning
    def f(x):
        return x
    def partition(mesh, args, result):
        where = NamedSharding(mesh, P('x'))
        return mesh, lower, where if layout is None else layout, (where,)
    f.def_partition(partition, sharding_rule='i j -> i j')
    for _ in range(2):
        try:
            jax.jit(f)(put('hloom', values, 'x'))
        except jax.errors.JaxRuntimeError as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)
failing(lambda x: x[:, :2], 'Mismatch in result shapes.')
failing(lambda x: x, 'Custom Partitioning rules must return Sharding.', 7)
failing(lambda x: [][0], 'list index out of range')
def calls_python(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
failing(calls_python, 'it calls Python')

# Within a shard_map, and on one device, the function itself is computed.
f = function(lambda x: x / 0, [])
inside = jax.shard_map(f, mesh=meshes['hloom'], in_specs=P('x'), out_specs=P('x'), check_vma=False)
np.testing.assert_allclose(jax.jit(inside)(put('hloom', values, 'x')), np.sin(values), 1e-5, 1e-5)
np.testing.assert_allclose(jax.jit(f)(jnp.asarray(values)), np.sin(values), 1e-5, 1e-5)
"""

OLDER = """
jax.config.update('jax_use_shardy_partitioner', False)
def function(asked, infer):
    @custom_partitioning
    def f(x):
        return x * 2
    def partition(mesh, args, result):
        asked.append(('partition', str(args[0].sharding.spec), str(result.sharding.spec)))
        layout = result.sharding
        return mesh, lambda x: x * 2, layout, (layout,)
    def infer_sharding(mesh, args, result):
        asked.append(('infer', str(args[0].sharding.spec)))
        return NamedSharding(mesh, infer)
    f.def_partition(partition, infer_sharding, lambda mesh, user: user.sharding, sharding_rule='i j -> i j')
    return f
def program(name):
    asked = []
    f = function(asked, P('y', 'x'))
    other = jax.jit(f)(put(name, values[:, :4], 'x'))
    inner = jax.jit(lambda x: f(x).sum(1))(put(name, values[:, :4], 'x'))
    return other, inner, sorted(set(asked))
on_both(program)

# jax's CPU aborts where only the readers' layout says how the result lies.
asked = []
@custom_partitioning
def f(x):
    return x * 2
def partition(mesh, args, result):
    asked.append(str(result.sharding.spec))
    return mesh, lambda x: x * 2, result.sharding, (result.sharding,)
f.def_partition(partition, None, lambda mesh, user: NamedSharding(mesh, P('x')), sharding_rule='i j -> i j')
split = NamedSharding(meshes['hloom'], P('x', 'y'))
np.testing.assert_array_equal(jax.jit(lambda x: f(x) + 1, out_shardings=split)(put('hloom', values)), values * 2 + 1)
assert asked == ["P('x', None)"], asked
"""

PARTS = """
def seen_by(function, *arguments):
    calls, lock = [], threading.Lock()
    def note(*parts):
        with lock:
            calls.append(tuple(np.asarray(part).tolist() for part in parts))
    jax.block_until_ready(function(note, *arguments))
    jax.effects_barrier()
    return sorted(calls)

def call(note, *arrays, **options):
    jax.debug.callback(note, *arrays, partitioned=True, **options)

def program(name):
    x, whole = put(name, values, 'x', 'y'), put(name, values[0])
    plain = seen_by(lambda note, *a: jax.jit(lambda *a: call(note, *a))(*a), x, whole)
    assert len(plain) == 8
    computed = seen_by(lambda note, x: jax.jit(lambda x: call(note, x * 2, x.sum()))(x), x)
    loop = seen_by(
        lambda note, x: jax.jit(lambda x: lax.fori_loop(0, 3, lambda k, c: (call(note, c), c + 1)[1], x))(x), x)
    assert len(loop) == 24
    manual = seen_by(lambda note, x: jax.jit(jax.shard_map(
        lambda x: (call(note, x), x)[1], mesh=meshes[name], in_specs=P('x'), out_specs=P('x')))(x), x)
    once = seen_by(lambda note, x: jax.jit(lambda x: jax.debug.callback(note, x))(x), x)
    assert once == [(values.tolist(),)]
    return plain, computed, loop, manual, once
on_both(program)
assert len(seen_by(lambda note: jax.jit(lambda x: (call(note), x)[1])(put('hloom', values, 'x')))) == 8

# What a function raises ends the call, and names the function's error.
def wrong(part):
    raise KeyError('no such part')
try:
    jax.block_until_ready(jax.jit(lambda x: (call(wrong, x), x)[1])(put('hloom', values, 'x')))
    jax.effects_barrier()
except Exception as error:
    assert 'no such part' in str(error), error
else:
    raise AssertionError('the error of a callback was lost')
"""


PROGRAMS = {"custom partitioning": CALLED, "the older partitioner": OLDER, "callbacks by parts": PARTS}


@pytest.mark.parametrize("part", PROGRAMS)
def test_what_jax_says_of_a_devices_part(run_jax, part):
    run_jax(START + PROGRAMS[part], **DEVICES)

"""Programs of jax for several devices of hloom: the values and layouts that jax's CPU devices have."""

from __future__ import annotations

import pytest

DEVICES = {"HLOOM_NUM_CPU_DEVICES": "8", "JAX_NUM_CPU_DEVICES": "8"}

START = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax, shard_map
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
devices = {name: jax.devices(name) for name in ('hloom', 'cpu')}
def mesh(name, *sizes):
    count = int(np.prod(sizes))
    return Mesh(np.array(devices[name][:count]).reshape(sizes), ('x', 'y', 'z')[:len(sizes)])
def on_both(program):
    found, wanted = (program(name) for name in ('hloom', 'cpu'))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-5, 1e-5)
        if isinstance(a.sharding, NamedSharding):
            assert a.sharding.spec == b.sharding.spec, (a.sharding, b.sharding)
values = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
"""

BUFFERS = """
arrays = [jax.device_put(values + k, device) for k, device in enumerate(devices['hloom'])]
for k, (x, device) in enumerate(zip(arrays, devices['hloom'])):
    assert x.devices() == {device}
    y = jax.jit(lambda x: x * 2)(x)
    assert y.devices() == {device} and np.array_equal(np.asarray(y), (values + k) * 2)
moved = jax.device_put(arrays[0], devices['hloom'][5])
assert moved.devices() == {devices['hloom'][5]} and np.array_equal(moved, values)
assert jax.jit(lambda x: x + 1, out_shardings=SingleDeviceSharding(devices['hloom'][3]))(values).devices() == {
    devices['hloom'][3]}
try:
    jax.jit(lambda a, b: a + b)(arrays[0], arrays[1])
except ValueError as error:
    assert 'incompatible devices' in str(error)
else:
    raise AssertionError('arrays of two devices were added')

# Each device has its part; a donated one is written over in place, unless something else looks at it.
x = jax.device_put(values, NamedSharding(mesh('hloom', 8), P('x')))
assert [s.data.devices() for s in x.addressable_shards] == [{d} for d in devices['hloom']]
y = jax.jit(lambda x: x + 1)(x)
where = [s.data.unsafe_buffer_pointer() for s in y.addressable_shards]
assert len(set(where)) == 8, where
step = jax.jit(lambda x: x * 2, donate_argnums=0)
z = step(y)
assert y.is_deleted() and [s.data.unsafe_buffer_pointer() for s in z.addressable_shards] == where
np.testing.assert_array_equal(z, (values + 1) * 2)
kept = np.asarray(z.addressable_shards[2].data)  # in place
w = step(z)
np.testing.assert_array_equal(w, (values + 1) * 4)
np.testing.assert_array_equal(kept, ((values + 1) * 2)[2:3])
print(w.sharding.spec)
"""

AUTOMATIC = """
def program(name):
    grid = mesh(name, 2, 4)
    x = jax.device_put(values, NamedSharding(grid, P('x', 'y')))
    w = jax.device_put(values.T, NamedSharding(grid, P('y', None)))
    def f(x, w):
        h = jnp.tanh(x @ w)
        h = lax.with_sharding_constraint(h, NamedSharding(grid, P(None, 'x')))
        return h, h.sum(0), h.T, jnp.sort(x, 1), jnp.cumsum(x, 0), (x * 2).reshape(-1)[:3], jnp.float32(1)
    return jax.jit(f)(x, w), jax.jit(jax.grad(lambda x, w: f(x, w)[1].sum(), (0, 1)))(x, w)
on_both(program)

def uneven(name):
    grid = mesh(name, 4)
    x = jax.device_put(values, NamedSharding(grid, P('x')))
    return jax.jit(lambda x: x[:6] + 1, out_shardings=NamedSharding(grid, P()))(x)
on_both(uneven)

# Meshes whose devices stand in another order, and parts of the devices.
def turned(name):
    grid = Mesh(np.array(devices[name])[[3, 1, 2, 0, 7, 6, 5, 4]].reshape(4, 2), ('x', 'y'))
    x = jax.device_put(values, NamedSharding(grid, P('y', 'x')))
    f = shard_map(lambda x: x * lax.axis_index('x') + lax.psum(x, 'y') + 10 * lax.axis_index('y'),
                  mesh=grid, in_specs=P('y', 'x'), out_specs=P('y', 'x'))
    return jax.jit(f)(x), jax.jit(lambda x: x.T + 1)(x), [s.data for s in x.addressable_shards]
on_both(turned)
"""

MANUAL = """
def program(name):
    grid = mesh(name, 2, 4)
    def f(x):
        own = lax.axis_index('x') * 4 + lax.axis_index('y')
        return (
            x * own, lax.psum(x, 'x'), lax.psum(x, ('x', 'y')), lax.pmax(x, 'y'),
            lax.all_gather(x, 'y', axis=1, tiled=True), lax.all_gather(x, 'x').sum(0),
            lax.psum_scatter(x, 'y', scatter_dimension=0, tiled=True),
            lax.all_to_all(x, 'y', 0, 1, tiled=True), lax.all_to_all(x, 'x', 1, 1, tiled=True),
            lax.ppermute(x, 'y', [(0, 1), (1, 2), (3, 0)]), lax.pmean(x, 'x'),
        )
    g = shard_map(f, mesh=grid, in_specs=P('x', 'y'), out_specs=P('x', 'y'), check_vma=False)
    x = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
    return jax.jit(g)(x)
on_both(program)

def loops(name):
    grid = mesh(name, 4)
    def f(x):
        def body(k, x):
            return x + lax.psum(x, 'x') * lax.axis_index('x') / (k + 1)
        x = lax.fori_loop(0, 3, body, x)
        return lax.cond(lax.axis_index('x') > 1, lambda x: x * 2, lambda x: -x, x)
    g = shard_map(f, mesh=grid, in_specs=P('x'), out_specs=P('x'))
    functions = g, jax.grad(lambda x: (g(x) ** 2).sum()), lambda x: g(x + 1).sum()
    return [jax.jit(function)(values) for function in functions]
on_both(loops)

def partly_manual(name):
    grid = mesh(name, 2, 4)
    g = shard_map(lambda x: lax.psum(x, 'x') + lax.axis_index('x'), mesh=grid, in_specs=P('x'), out_specs=P(),
                  axis_names={'x'}, check_vma=False)
    with jax.set_mesh(grid):
        return jax.jit(lambda x: g(x) * 2)(values)
on_both(partly_manual)

def mapped(name):
    f = jax.pmap(lambda x, y: (lax.psum(x, 'i') + y, lax.axis_index('i')), axis_name='i', devices=devices[name])
    return f(values, values), jax.pmap(lambda x: x ** 2, devices=devices[name][:2])(values[:2])
on_both(mapped)

# Callbacks are called for each participant.
seen = []
def record(x):
    seen.append(float(x.sum()))
    return x + 1
grid = mesh('hloom', 4)
f = shard_map(lambda x: jax.pure_callback(record, jax.ShapeDtypeStruct(x.shape, x.dtype), x), mesh=grid,
              in_specs=P('x'), out_specs=P('x'))
np.testing.assert_allclose(jax.jit(f)(values), values + 1)
assert len(seen) == 4
"""


PARTITIONED = """
from jax.experimental.layout import Format, Layout
grid = mesh('hloom', 2, 4)
x = jax.device_put(values, NamedSharding(grid, P('x', 'y')))

# The program of each device is what runs: parts, collectives, and what they send.
compiled = jax.jit(lambda x: jnp.sum(x, 1)).lower(x).compile()
text = compiled.as_text()
assert 'f32[4,4]' in text and 'all-reduce(' in text and 'num_partitions=8' in text, text
assert compiled.output_shardings.spec == P('x')
assert jax.jit(lambda x: x * 2).lower(x).compile().as_text().count('all-') == 0

# Devices in another order; an argument whose layout is the program's choice; a stated order of dimensions.
other = Mesh(np.array(devices['hloom'])[::-1].reshape(2, 4), ('x', 'y'))
moved = jax.device_put(x, NamedSharding(other, P('y', 'x')))
np.testing.assert_array_equal(moved, values)
np.testing.assert_array_equal(moved.addressable_shards[0].data, values[moved.addressable_shards[0].index])
g = jax.jit(lambda x: lax.with_sharding_constraint(x, NamedSharding(grid, P('x'))) + 1)
np.testing.assert_array_equal(g(values), values + 1)
turned = jax.device_put(values, Format(Layout((1, 0)), NamedSharding(grid, P('x'))))
assert turned.format.layout.major_to_minor == (1, 0) and np.array_equal(turned, values)

# Explicit axes: layouts in the types of traced values.
def explicit(name):
    with jax.set_mesh(jax.make_mesh((2, 4), ('x', 'y'), devices=devices[name])):
        x = jax.device_put(values, P('x', 'y'))
        w = jax.device_put(values.T, P('y', None))
        @jax.jit
        def f(x, w):
            y = jnp.einsum('ij,jk->ik', jnp.tanh(x), w, out_sharding=P('x', None))
            assert jax.typeof(y).sharding.spec == P('x', None)
            noise = jax.random.normal(jax.random.key(0), (8, 4), out_sharding=P('x'))
            return y, jax.sharding.reshard(y, P(None, 'y')), noise
        return f(x, w)
on_both(explicit)
"""

ONLY_SHARDY = """
# What was exported for one device runs on several, as on jax's CPU.
def exported(name):
    function = jax.jit(lambda x: (x ** 2).sum(0), in_shardings=NamedSharding(mesh(name, 1), P('x')))
    with jax.default_device(devices[name][0]):
        made = jax.export.export(function, platforms=[name])(values)
    return jax.jit(made.call)(jax.device_put(values, NamedSharding(mesh(name, 4, 2), P('x', 'y'))))
on_both(exported)

# Partial sums as a layout of results and arguments.
with jax.set_mesh(jax.make_mesh((2,), ('x',), devices=devices['hloom'][:2])):
    split = jax.device_put(np.arange(4), P('x'))
    partial = jax.jit(lambda x: x, out_shardings=P(unreduced={'x'}))(split)
    assert [s.data.tolist() for s in partial.addressable_shards] == [[0, 1, 0, 0], [0, 0, 2, 3]]
    assert jax.jit(lambda x: x, out_shardings=P('x'))(partial).tolist() == [0, 1, 2, 3]
    total = jax.jit(lambda x: lax.reduce_sum(x, axes=(0,), out_sharding=P(unreduced={'x'})))(split)
    assert [s.data.tolist() for s in total.addressable_shards] == [1, 5]

# Gradients of several batches are added up as partial sums, and summed once.
def accumulated(name):
    with jax.set_mesh(jax.make_mesh((2,), ('x',), axis_types=(jax.sharding.AxisType.Explicit,),
                                    devices=devices[name][:2])):
        def model(ws, x):
            return jnp.sum(lax.scan(lambda c, w: (jnp.tanh(c.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)), None),
                                    x.astype(jnp.bfloat16), ws)[0].astype(jnp.float32))
        def step(ws, xs):
            total = jax.reshard(jnp.zeros_like(ws), P(unreduced={'x'}))
            add = lambda total, x: (total + jax.grad(model)(ws, x), None)
            return jax.reshard(ws, P()) - jax.reshard(lax.scan(add, total, xs)[0], P())
        ws = jax.device_put(np.sin(values[:3, :, None] * values[3:6, None]), P(reduced={'x'}))
        xs = jax.device_put(np.cos(values).reshape(2, 4, 16), P(None, 'x', None))
        compiled = jax.jit(step).lower(ws, xs).compile()
        assert compiled.as_text().count('all-reduce(') == 1
        return np.asarray(compiled(ws, xs))
found, wanted = accumulated('hloom'), accumulated('cpu')
assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max(), (found, wanted)

# Batches of matrices stay split; of split matrices every device has the whole.
batch = np.stack([values @ values.T + (k + 20) * np.eye(8, dtype=np.float32) for k in range(4)])
batch = jax.device_put(batch, NamedSharding(mesh('hloom', 4), P('x')))
factor = jax.jit(jnp.linalg.cholesky)
assert 'all-gather' not in factor.lower(batch).compile().as_text()
np.testing.assert_allclose(factor(batch), np.linalg.cholesky(np.asarray(batch)), 1e-4, 1e-4)
"""

ALIKE = """
from jax.experimental.shard_alike import shard_alike
def program(name):
    grid = mesh(name, 2, 4)
    x = jax.device_put(values, NamedSharding(grid, P('x', 'y')))
    def f(x):
        free = NamedSharding(grid, P(P.UNCONSTRAINED, 'x'))
        y, z = shard_alike(x, jnp.ones(x.shape, x.dtype) * 3)
        return z, lax.with_sharding_constraint(jnp.sin(x), free), y
    return jax.jit(f)(x), jax.jit(f, out_shardings=NamedSharding(grid, P(('y', 'x'))))(x)
on_both(program)

# A function that says how it is partitioned, and what its result's layout is.
from jax.experimental.custom_partitioning import custom_partitioning
@custom_partitioning
def double(x):
    return x * 2
double.def_partition(
    partition=lambda mesh, given, result: (mesh, lambda x: x * 2, given[0].sharding, (given[0].sharding,)),
    infer_sharding_from_operands=lambda mesh, given, result: given[0].sharding, sharding_rule='i j -> i j')
def partitioned(name):
    return jax.jit(double)(jax.device_put(values, NamedSharding(mesh(name, 2, 4), P('x', 'y'))))
on_both(partitioned)

# Layouts that the program has, also where nobody stated them.
def inspected(name):
    grid, found = mesh(name, 4, 2), []
    def see(x):
        jax.debug.inspect_array_sharding(x, callback=lambda sharding: found.append(sharding.spec))
    def program(x):
        see(x)
        y = jnp.sin(x) @ x.T
        see(y), see(y.sum(0)), see(jnp.zeros(3))
        return lax.scan(lambda c, _: (see(c), (c * 2, None))[1], y, None, length=3)[0]
    manual = jax.shard_map(lambda x: (see(x), x)[1], mesh=grid, in_specs=P('x', 'y'), out_specs=P('x', 'y'))
    jax.jit(manual)(jax.device_put(values, NamedSharding(grid, P('x', 'y'))))
    jax.jit(program)(jax.device_put(values, NamedSharding(grid, P('x', 'y'))))
    return sorted(map(repr, found))
assert inspected('hloom') == inspected('cpu'), (inspected('hloom'), inspected('cpu'))
def refuse(sharding):
    raise KeyError('mine')
try:
    jax.jit(lambda x: (jax.debug.inspect_array_sharding(x, callback=refuse), x)[1])(
        jax.device_put(values, NamedSharding(mesh('hloom', 8), P('x'))))
except jax.errors.JaxRuntimeError as error:
    assert 'mine' in str(error)
else:
    raise AssertionError('the error of a callback was lost')
"""

CALLBACKS = """
from jax.experimental import io_callback
import warnings
grid = mesh('hloom', 2, 4)

# A result that a callback reads, too; that the callback takes all of it needs no warning.
seen = []
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter('always')
    whole = jax.jit(lambda x: (jax.debug.callback(seen.append, x), x)[1], in_shardings=NamedSharding(grid, P('x')),
                    out_shardings=NamedSharding(grid, P()))(np.arange(8.))
    jax.effects_barrier()
assert not found
np.testing.assert_array_equal(whole, np.arange(8.))
np.testing.assert_array_equal(seen[0], np.arange(8.))
x = jax.device_put(values, NamedSharding(grid, P('x', 'y')))
seen = []
def record(x):
    seen.append(np.shape(x))
    return np.asarray(x) * 2
kind = jax.ShapeDtypeStruct(values.shape, values.dtype)
for call in (lambda x: jax.pure_callback(record, kind, x), lambda x: io_callback(record, kind, x),
             lambda x: io_callback(record, kind, x, ordered=True), lambda x: (jax.debug.callback(record, x), x * 2)[1]):
    seen.clear()
    np.testing.assert_array_equal(jax.jit(call)(x), values * 2)
    jax.effects_barrier()
    assert seen == [(8, 16)], seen  # one device calls it, with the whole array

# An error of one device is that of the program, and the next call is well.
def fail(x):
    if fails and x.min() > values.min():
        raise ValueError('no more')
    return x
def body(x):
    return lax.psum(jax.pure_callback(fail, jax.ShapeDtypeStruct(x.shape, x.dtype), x), 'x')
f = jax.jit(shard_map(body, mesh=grid, in_specs=P('x', 'y'), out_specs=P(None, 'y')))
for fails in (True, False):
    try:
        found = f(x).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        assert fails and 'no more' in str(error)
    else:
        assert not fails
        np.testing.assert_allclose(found, values[:4] + values[4:], 1e-6)
"""


@pytest.mark.parametrize(
    "program",
    [BUFFERS, AUTOMATIC, MANUAL, PARTITIONED, ONLY_SHARDY, ALIKE, CALLBACKS],
    ids=["buffers", "automatic partition", "manual computations", "partitioned", "with Shardy", "alike", "callbacks"],
)
def test_several_devices(run_jax, program):
    run_jax(START + program, **DEVICES)


@pytest.mark.parametrize(
    "program",
    [AUTOMATIC, MANUAL, PARTITIONED, ALIKE, CALLBACKS],
    ids=["automatic partition", "manual computations", "partitioned", "alike", "callbacks"],
)
def test_annotations_of_gspmd(run_jax, program):
    """jax's older annotations say the same, but of partial sums and of what custom calls compute."""
    run_jax(START + program, JAX_USE_SHARDY_PARTITIONER="false", **DEVICES)


def test_more_devices_than_there_are(run_jax, tmp_path):
    """A stored program for eight devices where there are two, and one whose end is missing."""
    program = """
    import jax, sys
    from jax.sharding import NamedSharding, PartitionSpec as P
    x = jax.ShapeDtypeStruct((8,), 'f', sharding=NamedSharding(jax.make_mesh((8,), ('x',)), P('x')))
    open(PATH, 'wb').write(jax.jit(lambda x: x + 1).lower(x).compile().runtime_executable().serialize())
    """
    load = """
    import jax
    from jax._src import xla_bridge
    from jaxlib import _jax
    devices = _jax.DeviceList(tuple(jax.devices()))
    data = open(PATH, 'rb').read()
    for given in (data, data[:-9]):
        try:
            xla_bridge.get_backend().deserialize_executable(given, devices)
        except jax.errors.JaxRuntimeError as error:
            print(str(error).partition('repair')[0])
    assert jax.jit(lambda x: x + 1)(1.) == 2
    """
    path = repr(str(tmp_path / "program"))
    run_jax(program.replace("PATH", path), HLOOM_NUM_CPU_DEVICES="8")
    printed = run_jax(load.replace("PATH", path), HLOOM_NUM_CPU_DEVICES="2")
    assert "a program for 8 devices" in printed and "2 of hloom" in printed, printed
    assert "loading a serialized executable" in printed and "bytes of" in printed, printed


def test_groups_of_batch_elements():
    """Collectives in groups that no mesh has, in every way in which groups can stand."""
    import numpy as np

    from hloom.compiler.transforms.batch import batch
    from hloom.ir.build import Builder, scalar_computation
    from hloom.ir.interpret import evaluate
    from hloom.ir.types import DTYPES, Shape

    f32 = DTYPES["f32"]
    x = np.arange(8 * 4 * 2, dtype=np.float32).reshape(8, 4, 2)
    for groups in (((0, 1), (2, 3), (4, 5), (6, 7)), ((0, 4), (1, 5), (2, 6), (3, 7)), ((0, 2), (1, 3), (4, 6), (5, 7)),
                   ((3, 0, 5, 6), (1, 2, 7, 4))):  # fmt: skip
        size = len(groups[0])
        named = {"axis_name": ("i",), "axis_size": size, "axis_groups": groups}
        add = {"to_apply": scalar_computation("add", f32)}
        wanted = {name: np.zeros_like(x) for name in ("all-reduce", "all-to-all", "collective-broadcast")}
        wanted["all-gather"] = np.zeros((8, 4 * size, 2), np.float32)
        wanted["reduce-scatter"] = np.zeros((8, 4 // size, 2), np.float32)
        for group in groups:
            members = x[list(group)]
            for k, member in enumerate(group):
                part = slice(k * 4 // size, (k + 1) * 4 // size)
                wanted["all-reduce"][member] = members.sum(0)
                wanted["all-gather"][member] = np.concatenate(members, 0)
                wanted["reduce-scatter"][member] = members.sum(0)[part]
                wanted["all-to-all"][member] = np.concatenate(members[:, part], 0)
                wanted["collective-broadcast"][member] = members[0]
        for opcode, expected in wanted.items():
            builder = Builder("one")
            parameter = builder.parameter(Shape(f32, (4, 2)))
            own = {"dimensions": (0,)} if opcode in ("all-gather", "reduce-scatter", "all-to-all") else {}
            own |= add if opcode in ("all-reduce", "reduce-scatter") else {}
            made = builder.emit(opcode, parameter, **named, **own)
            many, _ = batch(builder.finish(made), [True], 8, [True], "i")
            found = evaluate(many, [x])
            np.testing.assert_array_equal(found, expected, err_msg=f"{opcode} {groups}")

"""Parts of jax that its CPU client has apart from programs: callbacks of buffers, futures, dependencies of control."""

from __future__ import annotations

# One process for all: it costs more than what it does.
PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax._src import xla_bridge
from jax._src.lax import parallel
from jax.experimental.buffer_callback import ExecutionStage, buffer_callback
from jax.experimental.control_deps import schedule
from jax.sharding import AxisType, PartitionSpec as P
from jaxlib.mlir.dialects import stablehlo

# --- callbacks that write into buffers ---
x = np.arange(6, dtype='f4').reshape(2, 3)

def twice(context, out, x, *, by):
    assert context.stage == ExecutionStage.EXECUTE and out['y'].writeable and not x.writeable
    assert (x.shape, x.dtype, x.ndim, out['n'].shape) == ((2, 3), np.dtype('f4'), 2, ())
    np.asarray(out['y'])[...] = np.from_dlpack(x) * np.asarray(by)
    np.asarray(out['n'])[...] = x.ndim
    try:
        context.stream
    except jax.errors.JaxRuntimeError as error:
        assert 'GPU context is not available' in str(error)
    else:
        raise AssertionError('a stream on a CPU')

kinds = {'y': jax.ShapeDtypeStruct((2, 3), 'f4'), 'n': jax.ShapeDtypeStruct((), 'i4')}
for run in (buffer_callback(twice, kinds), jax.jit(buffer_callback(twice, kinds))):
    found = run(x, by=np.float32(3))
    np.testing.assert_array_equal(found['y'], 3 * x)
    assert found['n'] == 2
batched = jax.vmap(buffer_callback(lambda c, out, a, b: np.add(a, b, out=np.asarray(out)),
                                   jax.ShapeDtypeStruct((3,), 'f4'), vmap_method='sequential'))
try:
    batched(x, x)  # it returns a value
except jax.errors.JaxRuntimeError as error:
    assert 'must not return any values' in str(error), error
else:
    raise AssertionError('a result of a callback of buffers')

def same(context, out, x):
    assert np.asarray(x).ctypes.data == np.asarray(out).ctypes.data
    np.asarray(out)[0] = 7

alias = buffer_callback(same, jax.ShapeDtypeStruct((2, 3), 'f4'), input_output_aliases={0: 0})
np.testing.assert_array_equal(jax.jit(lambda x: alias(x + 1))(x), np.vstack([[7, 7, 7], x[1] + 1]))
called = []
effect = buffer_callback(lambda *_: called.append(1), jax.ShapeDtypeStruct((), 'f4'), has_side_effect=True)
jax.jit(lambda x: (effect(), x)[1])(1.).block_until_ready()
assert called == [1]

# --- complex clamp, as on jax's CPU ---
z = np.array([1+2j, 1, 1-1j, 5j, 2-3j, complex(np.nan, 0), -1+3j, .5+.2j], 'c8')
for dtype in ('c8', 'c16'):
    with jax.enable_x64(True):
        clamp = lambda z: jax.lax.clamp(jnp.asarray(0, dtype), z, jnp.asarray(1+1j, dtype))
        found = [np.asarray(jax.jit(clamp)(jax.device_put(z.astype(dtype), d))) for d in
                 (jax.devices('hloom')[0], jax.devices('cpu')[0])]
    np.testing.assert_array_equal(*found)

# --- collectives that are started and finished; the order that a program asks for ---
assert '.'.join(map(str, xla_bridge.backend_stablehlo_version())) == stablehlo.get_current_version()
mesh = jax.make_mesh((2,), ('x',), axis_types=(AxisType.Auto,))
x = np.arange(16, dtype='f4').reshape(4, 4)

def both(start, plain):
    def overlapped(x):
        future = start(x)
        y = jnp.sin(x).sum()
        schedule([y, y + 1])
        return future.done() + y * 0
    run = lambda f: jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P('x'), out_specs=P('x'), check_vma=False))(x)
    np.testing.assert_array_equal(run(overlapped), run(plain))

lax, name = jax.lax, 'x'
both(lambda x: parallel.psum_start(x, name), lambda x: lax.psum(x, name))
both(lambda x: parallel.all_gather_start(x, name, tiled=True), lambda x: lax.all_gather(x, name, tiled=True))
both(lambda x: parallel.psum_scatter_start(x, name, tiled=True), lambda x: lax.psum_scatter(x, name, tiled=True))
both(lambda x: parallel.all_to_all_start(x, name, 1, 0, tiled=True),
     lambda x: lax.all_to_all(x, name, 1, 0, tiled=True))
both(lambda x: parallel.ppermute_start(x, name, [(0, 1), (1, 0)]), lambda x: lax.ppermute(x, name, [(0, 1), (1, 0)]))
"""


def test_callbacks_of_buffers_futures_and_dependencies(run_jax):
    run_jax(PROGRAM, HLOOM_NUM_CPU_DEVICES="2")

"""Calls that return before their results are there."""

from __future__ import annotations

ORDER = """
import os, threading, time
import jax, jax.numpy as jnp, numpy as np
start = np.random.default_rng(0).standard_normal((600, 600)).astype(np.float32) * .05
slow = jax.jit(lambda x: jnp.tanh(x @ x + x))
small = jax.jit(lambda x: x[0] * 2)
for _ in range(3):  # the first calls run at once, and are timed
    slow(start).block_until_ready(), small(start).block_until_ready()

# A call returns while it runs; what needs its result waits for it, and so does reading it.
x = jnp.asarray(start)
taken = []
for _ in range(5):
    x.block_until_ready()
    begin = time.perf_counter()
    y = slow(x)
    taken.append((time.perf_counter() - begin, y.is_ready()))
    y.block_until_ready()
    taken[-1] += (time.perf_counter() - begin,)
assert any(call < whole / 2 and not ready for call, ready, whole in taken), taken
z = small(slow(slow(x)))
wanted = start
for _ in range(2):
    wanted = np.tanh(wanted @ wanted + wanted)
np.testing.assert_allclose(z, wanted[0] * 2, 1e-3, 1e-5)

# Donated memory is the result's, over many calls that wait for one another; what others refer to is not written.
step = jax.jit(lambda x: jnp.sin(jnp.tanh(x) + jnp.cos(x)), donate_argnums=0)
for _ in range(3):
    step(jnp.asarray(start)).block_until_ready()
x = step(jnp.asarray(start)).block_until_ready()
where = x.unsafe_buffer_pointer()
for _ in range(6):
    x = step(x)
assert x.unsafe_buffer_pointer() == where
earlier = slow(x)  # is over before the next call writes
kept = np.asarray(x)  # in place
x = step(x)
wanted = start
for k in range(7):
    wanted = np.sin(np.tanh(wanted) + np.cos(wanted))
    if k == 5:
        np.testing.assert_allclose(kept, wanted, 1e-3, 1e-4)
        np.testing.assert_allclose(earlier, np.tanh(wanted @ wanted + wanted), 1e-3, 1e-3)
np.testing.assert_allclose(x, wanted, 1e-3, 1e-4)
assert x.unsafe_buffer_pointer() != where

# Deleted while a call reads it.
x = jnp.asarray(start)
y = slow(slow(x))
x.delete()
del x
np.testing.assert_allclose(y, slow(slow(start)), 1e-5)

# Many calls at once keep memory for a few results only.
x = jnp.asarray(start)
for _ in range(200):
    y = slow(x)
assert jax.devices()[0].memory_stats()['peak_bytes_in_use'] < 100 * start.nbytes
y.block_until_ready()

# Threads.
wrong = []
def work(number):
    x = jnp.asarray(start * number / 4)
    for _ in range(10):
        x = step(x) + 0
    if not np.isfinite(np.asarray(small(x))).all():
        wrong.append(number)
threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong

# Python functions run in the thread that calls the program, after what they wait for; they may call programs.
def host(x):
    return np.asarray(slow(slow(jax.device_put(x, jax.devices('hloom')[0]))))
called = jax.jit(lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1)
np.testing.assert_allclose(called(slow(start)), slow(slow(slow(start))) + 1, 1e-5, 1e-5)

# A process that forks while calls are under way.
y = slow(slow(x))
pid = os.fork()
if pid == 0:
    os._exit(int(not np.isfinite(np.asarray(slow(y))).all()))
assert os.waitpid(pid, 0)[1] == 0
slow(slow(y))
print('over')
"""


def test_calls_return_at_once_and_keep_their_order(run_jax):
    assert run_jax(ORDER).endswith("over\n")


def test_the_setting_of_jax(run_jax):
    program = """
    import jax, jax.numpy as jnp
    jax.config.update('jax_cpu_enable_async_dispatch', False)
    slow = jax.jit(lambda x: x @ x)
    x = jnp.ones((600, 600))
    assert all(slow(x).is_ready() for _ in range(20))
    """
    run_jax(program)


SEVERAL = """
import time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
rows = NamedSharding(Mesh(np.array(jax.devices()[:4]), ('x',)), P('x'))
start = np.random.default_rng(0).standard_normal((600, 600)).astype(np.float32) * .05
slow = jax.jit(lambda x: jnp.tanh(x @ x + x))
x = jax.device_put(start, rows)
for _ in range(3):
    slow(x).block_until_ready()
taken = []
for _ in range(5):
    begin = time.perf_counter()
    y = slow(x)
    taken.append((time.perf_counter() - begin, y.is_ready()))
    y.block_until_ready()
    taken[-1] += (time.perf_counter() - begin,)
assert any(call < whole / 2 and not ready for call, ready, whole in taken), taken
twice = np.tanh(start @ start + start)
twice = np.tanh(twice @ twice + twice)
np.testing.assert_allclose(slow(slow(x)), twice, 1e-3, 1e-4)

# Donated memory is the results', device by device; what an earlier call reads is not written.
step = jax.jit(lambda x: jnp.sin(jnp.tanh(x) + jnp.cos(x)), donate_argnums=0, out_shardings=rows)
def where():
    return [shard.data.unsafe_buffer_pointer() for shard in x.addressable_shards]
for _ in range(3):
    x = step(x).block_until_ready()
places = where()
for _ in range(6):
    x = step(x)
assert where() == places
wanted = start
for _ in range(9):
    wanted = np.sin(np.tanh(wanted) + np.cos(wanted))
np.testing.assert_allclose(x, wanted, 1e-3, 1e-4)
earlier = slow(x)
x = step(x)
np.testing.assert_allclose(earlier, np.tanh(wanted @ wanted + wanted), 1e-3, 1e-3)

# Deleted while a call reads it; deleted before.
x = jax.device_put(start, rows)
y = slow(slow(x))
x.delete()
np.testing.assert_allclose(y, twice, 1e-3, 1e-4)
try:
    slow(x)
except RuntimeError as error:
    assert 'deleted' in str(error)
else:
    raise AssertionError('a deleted array was read')

# What waits keeps memory for a few results only.
x = jax.device_put(start, rows)
for _ in range(200):
    y = slow(x)
assert jax.devices()[0].memory_stats()['peak_bytes_in_use'] < 100 * start.nbytes
y.block_until_ready()
"""


def test_calls_of_programs_for_several_devices(run_jax):
    run_jax(SEVERAL, HLOOM_NUM_CPU_DEVICES="4")


def test_a_buffer_that_is_donated_and_given_again_is_refused(run_jax):
    """As on jax's devices, also of a program that is queued, and of one for several devices; the buffer remains."""
    run_jax(
        """
        import jax, jax.numpy as jnp, numpy as np
        from jax.sharding import NamedSharding, PartitionSpec as P
        split = NamedSharding(jax.make_mesh((2,), ('a',)), P('a'))
        def refused(f, *arguments):
            try:
                jax.block_until_ready(f(*arguments))
            except (jax.errors.JaxRuntimeError, ValueError) as error:  # of several devices
                assert 'one buffer twice' in str(error), error
            else:
                raise AssertionError('a buffer was consumed that another argument needs')
        def slow(x, y):
            return jax.lax.fori_loop(0, 50, lambda k, x: jnp.sin(x) + y, x), y
        for place in (jax.devices()[0], split):
            make = lambda: jax.device_put(np.arange(40000, dtype=np.float32), place)
            x, y, z = make(), make(), make()
            for program, donated in ((lambda x, y: (x * 2, y), 0), (lambda x, y: (x * 2, y), (0, 1)), (slow, 1)):
                f = jax.jit(program, donate_argnums=donated)
                for _ in range(3):
                    jax.block_until_ready(f(make(), make()))
                refused(f, x, x)
                np.testing.assert_array_equal(x, np.arange(40000))
            f = jax.jit(lambda *a: [v + 1 for v in a], donate_argnums=(0, 2, 3))
            refused(f, x, y, z, y)
            refused(f, x, x, y, z)
            found = f(make(), x, y, z)
            assert not x.is_deleted() and y.is_deleted() and z.is_deleted()
            np.testing.assert_array_equal(found[3], np.arange(40000) + 1)
            np.testing.assert_array_equal(jax.jit(lambda x, y: x + y)(x, x), 2 * np.arange(40000))
        """,
        HLOOM_NUM_CPU_DEVICES="2",
    )

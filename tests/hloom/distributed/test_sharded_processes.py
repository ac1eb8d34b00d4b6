"""Arrays over the devices of several processes: made of each one's part, computed with, gathered; the same bits however
the devices are divided among processes."""

import pytest
from test_launch import launched, lines

pytest.importorskip("mpi4py", reason="programs in several processes: pip install 'hloom[cluster]'")

PROGRAM = """
import hashlib
import hloom.numpy as hnp
from hloom import NamedSharding, P, lax
from hloom.jax.experimental import multihost_utils

mesh = hl.make_mesh((8,), ("data",), axis_types=(hl.sharding.AxisType.Auto,))
rows = NamedSharding(mesh, P("data"))
A = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
x = hl.make_array_from_callback((8, 6), rows, lambda index: A[index])
assert x.is_fully_addressable == (hl.process_count() == 1)
assert len(x.addressable_shards) == hl.local_device_count() and len(x.global_shards) == 8
own = 8 // hl.process_count()
local = hl.make_array_from_process_local_data(rows, A[own * hl.process_index() :][:own])
np.testing.assert_array_equal(multihost_utils.process_allgather(local + 1, tiled=True), A + 1)


@hl.jit
def step(w, x):
    value, gradient = hl.value_and_grad(lambda w: hnp.mean(hnp.tanh(x @ w) ** 2))(w)
    return w - gradient, value


w = hl.device_put(np.ones((6, 3), np.float32), NamedSharding(mesh, P()))
for _ in range(3):
    w, value = step(w, x)


def around(a):
    # Every collective, in a loop whose end all devices decide together.
    n = lax.axis_size("data")

    def body(a):
        a = a + lax.ppermute(a, "data", [(k, (k + 1) % n) for k in range(n)])
        a = a * lax.all_gather(a, "data", tiled=True).mean() + lax.pmax(a, "data") / 8
        part = lax.psum_scatter(lax.all_gather(a, "data", tiled=True), "data", tiled=True)
        return hnp.tanh(part) + lax.all_to_all(hnp.tile(a, (8, 1)), "data", 0, 0, tiled=True).sum(0) / 8

    return lax.while_loop(lambda a: lax.pmin(hnp.max(a), "data") < 1.5, body, a)


shard = hl.jit(hl.shard_map(around, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False))
gathered = multihost_utils.process_allgather(shard(x), tiled=True)
assert np.isfinite(gathered).all()
total = hl.shard_map(lambda a: lax.psum(a, "data"), mesh=mesh, in_specs=P("data"), out_specs=P())(x)
np.testing.assert_allclose(total, A.reshape(8, 1, 6).sum(0), rtol=1e-5)
data = [np.asarray(w), np.asarray(total), gathered, multihost_utils.process_allgather(hnp.sum(x * 2, axis=1))]
print(hashlib.sha256(b"".join(d.tobytes() for d in data)).hexdigest(), float(value))
"""


@pytest.mark.slow
def test_the_same_bits_in_one_process_and_in_several(tmp_path):
    found = set()
    for processes, devices in ((1, 8), (2, 4), (8, 1)):
        options = ["--devices-per-process", str(devices)]
        done = launched(tmp_path, PROGRAM, processes=processes, options=options)
        assert done.returncode == 0, done.stderr
        for process in range(processes):
            (line,) = lines(done.stdout, process)
            found.add(line)
    assert len(found) == 1, found

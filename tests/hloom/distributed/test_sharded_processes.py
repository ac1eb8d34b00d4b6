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

mesh = hl.make_mesh((4,), ("data",))
rows = NamedSharding(mesh, P("data"))
A = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
x = hl.make_array_from_callback((8, 6), rows, lambda index: A[index])
assert x.is_fully_addressable == (hl.process_count() == 1)
assert len(x.addressable_shards) == hl.local_device_count() and len(x.global_shards) == 4
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
total = hl.shard_map(lambda a: lax.psum(a, "data"), mesh=mesh, in_specs=P("data"), out_specs=P())(x)
np.testing.assert_allclose(total, A.reshape(4, 2, 6).sum(0), rtol=1e-5)
print(hashlib.sha256(np.asarray(w).tobytes() + np.asarray(total).tobytes()).hexdigest(), float(value))
"""


def test_the_same_bits_in_one_process_and_in_several(tmp_path):
    found = set()
    for processes, devices in ((1, 4), (2, 2), (4, 1)):
        options = ["--devices-per-process", str(devices)]
        done = launched(tmp_path, PROGRAM, processes=processes, options=options)
        assert done.returncode == 0, done.stderr
        for process in range(processes):
            (line,) = lines(done.stdout, process)
            found.add(line)
    assert len(found) == 1, found

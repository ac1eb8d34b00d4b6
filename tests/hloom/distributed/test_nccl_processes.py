"""GPUs of several processes in one program: the fake driver and the fake NCCL in each, values between them by MPI."""

from pathlib import Path

import pytest
from test_launch import launched, lines

pytest.importorskip("mpi4py", reason="programs in several processes: pip install 'hloom[cluster]'")

SUPPORT = Path(__file__).parents[2] / "support"
SETUP = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
import numpy as np
import hloom as hl
import hloom.numpy as hnp
from fake_nccl import FakeNccl
from simulated_gpus import simulated_gpus
from hloom.runtime.cuda.libraries.nccl import Nccl
from hloom.backends.cuda.spmd import communicators, exchange, messages, program, watch

mail, turns = {{}}, {{}}


def remote(key, own):
    turns[key] = turn = turns.get(key, 0) + 1
    for other in range(hl.process_count()):
        if other != hl.process_index():
            wire.isend((key, turn, own), dest=other)
    while len(mail.get((key, turn), ())) < hl.process_count() - 1:
        found, number, data = wire.recv()
        mail.setdefault((found, number), []).append(data)
    for data in mail.pop((key, turn)):
        own = own | data
    return own


with simulated_gpus(2) as (driver, devices):
    hl.distributed.initialize()
    from mpi4py import MPI
    wire = MPI.COMM_WORLD.Dup()
    library = FakeNccl(driver, remote, hl.process_index())
    nccl = Nccl(library)
    for module in (communicators, exchange, messages, program, watch):
        module.nccl = lambda: nccl
    x = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
    y = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
"""
STEP = """
    def step(w, x):
        return w - 0.1 * hl.grad(lambda w: hnp.mean(hnp.tanh(x @ w) ** 2))(w), hnp.max(x)

    want, most = hl.jit(step)(y, x)
    mesh = hl.make_mesh((4,), ("data",), axis_types=(hl.sharding.AxisType.Auto,), devices=hl.devices("cuda"))
    rows = hl.NamedSharding(mesh, hl.P("data"))
    whole = hl.NamedSharding(mesh, hl.P())
    function = hl.jit(step)
    for _ in range(2):
        found, largest = function(hl.device_put(y, whole), hl.device_put(x, rows))
        np.testing.assert_allclose(found.addressable_shards[1].data, want, rtol=1e-5)
        np.testing.assert_allclose(largest.addressable_shards[0].data, most)
    names = library.names()
    print(len(hl.devices("cuda")), names.count("comm_init_rank_config"), names.count("get_unique_id"),
          sorted({str(s.data.device) for s in found.addressable_shards}))
    print(driver.violations)
    communicators.close_all()
    print(library.leaks())
    hl.distributed.barrier("the end")
"""


def test_a_data_parallel_step_over_gpus_of_two_processes(tmp_path):
    """The id goes from the first process to the other; ranks are the numbers of the devices in the program."""
    done = launched(tmp_path, STEP, processes=2, starts=SETUP)
    assert done.returncode == 0, done.stderr[-3000:]
    assert lines(done.stdout, 0) == ["4 2 1 ['cuda:0', 'cuda:1']", "[]", "[]"]
    assert lines(done.stdout, 1) == ["4 2 0 ['cuda:0', 'cuda:1']", "[]", "[]"]


PLACED = """
    first, second = (hl.device(f"/job:worker/task:{k}/cuda:0") for k in (0, 1))

    def layers(x, w):
        with first:
            y = hnp.tanh(x @ w)
        with second:
            return (y * 2 + 1).sum(0)

    want = hl.jit(lambda x, w: (hnp.tanh(x @ w) * 2 + 1).sum(0))(x, y)
    found = hl.jit(layers)(x, y)
    if hl.process_index() == 1:
        np.testing.assert_allclose(np.asarray(found), want, rtol=1e-5)
    del found
    print(library.names().count("send"), library.names().count("recv"), library.names().count("comm_init_rank_config"))
    for device in devices:
        device.close()
    print(driver.violations, library.leaks())
    hl.distributed.barrier("the end")
"""


def test_parts_on_gpus_of_two_processes(tmp_path):
    """A value goes from one GPU to the other, through a group of these two."""
    done = launched(tmp_path, PLACED, processes=2, starts=SETUP)
    assert done.returncode == 0, done.stderr[-3000:]
    assert lines(done.stdout, 0) == ["1 0 1", "[] []"]
    assert lines(done.stdout, 1) == ["0 1 1", "[] []"]

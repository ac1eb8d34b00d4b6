"""A run of `fit` over a mesh of two processes: one record of it, and one step after which all of them leave."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="programs in several processes: pip install 'hloom[cluster]'")
sys.path.append(str(Path(__file__).parents[1] / "distributed"))

from test_launch import launched, lines

PROGRAM = """
import hashlib, os, signal
import hloom.numpy as hnp
from hloom import NamedSharding, P, nn, optim, training

mesh = hl.make_mesh((4,), ("data",), axis_types=(hl.sharding.AxisType.Auto,))
everywhere, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
optimizer = optim.adam(0.01)
model = nn.Sequential(nn.Linear(4, 8, key=hl.random.key(0)), nn.relu, nn.Linear(8, 1, key=hl.random.key(1)))
state = hl.device_put(training.TrainState.of(model, optimizer, key=hl.random.key(2)), everywhere)
x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)


def loss(model, batch):
    return hnp.mean((model(batch) - hnp.sum(batch, axis=1, keepdims=True)) ** 2)


class Told(training.Callback):
    def on_step(self, loop):
        if loop.step == 5 and len(sys.argv) > 2 and hl.process_index() == hl.process_count() - 1:
            if sys.argv[2] == "stop":
                loop.stop("enough")
            else:
                os.kill(os.getpid(), signal.SIGTERM)


def batches(epoch):
    return [hl.device_put(x + k, rows) for k in range(10)]


try:
    result = training.fit(
        state, training.train_step(loss, optimizer), batches, steps=20, checkpoints=sys.argv[1], checkpoint_every=4,
        callbacks=[Told(), training.Summaries(sys.argv[1] + "/summaries")], log_every=1,
    )
except SystemExit as leaving:
    result = leaving.result
    print(result.step, result.stopped)
    hl.distributed.barrier()
    raise
leaves = hl.tree.leaves(result.state.model)
bits = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()
print(result.step, result.stopped, len(result.history), bits, hl.random.key_data(result.state.key).sharding.spec)
"""


def run(tmp_path, *arguments: str, processes: int = 2):
    folder = tmp_path / f"run{processes}"
    options = ["--devices-per-process", str(4 // processes)]
    return folder, launched(tmp_path, PROGRAM, str(folder), *arguments, processes=processes, options=options)


def test_all_processes_leave_after_one_step_and_go_on_with_the_same_bits(tmp_path):
    folder, done = run(tmp_path, "signal")
    assert done.returncode == 143, done.stderr
    assert lines(done.stdout, 0) == lines(done.stdout, 1) == ["5 interrupted"]
    _, done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout, 0) == lines(done.stdout, 1)
    _, alone = run(tmp_path, processes=1)
    assert lines(alone.stdout, 0) == lines(done.stdout, 0), alone.stderr
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 21))  # written once
    assert not lines(done.stderr, 1)  # process 0 shows the progress
    assert {p.name for p in folder.glob("metrics*")} == {"metrics.jsonl"}


def test_a_callback_that_stops_in_one_process_stops_all(tmp_path):
    _, done = run(tmp_path, "stop")
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout, 0)[0].startswith("5 process 1 stopped 5 ")
    assert lines(done.stdout, 1)[0].startswith("5 enough 5 ")

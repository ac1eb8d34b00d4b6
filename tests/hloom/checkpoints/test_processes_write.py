"""Checkpoints that several processes write together, and any number of them restores."""

import sys
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from hloom.checkpoints.processes import assigned
from hloom.errors import CheckpointError

sys.path.append(str(Path(__file__).parents[1] / "distributed"))
from test_launch import launched, lines

PROGRAM = """
import hloom.numpy as hnp
from hloom import NamedSharding, P

folder = sys.argv[1]
mesh = hl.make_mesh((2, 2), ("a", "b"))
A = np.arange(48, dtype=np.float32).reshape(8, 6)


def on(*spec):
    return NamedSharding(mesh, P(*spec))


tree = {
    "rows": hl.device_put(A, on(("a", "b"))), "blocks": hl.device_put(A, on("a", "b")),
    "columns": hl.device_put(A.astype("float8_e4m3fn"), on(None, "b")), "whole": hl.device_put(A, on()),
    "away": hl.device_put(A[0], hl.devices()[-1]), "plain": A[1], "step": 7, "key": hl.random.key(3),
}
hl.checkpoints.save(folder + "/first", tree)
try:
    hl.checkpoints.save(folder + "/first", tree)
except hl.errors.CheckpointError as error:
    print(str(error).splitlines()[1].strip())
try:
    hl.checkpoints.save(folder + "/other", {"x": A[: 4 + me]})
except hl.errors.CheckpointError as error:
    print(str(error).splitlines()[1].strip())
like = tree | {"rows": hl.device_put(A * 0, on(None, "a")), "blocks": hl.device_put(A * 0, on("b"))}
like |= {"columns": hl.device_put(A.astype("float8_e4m3fn"), on("b"))}
found = hl.checkpoints.restore(folder + "/first", like)
from hloom.jax.experimental.multihost_utils import process_allgather
for name in ("rows", "blocks", "columns", "whole", "away"):
    assert found[name].sharding == like[name].sharding
    expected = A[0] if name == "away" else A.astype(tree[name].dtype)
    np.testing.assert_array_equal(process_allgather(found[name]), expected)
with hl.checkpoints.Manager(folder + "/run", keep=2) as checkpoints:
    for step in range(4):
        tree["rows"] = hl.jit(lambda x: x + hnp.sum(x))(tree["rows"])
        checkpoints.save(step, tree)
    checkpoints.wait()
    hl.distributed.barrier()
    print(checkpoints.latest(), checkpoints.steps())
    last = checkpoints.restore(like)
np.testing.assert_array_equal(process_allgather(last["rows"]), process_allgather(tree["rows"]))
"""


def test_processes_write_one_checkpoint(tmp_path):
    pytest.importorskip("mpi4py", reason="programs in several processes: pip install 'hloom[cluster]'")
    done = launched(tmp_path, PROGRAM, str(tmp_path), processes=2, options=["--devices-per-process", "2"])
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout, 0) == [
        "found:  it exists",
        "found:  x: ['f32', [4, 6]] in process 0, ['f32', [5, 6]] in process 1",
        "3 [2, 3]",
    ]
    assert lines(done.stdout, 1) == [
        "found:  process 0 could not do its part: CheckpointError: it exists",
        *lines(done.stdout, 0)[1:],
    ]
    # One process reads what two have written.
    found = hl.checkpoints.restore(tmp_path / "first")
    whole = np.arange(48, dtype=np.float32).reshape(8, 6)
    for name, value in {"rows": whole, "blocks": whole, "whole": whole, "away": whole[0], "plain": whole[1]}.items():
        np.testing.assert_array_equal(found[name], value)
    assert (found["step"], found["key"] == hl.random.key(3)) == (7, True)
    assert sorted(p.name for p in (tmp_path / "first").iterdir()) == [
        "arrays-0.safetensors", "arrays-1.safetensors", "manifest.json"
    ]  # fmt: skip
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


@pytest.mark.quick
def test_each_part_is_written_once():
    half = [[[0], [2]]], [[[2], [2]]]
    offers = [{"x": ["f32", [4], half[0], ""], "y": ["f32", [4], [[[0], [4]]], ""]},
              {"x": ["f32", [4], half[1], ""], "y": ["f32", [4], [[[0], [4]]], ""]}]  # fmt: skip
    assert assigned(offers) == [{"x": [0], "y": [0]}, {"x": [0]}]
    with pytest.raises(CheckpointError, match="nothing of that name in process 1"):
        assigned([offers[0], {"x": offers[1]["x"]}])

"""Checkpoints: what is saved comes back, complete or not at all, and every difference is named."""

import json
import os
import signal
import subprocess
import sys
import threading
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloom as hl
import hloom.numpy as hnp
from hloom.checkpoints import directory, manager, safetensors
from hloom.errors import ArgumentError, CheckpointError, FileError, MissingFileError
from hloom.ir.types import DTYPES
from hloom.runtime import buffer


class State(NamedTuple):
    step: int
    params: dict
    moments: tuple
    key: object


def state():
    return State(
        7,
        {"layers": [{"kernel": hnp.arange(12.0).reshape(3, 4), "bias": hnp.zeros(4, "bf16")}, None]},
        (np.float32(2.5), np.arange(3)),
        hl.random.key(3),
    )


def assert_same(found, wanted):
    assert hl.tree.structure(found) == hl.tree.structure(wanted)
    for a, b in zip(hl.tree.leaves(found), hl.tree.leaves(wanted), strict=True):
        if hasattr(a, "_implementation"):
            assert bool((a == b).all())
        else:
            assert type(a) is type(b) and np.array_equal(np.asarray(a), np.asarray(b))
            assert getattr(a, "dtype", None) == getattr(b, "dtype", None)


def test_a_tree_comes_back(tmp_path):
    saved = state()
    hl.checkpoints.save(tmp_path / "c", saved, step=7, metrics={"loss": 0.5}, metadata={"name": "run"})
    assert_same(hl.checkpoints.restore(tmp_path / "c", like=saved), saved)
    found = hl.checkpoints.Checkpoint(tmp_path / "c")
    assert (found.step, found.metrics, found.metadata) == (7, {"loss": 0.5}, {"name": "run"})
    assert "params/layers/0/kernel" in found.names
    assert sorted(os.listdir(tmp_path)) == ["c"]


def test_containers_come_back_without_a_tree_to_be_like(tmp_path):
    saved = {"a": [1, 2.5, "text", None, True, (3 + 4j)], "b": (hnp.ones(3), {"c": hnp.arange(4)}), 5: {}}
    hl.checkpoints.save(tmp_path / "c", saved)
    assert_same(hl.checkpoints.restore(tmp_path / "c"), saved)
    hl.checkpoints.save(tmp_path / "d", state())
    with pytest.raises(CheckpointError, match="pass like="):
        hl.checkpoints.restore(tmp_path / "d")


@settings(max_examples=40)
@given(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 4), max_size=3), st.integers(0, 2**32 - 1))
def test_arrays_of_all_dtypes_come_back(tmp_path_factory, name, dims, seed):
    folder = tmp_path_factory.mktemp("c")
    array = np.random.default_rng(seed).integers(0, 2, dims).astype(DTYPES[name])
    hl.checkpoints.save(folder / "c", [hl.numpy.asarray(array), array])
    first, second = hl.checkpoints.restore(folder / "c", like=[hl.ShapeDtypeStruct(dims, array.dtype), array])
    assert isinstance(first, hl.Array) and first.dtype == array.dtype and isinstance(second, np.ndarray)
    assert np.asarray(first).tobytes() == array.tobytes() == second.tobytes()


def test_optimizers_and_models_come_back(tmp_path):
    model = hl.nn.Sequential(hl.nn.Linear(3, 4, key=hl.random.key(0)), hl.nn.Linear(4, 2, key=hl.random.key(1)))
    optimizer = hl.optim.adam(1e-3)
    saved = {"model": model, "optimizer": optimizer.init(model)}
    hl.checkpoints.save(tmp_path / "c", saved)
    other = hl.nn.Sequential(hl.nn.Linear(3, 4, key=hl.random.key(5)), hl.nn.Linear(4, 2, key=hl.random.key(6)))
    found = hl.checkpoints.restore(tmp_path / "c", like={"model": other, "optimizer": optimizer.init(other)})
    assert_same(found, saved)
    assert any("kernel" in name or "weight" in name for name in hl.checkpoints.Checkpoint(tmp_path / "c").names)


def test_every_difference_is_named(tmp_path):
    hl.checkpoints.save(tmp_path / "c", {"w": hnp.ones((3, 4)), "n": 3, "b": hnp.zeros(2), "k": hl.random.key(0)})
    like = {"w": hnp.ones((4, 3)), "n": "text", "c": hnp.zeros(2), "k": hl.random.key(0, impl="rbg")}
    with pytest.raises(CheckpointError) as caught:
        hl.checkpoints.restore(tmp_path / "c", like=like)
    text = str(caught.value)
    assert "5 differences" in text
    assert "c: expected f32[2], not in the checkpoint" in text
    assert "w: expected f32[4,3], found f32[3,4]" in text
    assert "n: expected str, found int" in text
    assert "k: expected key<rbg>[], found key<fry>[]" in text
    assert "b: in the checkpoint, not in like" in text
    assert "test_checkpoints.py" in text  # the user's line
    found = hl.checkpoints.restore(tmp_path / "c", like={"b": hnp.ones(2), "c": hnp.ones(2)}, partial=True)
    assert np.array_equal(found["b"], [0, 0]) and np.array_equal(found["c"], [1, 1])


def test_what_cannot_be_saved_is_named(tmp_path):
    for tree, words in (
        ({"f": print}, "f\n  found:  builtin_function_or_method"),
        ({"a": np.array(["text"])}, "dtype <U4"),
        ({"a/b": 1, "a": {"b": 2}}, "two leaves are 'a/b'"),
    ):
        with pytest.raises(CheckpointError) as caught:
            hl.checkpoints.save(tmp_path / "c", tree)
        assert words in str(caught.value)
    hl.checkpoints.save(tmp_path / "c", {"a": 1})
    with pytest.raises(CheckpointError, match="it exists"):
        hl.checkpoints.save(tmp_path / "c", {"a": 1})
    with pytest.raises(MissingFileError, match="name the folder of a saved checkpoint"):
        hl.checkpoints.restore(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError):
        hl.checkpoints.save(tmp_path / "file" / "c", {"a": 1})


def _damage_manifest(change):
    def damage(folder):
        manifest = json.loads((folder / "manifest.json").read_text())
        change(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return damage


def _shard(manifest):
    return manifest["arrays"]["w"]["shards"][0]


def _cut(folder, count):
    file = folder / "arrays-0.safetensors"
    file.write_bytes(file.read_bytes()[:count])


def _header(folder, header: dict | bytes):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / "arrays-0.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(64))


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: (f / "manifest.json").write_text("{"),
        lambda f: (f / "manifest.json").write_bytes(b"\xff\xfe"),
        lambda f: (f / "manifest.json").write_text("[" * 100_000),
        _damage_manifest(lambda m: m.pop("arrays")),
        _damage_manifest(lambda m: m.update(format="another")),
        _damage_manifest(lambda m: m["arrays"]["w"].update(shape=[1 << 62, 4])),
        _damage_manifest(lambda m: m["arrays"]["w"].update(dtype="f99")),
        _damage_manifest(lambda m: _shard(m).update(file="../secret")),
        _damage_manifest(lambda m: _shard(m).update(file="/etc/passwd")),
        _damage_manifest(lambda m: _shard(m).update(start=[2, 0])),
        _damage_manifest(lambda m: _shard(m).update(shape=[-3, -4])),
        _damage_manifest(lambda m: _shard(m).update(name="absent")),
        lambda f: _cut(f, 0),
        lambda f: _cut(f, 7),
        lambda f: _cut(f, 40),
        lambda f: _cut(f, -1),
        lambda f: _header(f, b"\xff" * 32),
        lambda f: _header(f, {"w": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 1 << 60]}}),
        lambda f: _header(f, {"w": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 48]}}),
        lambda f: _header(f, {"w": {"dtype": "F32", "shape": [3, -4], "data_offsets": [0, 48]}}),
        lambda f: _header(f, {"w": {"dtype": "F64", "shape": [3, 4], "data_offsets": [0, 96]}}),
        lambda f: _header(f, {"w": 5}),
        lambda f: (f / "arrays-0.safetensors").write_bytes((1 << 62).to_bytes(8, "little")),
        lambda f: (f / "arrays-0.safetensors").unlink(),
    ],
)
def test_damaged_files_are_refused(tmp_path, damage):
    hl.checkpoints.save(tmp_path / "c", {"w": hnp.ones((3, 4))})
    damage(tmp_path / "c")
    with pytest.raises((CheckpointError, FileError)):
        hl.checkpoints.restore(tmp_path / "c")


def test_parts_of_an_array_are_put_together(tmp_path):
    """As programs on several devices write them."""
    whole = np.arange(24.0).reshape(4, 6)
    snapshot = directory.Snapshot({"w": whole})
    snapshot.arrays["w"].parts = [
        ((a, b), np.ascontiguousarray(whole[a : a + 2, b : b + 3])) for a in (0, 2) for b in (0, 3)
    ]
    directory.write(tmp_path / "c", snapshot)
    assert np.array_equal(hl.checkpoints.restore(tmp_path / "c")["w"], whole)


def test_regions_of_a_file(tmp_path):
    array = np.arange(4 * 5 * 6, dtype=np.int16).reshape(4, 5, 6)
    safetensors.write(tmp_path / "f", {"a": array, "e": np.zeros((0, 3), np.float32)})
    with safetensors.File(tmp_path / "f") as file:
        assert np.array_equal(file.read("a", [slice(1, 3), slice(0, 5), slice(0, 6)]), array[1:3])
        assert np.array_equal(file.read("a", [slice(1, 3), slice(2, 4), slice(5, 6)]), array[1:3, 2:4, 5:6])
        assert file.read("e").shape == (0, 3)


def test_files_of_the_safetensors_package(tmp_path):
    package = pytest.importorskip("safetensors.numpy", reason="files of others: pip install safetensors")
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array(3, np.int8)}
    package.save_file(arrays, tmp_path / "theirs")
    found = hl.checkpoints.load_safetensors(tmp_path / "theirs")
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays)
    hl.checkpoints.save_safetensors(tmp_path / "ours", {**found, "c": hnp.ones(3, "bf16")}, {"made": "here"})
    back = package.load_file(tmp_path / "ours")
    assert sorted(back) == ["a", "b", "c"] and back["c"].dtype == ml_dtypes.bfloat16
    assert all(np.array_equal(back[name], arrays[name]) for name in arrays)


def test_types_that_the_format_lacks(tmp_path):
    with pytest.raises(CheckpointError, match="the format has no c128"):
        hl.checkpoints.save_safetensors(tmp_path / "f", {"a": np.zeros(3, complex)})


# --- the manager --------------------------------------------------------------------------------------------------


def test_a_manager_keeps_the_last_and_the_best(tmp_path):
    with hl.checkpoints.Manager(tmp_path, keep=2, best=("loss", "min")) as checkpoints:
        for step, loss in enumerate((5.0, 1.0, float("nan"), 4.0, 3.0, 2.0)):
            checkpoints.save(step, {"w": hnp.full(3, step)}, metrics={"loss": loss})
        checkpoints.wait()
        assert (checkpoints.steps(), checkpoints.latest(), checkpoints.best()) == ([1, 4, 5], 5, 1)
        assert np.array_equal(checkpoints.restore()["w"], [5, 5, 5])
        assert np.array_equal(checkpoints.restore(step=1)["w"], [1, 1, 1])
        assert checkpoints.metrics(4) == {"loss": 3.0}
        with pytest.raises(CheckpointError, match="metric 'loss'"):
            checkpoints.save(9, {})


def test_a_manager_keeps_every_so_many(tmp_path):
    with hl.checkpoints.Manager(tmp_path, keep=1, keep_every=3) as checkpoints:
        for step in range(8):
            checkpoints.save(step, {"n": step})
    assert checkpoints.steps() == [0, 3, 6, 7]
    with hl.checkpoints.Manager(tmp_path / "hours", keep=1, keep_every_hours=1.0) as checkpoints:
        for step in range(4):
            checkpoints.save(step, {"n": step}, wait=True)
            age = 3600 * (4 - step) // 2
            os.utime(checkpoints.path(step), (10_000_000 - age, 10_000_000 - age))
        checkpoints.save(4, {"n": 4}, wait=True)
    assert checkpoints.steps() == [0, 1, 3, 4]  # the first of each hour, and the last


def test_what_goes_wrong_in_the_background_is_raised(tmp_path, monkeypatch):
    checkpoints = hl.checkpoints.Manager(tmp_path)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(directory.safetensors, "_write", full)
    checkpoints.save(1, {"w": hnp.ones(3)})
    with pytest.raises(FileError, match="No space left"):
        checkpoints.wait()
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []
    checkpoints.save(1, {"w": hnp.ones(3)}, wait=True)
    assert checkpoints.steps() == [1]


def test_donated_and_changed_arrays_are_saved_as_they_were(tmp_path, monkeypatch):
    """The program goes on while the checkpoint is written."""
    go, original = threading.Event(), safetensors.write

    def late(*arguments):
        assert go.wait(30)
        return original(*arguments)

    monkeypatch.setattr(directory.safetensors, "write", late)
    step = hl.jit(lambda w: w * 2 + 1, donate_argnums=0)
    w, own = step(hnp.arange(1000.0)), np.arange(5)
    wanted = np.array(w)
    with hl.checkpoints.Manager(tmp_path) as checkpoints:
        checkpoints.save(1, {"w": w, "own": own})
        for _ in range(5):
            w = step(w)
        own[:] = -1
        go.set()
    found = checkpoints.restore()
    assert np.array_equal(found["w"], wanted) and np.array_equal(found["own"], np.arange(5))


def test_wrong_arguments_of_a_manager(tmp_path):
    with pytest.raises(ArgumentError, match="keep=0"):
        hl.checkpoints.Manager(tmp_path, keep=0)
    with pytest.raises(ArgumentError, match="names a metric and its order"):
        hl.checkpoints.Manager(tmp_path, best=("loss", "least"))
    with pytest.raises(MissingFileError, match="there is none"):
        hl.checkpoints.Manager(tmp_path).restore()


KILLED = """
import sys, hloom as hl, hloom.numpy as hnp
state = {f"w{k}": hnp.full(200_000, float(k)) for k in range(20)}
checkpoints = hl.checkpoints.Manager(sys.argv[1], keep=2)
print("ready", flush=True)
for step in range(1000):
    checkpoints.save(step, {**state, "step": step})
"""


def test_a_killed_process_leaves_complete_checkpoints(tmp_path):
    rng = np.random.default_rng(0)
    for k in range(4):
        folder = tmp_path / str(k)
        started = subprocess.Popen([sys.executable, "-c", KILLED, folder], stdout=subprocess.PIPE, text=True)
        assert started.stdout is not None and started.stdout.readline() == "ready\n"
        deadline = threading.Event()
        while not any(p.name.startswith("step_") for p in folder.iterdir()):
            deadline.wait(0.01)
        deadline.wait(float(rng.uniform(0, 0.1)))
        os.kill(started.pid, signal.SIGKILL)
        started.wait()
        with hl.checkpoints.Manager(folder, keep=2) as checkpoints:
            assert not any(name.startswith((manager.UNFINISHED, manager._DELETED)) for name in os.listdir(folder))
            found = checkpoints.restore()
            assert found["step"] == checkpoints.latest()
            assert all(np.all(np.asarray(found[f"w{n}"]) == n) for n in range(20))


def test_a_step_that_donates_works_on_a_copy_in_memory_that_is_ready(tmp_path):
    state = {"w": hnp.asarray(np.arange(2_000_003, dtype=np.float32)), "n": hnp.asarray(7)}
    step = hl.jit(lambda s: {"w": s["w"] + 1, "n": s["n"]}, donate_argnums=0)
    state = step(state)
    with hl.checkpoints.Manager(tmp_path / "run") as manager:
        manager.prepare(state)
        manager._thread().submit(int).result()  # after what `prepare` asked for
        before = buffer.statistics()
        manager.save(1, state)
        state = step(state)
        after = buffer.statistics()
        assert after.bytes_allocated - before.bytes_allocated < state["w"].nbytes and after.hits > before.hits
    saved = hl.checkpoints.restore(tmp_path / "run" / "step_00000001")
    np.testing.assert_array_equal(saved["w"], np.arange(2_000_003, dtype=np.float32) + 1)
    np.testing.assert_array_equal(state["w"], np.arange(2_000_003, dtype=np.float32) + 2)


def test_scalars_and_keys_of_a_mesh(tmp_path):
    with hl.config(num_cpu_devices=2):
        mesh = hl.make_mesh((2,), ("data",))
        everywhere, rows = hl.NamedSharding(mesh, hl.P()), hl.NamedSharding(mesh, hl.P("data"))
        state = {
            "step": hl.device_put(np.int32(3), everywhere),
            "key": hl.device_put(hl.random.key(1), everywhere),
            "keys": hl.device_put(hl.random.split(hl.random.key(1), 4), rows),
        }
        hl.checkpoints.save(tmp_path / "state", state)
        found = hl.checkpoints.restore(tmp_path / "state", like=state)
        assert found["step"].shape == () and int(found["step"]) == 3
        for name, value in state.items():
            assert found[name].sharding == value.sharding, name
        np.testing.assert_array_equal(hl.random.key_data(found["keys"]), hl.random.key_data(state["keys"]))

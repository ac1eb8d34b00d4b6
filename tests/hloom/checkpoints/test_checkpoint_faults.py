"""Full disks, steps that go back, files of other libraries."""

import json
import subprocess
import sys

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import CheckpointError, FileError, MissingFileError

FULL = """
import resource, signal, sys
import hloom as hl, hloom.numpy as hnp
from hloom.errors import FileError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
checkpoints = hl.checkpoints.Manager(sys.argv[1])
state = {"w": hnp.arange(1000000.0)}
checkpoints.save(1, state, wait=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, -1))     # as if the disk became full within the arrays
checkpoints.save(2, state)
try:
    checkpoints.wait()
except FileError as error:
    print(error)
assert checkpoints.steps() == [1]
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
checkpoints.save(2, state, wait=True)
assert checkpoints.steps() == [1, 2] and (checkpoints.restore(like=state)["w"] == state["w"]).all()
print("done")
"""


def test_a_disk_that_becomes_full_within_a_save(tmp_path):
    found = subprocess.run([sys.executable, "-c", FULL, tmp_path / "run"], capture_output=True, text=True, timeout=120)
    assert found.stdout.endswith("done\n"), found.stderr
    assert "File too large" in found.stdout and "free space on the disk" in found.stdout
    assert "<string>:10" in found.stdout  # the line that asked for it, not the thread's
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["step_00000001", "step_00000002"]


def test_steps_that_go_back(tmp_path):
    checkpoints = hl.checkpoints.Manager(tmp_path, keep=None)
    for step in (10, 20, 30):
        checkpoints.save(step, {"n": step}, wait=True)
    with pytest.raises(CheckpointError, match=r"save step 15 after step 30") as caught:
        checkpoints.save(15, {"n": 15})
    assert "rewind(15)" in str(caught.value)
    assert checkpoints.rewind(15) == [20, 30]
    checkpoints.save(15, {"n": 15}, wait=True)
    assert checkpoints.steps() == [10, 15] and checkpoints.restore() == {"n": 15}


def test_folders_and_versions_that_are_not_ours(tmp_path):
    with pytest.raises(MissingFileError, match="there is no manifest.json"):
        hl.checkpoints.restore(tmp_path)
    hl.checkpoints.save(tmp_path / "c", {"a": 1})
    manifest = json.loads((tmp_path / "c" / "manifest.json").read_text())
    (tmp_path / "c" / "manifest.json").write_text(json.dumps({**manifest, "version": 99}))
    with pytest.raises(CheckpointError, match="version 99"):
        hl.checkpoints.restore(tmp_path / "c")


FILES = {
    "model.pt": (b"PK\x03\x04\x00\x00\x08\x08", "torch.save", "torch.load"),
    "model.bin": (b"\x80\x02\x8a\nl\xfc\x9cF", "a pickle", "torch.load"),
    "a.npz": (b"PK\x03\x04\x14\x00\x00\x00", "numpy.savez", "hnp.load"),
    "a.npy": (b"\x93NUMPY\x01\x00", "numpy.save", "hnp.load"),
    "model.h5": (b"\x89HDF\r\n\x1a\n", "HDF5", "h5py"),
    "model.safetensors.index.json": (b'{"metadata"', "JSON", "load the files that it names"),
    "model.ckpt": (b"abcdefghijk", "a header of", "a file that safetensors wrote"),
    "cut.safetensors": (b"\x80\x02\0\0\0\0\0\0{", "a header of 640 bytes", "copy it again"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_other_formats_are_named(tmp_path, name):
    start, found, repair = FILES[name]
    (tmp_path / name).write_bytes(start + bytes(40))
    with pytest.raises(CheckpointError) as caught:
        hl.checkpoints.load_safetensors(tmp_path / name)
    assert found in caught.value.found and repair in caught.value.repair, str(caught.value)
    assert ("copy it again" in caught.value.repair) == (name == "cut.safetensors")
    with pytest.raises(CheckpointError, match="it is a file; a checkpoint of hloom is a folder") as caught:
        hl.checkpoints.restore(tmp_path / name)
    expected = {"pt": "torch.load", "bin": "torch.load", "ckpt": "torch.load", "npz": "hnp.load", "npy": "hnp.load"}
    expected["safetensors"] = "hl.checkpoints.load_safetensors("
    assert expected.get(name.rpartition(".")[2], "hl.checkpoints.save") in caught.value.repair
    assert caught.value.source.file == __file__


def test_folders_of_other_formats_are_named(tmp_path):
    hl.checkpoints.save(tmp_path / "ours", {"a": hnp.ones(2)})
    with pytest.raises(FileError, match=r"(?s)it is a folder.*hl\.checkpoints\.restore\("):
        hl.checkpoints.load_safetensors(tmp_path / "ours")
    with pytest.raises(CheckpointError, match=r"name its folder: hl\.checkpoints\.restore\("):
        hl.checkpoints.restore(tmp_path / "ours" / "manifest.json")
    hub = tmp_path / "hub"
    hub.mkdir()
    hl.checkpoints.save_safetensors(hub / "model.safetensors", {"a": hnp.ones(2)})
    with pytest.raises(CheckpointError, match=r"load_safetensors\('.*model\.safetensors'\)"):
        hl.checkpoints.restore(hub)
    with pytest.raises(FileError, match="name a file in it: model.safetensors"):
        hl.checkpoints.load_safetensors(hub)
    (hub / "_METADATA").write_text("{}")
    with pytest.raises(CheckpointError, match=r"of Orbax\n(.|\n)*load_orbax\("):
        hl.checkpoints.restore(hub)


def test_safetensors_of_torch(tmp_path):
    torch = pytest.importorskip("torch", reason="pip install torch")
    package = pytest.importorskip("safetensors.torch", reason="pip install safetensors")
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    state = module.state_dict()
    package.save_file({**state, "half": torch.ones(3, dtype=torch.bfloat16)}, tmp_path / "model.safetensors")
    found = hl.checkpoints.load_safetensors(tmp_path / "model.safetensors")
    assert sorted(found) == sorted([*state, "half"]) and found["half"].dtype == hnp.dtype("bfloat16")
    assert all(np.array_equal(np.asarray(found[name]), value.numpy()) for name, value in state.items())


def test_safetensors_of_flax(tmp_path):
    pytest.importorskip("jax", reason="pip install jax")
    package = pytest.importorskip("safetensors.flax", reason="pip install safetensors")
    jnp = pytest.importorskip("jax.numpy")
    params = {"params.Dense_0.kernel": jnp.arange(6.0).reshape(2, 3), "params.Dense_0.bias": jnp.ones(3, "bfloat16")}
    package.save_file(params, tmp_path / "flax.safetensors")
    found = hl.checkpoints.load_safetensors(tmp_path / "flax.safetensors")
    assert all(np.asarray(found[name]).tobytes() == np.asarray(value).tobytes() for name, value in params.items())


# --- Orbax's folders, as tensorstore makes them ---

LEAVES = {
    ("params", "dense", "kernel"): np.arange(12, dtype=np.float32).reshape(3, 4),
    ("params", "dense", "bias"): np.ones(4, np.float16),
    ("opt_state", 0, "count"): np.array(7, np.int32),
    ("opt_state", 1, "mu"): np.arange(5.0),
}


def write_orbax(folder, ocdbt: bool, driver: str):
    """A folder with the layout of Orbax's PyTreeCheckpointHandler."""
    tensorstore = pytest.importorskip("tensorstore", reason="pip install tensorstore")
    folder.mkdir(parents=True)
    metadata = {}
    for path, value in LEAVES.items():
        name = ".".join(map(str, path))
        kvstore = (
            {"driver": "ocdbt", "base": f"file://{folder}/", "path": f"{name}/"}
            if ocdbt
            else {"driver": "file", "path": f"{folder}/{name}/"}
        )
        spec = {"driver": driver, "kvstore": kvstore}
        array = tensorstore.open(spec, create=True, dtype=value.dtype.name, shape=value.shape).result()
        array.write(value).result()
        metadata[str(tuple(map(str, path)))] = {
            "key_metadata": [{"key": str(k), "key_type": 1 if isinstance(k, int) else 2} for k in path],
            "value_metadata": {"value_type": "jax.Array"},
        }
    (folder / "_METADATA").write_text(json.dumps({"tree_metadata": metadata, "use_zarr3": driver == "zarr3"}))


@pytest.mark.parametrize("driver", ("zarr", "zarr3"))
@pytest.mark.parametrize("ocdbt", (True, False))
def test_orbax(tmp_path, ocdbt, driver):
    write_orbax(tmp_path / "100" / "default", ocdbt, driver)
    for path in (tmp_path / "100" / "default", tmp_path / "100"):
        found = hl.checkpoints.load_orbax(path)
        assert isinstance(found["opt_state"], list) and isinstance(found["params"]["dense"]["kernel"], hl.Array)
        for keys, value in LEAVES.items():
            leaf = found
            for key in keys:
                leaf = leaf[key]
            assert leaf.dtype == value.dtype and np.array_equal(np.asarray(leaf), value)


def test_orbax_without_metadata_and_damaged(tmp_path):
    write_orbax(tmp_path / "c", False, "zarr")
    (tmp_path / "c" / "_METADATA").unlink()
    found = hl.checkpoints.load_orbax(tmp_path / "c")
    assert np.array_equal(np.asarray(found["opt_state"]["1"]["mu"]), np.arange(5.0))
    file = tmp_path / "c" / "params.dense.kernel" / ".zarray"
    array = json.loads(file.read_text())
    file.write_text(json.dumps({**array, "shape": [1 << 30, 1 << 30], "chunks": [1 << 20, 1 << 20]}))
    with pytest.raises(CheckpointError, match="in this machine"):
        hl.checkpoints.load_orbax(tmp_path / "c")
    file.write_text("{")
    with pytest.raises(CheckpointError, match="params.dense.kernel"):
        hl.checkpoints.load_orbax(tmp_path / "c")
    (tmp_path / "c" / "_METADATA").write_text("[]")
    file.write_text(json.dumps(array))
    with pytest.raises(CheckpointError, match="_METADATA"):
        hl.checkpoints.load_orbax(tmp_path / "c")
    write_orbax(tmp_path / "d", True, "zarr")
    (tmp_path / "d" / "manifest.ocdbt").write_bytes(b"\x00" * 40)
    with pytest.raises(CheckpointError, match="read the Orbax checkpoint"):
        hl.checkpoints.load_orbax(tmp_path / "d")


def test_what_is_no_orbax_checkpoint(tmp_path):
    pytest.importorskip("tensorstore", reason="pip install tensorstore")
    with pytest.raises(MissingFileError, match="no arrays of Orbax"):
        hl.checkpoints.load_orbax(tmp_path)
    with pytest.raises(FileError):
        hl.checkpoints.load_orbax(tmp_path / "absent")
    write_orbax(tmp_path / "a", True, "zarr")
    write_orbax(tmp_path / "b", True, "zarr")
    with pytest.raises(MissingFileError, match="several items: a, b"):
        hl.checkpoints.load_orbax(tmp_path)


@pytest.mark.quick
def test_a_later_version_and_a_manager_s_folder_are_said_to_be_so(tmp_path):
    with hl.checkpoints.Manager(tmp_path) as manager:
        manager.save(3, {"a": 1})
    with pytest.raises(MissingFileError, match=r"(?s)it holds step_00000003.*Manager"):
        hl.checkpoints.restore(tmp_path)
    file = manager.path(3) / "manifest.json"
    file.write_text(file.read_text().replace('"version": 1', '"version": 9'))
    with pytest.raises(CheckpointError, match=r"(?s)version 9 of the format.*up to 1.*update hloom"):
        manager.restore()

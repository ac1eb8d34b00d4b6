"""Files other than TFRecord: arrays, text, tables, ArrayRecord, images."""

from __future__ import annotations

import numpy as np
import pytest

from hloom import data
from hloom.errors import DataError, MissingFileError, UnsupportedError, WorkerError


def resumed(dataset, seen):
    """What a restored iterator yields after `seen` elements."""
    with iter(dataset) as iterator:
        for _ in range(seen):
            next(iterator)
        state = iterator.state()
    with iter(dataset) as iterator:
        return list(iterator.restore(state))


@pytest.mark.quick
def test_npy_and_npz(tmp_path):
    x, y = np.arange(40.0).reshape(10, 4), np.arange(10)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.asfortranarray(y))
    np.savez(tmp_path / "both.npz", x=np.asfortranarray(x), y=y)
    np.savez_compressed(tmp_path / "small.npz", x=x, y=y)
    assert np.array_equal(next(iter(data.npy(tmp_path / "x.npy").batch(10))), x)
    for dataset in (
        data.npy({"x": tmp_path / "x.npy", "y": tmp_path / "y.npy"}),
        data.npy(tmp_path / "both.npz"),
        data.npy(tmp_path / "small.npz"),
    ):
        batch = next(iter(dataset.batch(10)))
        assert np.array_equal(batch["x"], x) and np.array_equal(batch["y"], y)
        assert len(list(dataset.shuffle())) == 10
    assert isinstance(data.npy(tmp_path / "both.npz")._access().columns[0].base, np.memmap)
    np.save(tmp_path / "part-0.npy", y[:3])
    np.save(tmp_path / "part-1.npy", y[3:])
    parts = data.npy(tmp_path / "part-*.npy")
    assert [int(v) for v in parts] == list(range(10)) and sorted(map(int, parts.shuffle())) == list(range(10))
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    np.savez(tmp_path / "objects.npz", a=np.array([{}], object))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-9])
    for name in ("objects.npy", "objects.npz", "cut.npy"):
        with pytest.raises(DataError, match=name):
            data.npy(tmp_path / name)


@pytest.mark.quick
def test_text(tmp_path):
    (tmp_path / "a.txt").write_text("ä\n\nlast")
    (tmp_path / "b.txt").write_text("one\r\ntwo\n" * 1500)
    dataset = data.text(tmp_path / "*.txt")
    lines = list(dataset)
    assert lines[:4] == ["ä", "", "last", "one"] and len(lines) == 3003
    assert resumed(dataset, 1700) == lines[1700:]
    assert next(iter(dataset.batch(2))).tolist() == ["ä", ""]
    (tmp_path / "c.dat").write_bytes(b"good\n\xff\n")
    with pytest.raises(DataError, match=r"c\.dat.*utf-8\n.*0xff"):
        list(data.text(tmp_path / "c.dat"))
    with pytest.raises(MissingFileError):
        data.text(tmp_path / "absent.txt")


def test_csv(tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra train")
    (tmp_path / "t.csv").write_text("a,b,c\n1,0.5,x\n2,,y\n3,1.5,z\n")
    dataset = data.csv(tmp_path / "t.csv")
    batch = next(iter(dataset.batch(3)))
    assert batch["a"].tolist() == [1, 2, 3] and batch["c"].tolist() == ["x", "y", "z"] and np.isnan(batch["b"][1])
    assert [e["a"] for e in resumed(dataset, 2)] == [3]
    only = next(iter(data.csv(tmp_path / "t.csv", columns=["a"], dtypes={"a": "float32"}).batch(2)))
    assert list(only) == ["a"] and only["a"].dtype == np.float32
    (tmp_path / "n.csv").write_text("1;\n2;7\n")
    with pytest.raises(DataError, match=r"the column 'f1' of record 0 of .*n\.csv as int64"):
        list(data.csv(tmp_path / "n.csv", delimiter=";", header=False))
    with pytest.raises(DataError, match=r"the column 'd' of .*t\.csv\n.*'a', 'b', 'c'"):
        list(data.csv(tmp_path / "t.csv", columns=["d"]))
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n1,2,3\n")
    with pytest.raises(DataError, match=r"bad\.csv after row 0"):
        list(data.csv(tmp_path / "bad.csv"))


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="needs the extra train")
    parquet = pytest.importorskip("pyarrow.parquet")
    for k in range(2):
        rows = np.arange(100 * k, 100 * k + 100)
        table = arrow.table({"n": rows, "s": [str(r) for r in rows], "l": [[int(r)] * (r % 3) for r in rows]})
        parquet.write_table(table, tmp_path / f"{k}.parquet", row_group_size=30)
    dataset = data.parquet(tmp_path / "*.parquet")
    found = list(dataset)
    assert [e["n"] for e in found] == list(range(200)) and found[5]["l"].tolist() == [5, 5]
    for seen in (0, 29, 30, 95, 150):
        assert [e["n"] for e in resumed(dataset, seen)] == list(range(seen, 200))
    assert next(iter(data.parquet(tmp_path / "0.parquet", columns=["s"]).batch(2)))["s"].tolist() == ["0", "1"]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(DataError, match=r"bad\.parquet"):
        list(data.parquet(tmp_path / "bad.parquet"))


def test_array_record(tmp_path):
    module = pytest.importorskip("array_record.python.array_record_module", reason="needs the extra train")
    for k in range(2):
        writer = module.ArrayRecordWriter(str(tmp_path / f"{k}.array_record"), "group_size:1")
        for n in range(50):
            writer.write(data.encode_example({"x": 50 * k + n}))
        writer.close()
    dataset = data.array_record(tmp_path / "*.array_record", {"x": data.Int64()})
    assert len(dataset) == 100 and [e["x"] for e in dataset] == list(range(100))
    shuffled = [e["x"] for e in dataset.shuffle(seed=1)]
    assert sorted(shuffled) == list(range(100)) != shuffled
    assert [e["x"] for e in resumed(dataset.shuffle(seed=1), 33)] == shuffled[33:]
    (tmp_path / "bad").write_bytes(b"nothing of that kind" * 10)
    with pytest.raises(DataError, match="bad"):
        list(data.array_record(tmp_path / "bad"))


def test_images(tmp_path):
    pillow = pytest.importorskip("PIL.Image", reason="needs the extra train")
    for label, name in enumerate(("cat", "dog")):
        (tmp_path / name).mkdir()
        for k in range(5):
            pillow.fromarray(np.full((6, 8, 3), 10 * label + k, np.uint8)).save(tmp_path / name / f"{k}.png")
    dataset = data.images(tmp_path)
    assert len(dataset) == 10
    batch = next(iter(dataset.batch(10)))
    assert batch["image"].shape == (10, 6, 8, 3) and batch["label"].tolist() == [0] * 5 + [1] * 5
    assert batch["image"][:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    shuffled = next(iter(dataset.shuffle(seed=3).batch(10)))
    assert np.array_equal(shuffled["image"][:, 0, 0, 0] >= 10, shuffled["label"] == 1)
    small = next(iter(data.images(tmp_path / "cat" / "*.png", size=(3, 4), mode="L").batch(5)))
    assert small["image"].shape == (5, 3, 4) and "label" not in small
    encoded = (tmp_path / "cat" / "3.png").read_bytes()
    data.write_tfrecord(tmp_path / "f", [{"png": encoded}])
    records = data.tfrecord(tmp_path / "f", {"png": data.Bytes()}).map(lambda e: data.decode_image(e["png"]))
    assert next(iter(records)).shape == (6, 8, 3)
    (tmp_path / "dog" / "5.png").write_bytes(encoded[:40])
    with pytest.raises(WorkerError, match=r"record 0 of .*dog/5\.png\n.*DataError: decoding an image"):
        list(data.images(tmp_path))
    with pytest.raises(MissingFileError, match="one folder per class"):
        (tmp_path / "empty").mkdir()
        data.images(tmp_path / "empty")


@pytest.mark.quick
def test_missing_extras_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.csv", None)
    (tmp_path / "t.csv").write_text("a\n1\n")
    with pytest.raises(UnsupportedError, match=r"hloom\[train\]"):
        data.csv(tmp_path / "t.csv")

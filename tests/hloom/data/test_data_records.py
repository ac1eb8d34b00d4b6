"""TFRecord files: framing, checksums, compression, examples; damaged files and wrong features."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

import hloom as hl
from hloom import data
from hloom.data import native
from hloom.errors import ArgumentError, DataError, MissingFileError

pytestmark = pytest.mark.quick

FEATURES = {"image": data.Bytes((3, 4), "uint8"), "label": data.Int64(), "weight": data.Float((2,))}


def crc32c(text: bytes) -> int:
    """Bit by bit (RFC 3720)."""
    crc = 0xFFFFFFFF
    for byte in text:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def examples(count=50):
    random = np.random.default_rng(0)
    return {
        "image": random.integers(0, 256, (count, 3, 4), dtype=np.uint8),
        "label": random.integers(-(1 << 60), 1 << 60, count),
        "weight": random.random((count, 2), np.float32),
    }


@pytest.fixture
def file(tmp_path):
    data.write_tfrecord(tmp_path / "a.tfrecord", examples(), FEATURES)
    return tmp_path / "a.tfrecord"


def offsets(content: bytes) -> list[int]:
    found, at = [], 0
    while at < len(content):
        found.append(at)
        at += 16 + struct.unpack_from("<Q", content, at)[0]
    return found


@pytest.mark.parametrize("instruction", [True, False])
def test_checksums(instruction, monkeypatch):
    monkeypatch.setattr(native, "has_crc_instruction", lambda: instruction)
    assert data.crc32c(b"123456789") == 0xE3069283  # the check value of the algorithm
    assert data.crc32c(b"") == 0
    random = np.random.default_rng(1)
    for size in (1, 7, 8, 9, 63, 100):
        text = random.bytes(size)
        assert data.crc32c(text) == crc32c(text)


def test_the_format_on_the_disk(tmp_path):
    with data.TFRecordWriter(tmp_path / "x") as writer:
        writer.write(b"abc")
        assert not (tmp_path / "x").exists()  # not before it is complete
    content = (tmp_path / "x").read_bytes()

    def masked(text):
        crc = crc32c(text)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    length = struct.pack("<Q", 3)
    assert content == length + struct.pack("<I", masked(length)) + b"abc" + struct.pack("<I", masked(b"abc"))


@pytest.mark.parametrize("compression", [None, "gzip", "ZLIB"])
def test_what_is_written_is_read(compression, tmp_path):
    written = examples()
    assert data.write_tfrecord(tmp_path / "f", written, FEATURES, compression=compression) == 50
    (batch,) = data.tfrecord(tmp_path / "f", FEATURES).batch(100)
    assert all(
        np.array_equal(batch[name], written[name]) and batch[name].dtype == written[name].dtype for name in batch
    )
    (same,) = data.tfrecord(tmp_path / "f", FEATURES, compression=compression, verify=False).batch(100)
    assert np.array_equal(same["image"], written["image"])
    raw = list(data.tfrecord(tmp_path / "f"))
    assert data.decode_example(raw[7])["label"] == written["label"][7]


def test_several_gzip_streams_in_one_file(tmp_path):
    for name in "ab":
        data.write_tfrecord(tmp_path / name, [name.encode() * 5] * 3, compression="gzip")
    (tmp_path / "c").write_bytes((tmp_path / "a").read_bytes() + (tmp_path / "b").read_bytes())
    assert list(data.tfrecord(tmp_path / "c")) == [b"aaaaa"] * 3 + [b"bbbbb"] * 3


def test_protobuf_judges_examples():
    descriptors = pytest.importorskip("google.protobuf.descriptor_pb2", reason="needs protobuf")
    from google.protobuf import descriptor_pool, message_factory

    file = descriptors.FileDescriptorProto(name="e.proto", package="t", syntax="proto3")
    number = descriptors.FieldDescriptorProto
    kinds = {"BytesList": number.TYPE_BYTES, "FloatList": number.TYPE_FLOAT, "Int64List": number.TYPE_INT64}
    for name, kind in kinds.items():
        file.message_type.add(name=name).field.add(name="value", number=1, label=3, type=kind)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for k, name in enumerate(kinds, 1):
        feature.field.add(name=f"f{k}", number=k, label=1, type=11, type_name=f".t.{name}", oneof_index=0)
    features = file.message_type.add(name="Features")
    features.field.add(name="feature", number=1, label=3, type=11, type_name=".t.Features.FeatureEntry")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=11, type_name=".t.Feature")
    file.message_type.add(name="Example").field.add(
        name="features", number=1, label=1, type=11, type_name=".t.Features"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    example_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))
    values = {"i": [1, -2, 1 << 62, 0], "f": [0.5, -1.5], "b": b"xyz", "t": "ä", "many": [b"a", b"", b"c" * 200]}
    made = example_class.FromString(data.encode_example(values)).features.feature
    assert list(made["i"].f3.value) == values["i"] and list(made["f"].f2.value) == values["f"]
    assert list(made["many"].f1.value) == values["many"] and made["t"].f1.value[0] == "ä".encode()
    text = example_class()  # and what protobuf writes is read
    text.features.feature["i"].f3.value.extend(values["i"])
    text.features.feature["b"].f1.value.append(b"xyz")
    text.features.feature["f"].f2.value.extend([0.5, -1.5])
    serialized = text.SerializeToString()
    found = data.decode_example(serialized)
    assert found["i"].tolist() == values["i"] and found["b"] == [b"xyz"]


def test_variable_and_optional_features(tmp_path):
    rows = [{"n": np.arange(k), "s": "ä" * k, "raw": bytes(k)} for k in range(5)] + [{"n": [9]}]
    data.write_tfrecord(tmp_path / "f", rows)
    features = {
        "n": data.Int64(None),
        "s": data.Text(default="none"),
        "raw": data.Bytes(dtype="uint8", default=b"x"),
        "absent": data.Float((2,), default=0.5),
    }
    found = list(data.tfrecord(tmp_path / "f", features))
    assert [e["n"].tolist() for e in found] == [list(range(k)) for k in range(5)] + [[9]]
    assert [e["s"] for e in found] == ["", "ä", "ää", "äää", "ääää", "none"]
    assert [len(e["raw"]) for e in found] == [0, 1, 2, 3, 4, 1]
    assert all(e["absent"].tolist() == [0.5, 0.5] for e in found)


def test_unpacked_lists_and_unknown_fields_are_read():
    def example(*feature: bytes) -> bytes:
        def part(number, text):
            return bytes([number << 3 | 2, len(text)]) + text

        entry = part(1, part(1, b"x") + part(2, b"".join(feature)))
        return part(1, entry) + b"\x28\x05"  # and a field 5 of no interest

    unpacked = b"\x1a\x04\x08\x03\x08\x7f"  # Int64List with two values, each a field of its own
    parser = data.features.ExampleParser({"x": data.Int64((2,))})
    text = example(unpacked)
    origin = data.blocks.Origin.of(("memory",), 0, 0, 1)
    block = parser.columns(np.frombuffer(text + bytes(8), np.uint8), np.array([[0, len(text)]]), origin)
    assert block.leaves[0].tolist() == [[3, 127]]


def damaged(file, at: int, by: bytes) -> None:
    content = bytearray(file.read_bytes())
    content[at : at + len(by)] = by
    file.write_bytes(content)


def test_corrupt_data_names_file_record_and_offset(file):
    at = offsets(file.read_bytes())[20]
    damaged(file, at + 40, b"\xff\xff")
    with pytest.raises(DataError, match=rf"record 20 of .*a\.tfrecord\n  found:  at offset {at}: .*data") as caught:
        list(data.tfrecord(file, FEATURES))
    assert caught.value.repair and caught.value.source
    with iter(data.tfrecord(file, FEATURES, on_corrupt="skip")) as records:
        labels = [r["label"] for r in records]
        assert labels == np.delete(examples()["label"], 20).tolist() and records.corrupt == 1


def test_a_corrupt_length_is_passed_over_to_the_next_record(file):
    at = offsets(file.read_bytes())
    damaged(file, at[10], b"\xff\xff\xff\xff")
    with pytest.raises(DataError, match=rf"record 10 of .*\n.*offset {at[10]}: the checksum of the length"):
        list(data.tfrecord(file))
    with iter(data.tfrecord(file, FEATURES, on_corrupt="skip").batch(7)) as batches:
        labels = np.concatenate([b["label"] for b in batches])
        assert labels.tolist() == np.delete(examples()["label"], 10).tolist() and batches.corrupt == 1
        state = batches.state()
    with iter(data.tfrecord(file, FEATURES, on_corrupt="skip").batch(7)) as batches:
        assert batches.restore(state).corrupt == 1


@pytest.mark.parametrize("cut", [1, 5, 30, 100])
def test_truncated_files(file, cut):
    content = file.read_bytes()
    file.write_bytes(content[:-cut])
    with pytest.raises(DataError, match="truncated: the record has") as caught:
        list(data.tfrecord(file, FEATURES))
    assert f"{file}" in caught.value.asked and "offset" in caught.value.found
    with iter(data.tfrecord(file, FEATURES, on_corrupt="skip")) as records:
        assert len(list(records)) == (48 if cut == 100 else 49) and records.corrupt == 1


def test_a_length_that_lies_allocates_nothing(tmp_path):
    length = struct.pack("<Q", 1 << 50)
    (tmp_path / "f").write_bytes(length + struct.pack("<I", native.masked_crc32c(length)) + b"abc" * 10)
    with pytest.raises(DataError, match="truncated"):
        list(data.tfrecord(tmp_path / "f"))


def test_damaged_compressed_files(tmp_path):
    data.write_tfrecord(tmp_path / "f.gz", examples(), FEATURES, compression="gzip")
    content = (tmp_path / "f.gz").read_bytes()
    for name, text in (("short", content[:-20]), ("wrong", content[:100] + b"\0" * 50 + content[150:])):
        (tmp_path / name).write_bytes(text)
        with pytest.raises(DataError, match=rf"{name}\n"):
            list(data.tfrecord(tmp_path / name, FEATURES))
    (tmp_path / "plain").write_bytes(b"not compressed at all")
    with pytest.raises(DataError, match="header"):
        list(data.tfrecord(tmp_path / "plain", compression="gzip"))
    assert zlib.crc32(content)


WRONG = {
    "missing": ({"lable": data.Int64()}, "it is called 'label'|has image, label, weight"),
    "kind": ({"label": data.Float()}, "it is of int64_list"),
    "count": ({"weight": data.Float((3,))}, "has 2 numbers, and the shape needs 3"),
    "bytes": ({"image": data.Bytes((4, 4), "uint8")}, "has 12 bytes, and the shape needs 16"),
    "range": ({"label": data.Int64(dtype="int8")}, "read it as int64"),
    "text": ({"image": data.Text()}, "can't decode|invalid"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_features(case, file):
    features, found = WRONG[case]
    with pytest.raises(DataError, match=found) as caught:
        list(data.tfrecord(file, features))
    error = caught.value
    assert "record 0 of" in error.asked and "a.tfrecord" in error.asked and error.repair and error.source


def test_errors_of_prefetched_records_have_the_users_line(file):
    batches = iter(data.tfrecord(file, {"lable": data.Int64()}).batch(2).prefetch())
    with pytest.raises(DataError, match="lable") as caught:
        next(batches)
    assert caught.value.source.file == __file__


def test_records_that_are_no_examples(tmp_path):
    data.write_tfrecord(tmp_path / "f", [data.encode_example({"x": 1}), b"\xff\xff\xff", b"abc"])
    with pytest.raises(DataError, match=r"tf.train.Example in record 1 of .*\n.*malformed"):
        list(data.tfrecord(tmp_path / "f", {"x": data.Int64()}))
    with pytest.raises(DataError, match="malformed"):
        data.decode_example(b"\x0a\xff")


def test_random_bytes_never_read_out_of_bounds(tmp_path):
    """Mutations of an example are read or refused."""
    random = np.random.default_rng(0)
    text = data.encode_example({"image": bytes(12), "label": 3, "weight": [1.0, 2.0], "l": [1, 2, 3]})
    parser = data.features.ExampleParser({**FEATURES, "l": data.Int64(None)})
    origin, refused = data.blocks.Origin.of(("memory",), 0, 0, 1), 0
    for _ in range(2000):
        changed = bytearray(text)
        for _ in range(random.integers(1, 4)):
            changed[random.integers(len(text))] = random.integers(256)
        changed = bytes(changed[: random.integers(1, len(text) + 1)])
        try:
            parser.columns(np.frombuffer(changed + bytes(8), np.uint8), np.array([[0, len(changed)]]), origin)
        except DataError:
            refused += 1
    assert 500 < refused < 2000


def test_mistakes(tmp_path, file):
    with pytest.raises(MissingFileError, match="nothing matches"):
        data.tfrecord(tmp_path / "absent-*")
    with pytest.raises(ArgumentError, match="is a folder"):
        data.tfrecord(tmp_path)
    with pytest.raises(ArgumentError, match="hl.data.Bytes"):
        data.tfrecord(file, {"image": "uint8"})
    with pytest.raises(ArgumentError, match="skip"):
        data.tfrecord(file, on_corrupt="ignore")
    with pytest.raises(ArgumentError, match="gzip"):
        data.tfrecord(file, compression="bz2")
    with pytest.raises(DataError, match="object"), data.TFRecordWriter(tmp_path / "o") as writer:
        writer.write({"x": object()})
    assert not list(tmp_path.glob("o*"))
    with pytest.raises(DataError, match="of shape"):
        data.write_tfrecord(tmp_path / "o", [{"image": np.zeros((2, 2), np.uint8)}], {"image": FEATURES["image"]})
    with pytest.raises(hl.errors.FileError):
        data.TFRecordWriter(tmp_path / "absent" / "x")

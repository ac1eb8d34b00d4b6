"""`tf.train.SequenceExample`: feature lists read and written, padded into batches; what is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest

from hloom import data
from hloom.errors import ArgumentError, DataError

pytestmark = pytest.mark.quick

FEATURES = {
    "tokens": data.FeatureList(data.Int64(dtype="int32")),
    "label": data.Int64(),
    "frames": data.FeatureList(data.Float((3,))),
    "images": data.FeatureList(data.Bytes((2, 2), "uint8")),
    "words": data.FeatureList(data.Text()),
}


def examples(count=6):
    random = np.random.default_rng(0)
    return [
        {
            "tokens": np.arange(k, dtype=np.int32), "label": k, "frames": random.random((2 * k, 3), np.float32),
            "images": random.integers(0, 256, (k, 2, 2), dtype=np.uint8), "words": ["ä" * n for n in range(k)],
        }
        for k in range(count)
    ]  # fmt: skip


@pytest.fixture
def file(tmp_path):
    data.write_tfrecord(tmp_path / "a.tfrecord", examples(), FEATURES)
    return tmp_path / "a.tfrecord"


def test_what_is_written_is_read(file):
    for found, wanted in zip(data.tfrecord(file, FEATURES), examples(), strict=True):
        assert found["label"] == wanted["label"] and found["words"].tolist() == wanted["words"]
        for name in ("tokens", "frames", "images"):
            assert found[name].dtype == wanted[name].dtype
            np.testing.assert_array_equal(found[name], wanted[name])


def test_batches_are_padded_and_come_in_buckets(file):
    batch = next(iter(data.tfrecord(file, FEATURES).batch(6, pad=True)))
    assert batch["frames"].shape == (6, 10, 3) and batch["images"].shape == (6, 5, 2, 2)
    assert batch["tokens"][3].tolist() == [0, 1, 2, 0, 0] and batch["words"][2].tolist() == ["", "ä", "", "", ""]
    tokens = {"tokens": FEATURES["tokens"], "label": FEATURES["label"]}
    sizes = {b["tokens"].shape for b in data.tfrecord(file, tokens).bucket("tokens", [2, 5], 3)}
    assert sizes == {(3, 2), (3, 5)}


def test_the_context_alone_is_read_from_the_same_files(file):
    assert [e["label"] for e in data.tfrecord(file, {"label": data.Int64()})] == list(range(6))


def test_lists_that_may_be_absent(tmp_path):
    records = [data.encode_sequence_example({"a": 1}, {"x": [1, 2]}), data.encode_sequence_example({"a": 2}, {})]
    data.write_tfrecord(tmp_path / "f", records)
    found = list(data.tfrecord(tmp_path / "f", {"x": data.FeatureList(data.Int64(), optional=True)}))
    assert [e["x"].tolist() for e in found] == [[1, 2], []]
    with pytest.raises(DataError, match=r"(?s)record 1 of .*no features"):
        list(data.tfrecord(tmp_path / "f", {"x": data.FeatureList(data.Int64())}))


def test_single_records():
    record = data.encode_sequence_example({"label": 7}, {"t": [[1, -2], [3]], "s": ["a", b"bc"], "f": np.eye(2)})
    context, lists = data.decode_sequence_example(record)
    assert context["label"].tolist() == [7] and lists["s"] == [[b"a"], [b"bc"]]
    assert [step.tolist() for step in lists["t"]] == [[1, -2], [3]] and lists["f"][1].tolist() == [0, 1]
    assert data.decode_example(record)["label"].tolist() == [7]


def test_protobuf_judges_sequence_examples():
    descriptors = pytest.importorskip("google.protobuf.descriptor_pb2", reason="needs protobuf")
    from google.protobuf import descriptor_pool, message_factory

    file = descriptors.FileDescriptorProto(name="s.proto", package="s", syntax="proto3")

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, (field, label, kind, of) in enumerate(fields, 1):
            made.field.add(name=field, number=number, label=label, type=kind, type_name=of)
        return made

    def mapping(name, value):
        message(name, ("entry", 3, 11, f".s.{name}.EntryEntry"))
        entry = file.message_type[-1].nested_type.add(name="EntryEntry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=9)
        entry.field.add(name="value", number=2, label=1, type=11, type_name=f".s.{value}")

    message("B", ("value", 3, 12, None))
    message("F", ("value", 3, 2, None))
    message("I", ("value", 3, 3, None))
    message("Feature", *((name, 1, 11, f".s.{name.upper()}") for name in "bfi"))
    message("FeatureList", ("feature", 3, 11, ".s.Feature"))
    mapping("Features", "Feature")
    mapping("FeatureLists", "FeatureList")
    message("SequenceExample", ("context", 1, 11, ".s.Features"), ("feature_lists", 1, 11, ".s.FeatureLists"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("s.SequenceExample"))
    made = kind.FromString(data.encode_sequence_example({"label": 7}, {"t": [[1, -2], [3]], "f": [0.5], "s": ["ä"]}))
    assert list(made.context.entry["label"].i.value) == [7]
    steps = made.feature_lists.entry["t"].feature
    assert [list(step.i.value) for step in steps] == [[1, -2], [3]]
    assert made.feature_lists.entry["s"].feature[0].b.value[0] == "ä".encode()
    context, lists = data.decode_sequence_example(made.SerializeToString())
    assert context["label"].tolist() == [7] and lists["f"][0].tolist() == [0.5]


WRONG = {
    "name": ({"token": data.FeatureList(data.Int64())}, "called 'tokens'"),
    "context": ({"tokens": data.Int64()}, "it is a feature list"),
    "list": ({"label": data.FeatureList(data.Int64())}, "it is in the context"),
    "kind": ({"tokens": data.FeatureList(data.Float())}, "step 0 of record 1 of .*int64_list"),
    "shape": ({"frames": data.FeatureList(data.Float((2,)))}, "step 0 of record 1 of .*3 numbers"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_features(file, name):
    features, says = WRONG[name]
    with pytest.raises(DataError, match=rf"(?s){says}"):
        list(data.tfrecord(file, features))


def test_features_that_cannot_be():
    for wrong, says in (
        (lambda: data.FeatureList(data.Int64(None)), "different sizes"),
        (lambda: data.FeatureList(data.FeatureList(data.Int64())), "the feature of each step"),
        (lambda: data.FeatureList(data.Int64(default=1)), "optional=True"),
    ):
        with pytest.raises(ArgumentError, match=says):
            wrong()
    with pytest.raises(DataError, match="a value for each step"):
        data.encode_sequence_example({}, {"x": 3})


def test_damaged_records_are_errors_and_not_crashes(tmp_path):
    """Every cut and many changed bytes, with checksums that fit: the parser sees them all."""
    whole = data.encode_example(examples(4)[3], FEATURES)
    random = np.random.default_rng(0)
    records = [whole[:n] for n in range(len(whole))]
    for _ in range(300):
        changed = bytearray(whole)
        changed[random.integers(len(whole))] = random.integers(256)
        records.append(bytes(changed))
    for number, record in enumerate(records):
        data.write_tfrecord(tmp_path / str(number), [record])
        try:
            (found,) = data.tfrecord(tmp_path / str(number), FEATURES)
        except DataError:
            continue
        assert found.keys() == FEATURES.keys()

"""Input: datasets from memory and from files, and the steps between them and a training step.

    features = {"image": hl.data.Bytes((28, 28), "uint8"), "label": hl.data.Int64()}
    train = hl.data.tfrecord("train-*.tfrecord", features, interleave=4)
    batches = iter(train.shuffle(10_000, seed=0).batch(100, last="drop").repeat().prefetch())
    for step in range(1000):
        batch = next(batches)                       # {"image": uint8[100, 28, 28], "label": int64[100]}
    hl.checkpoints.save("run/1000", {"params": params, "data": batches.state()})

An iterator's order depends on the seeds only, and its state is a small tree: `batches.restore(state)` resumes with
exactly the elements that had not been seen.
"""

from __future__ import annotations

from hloom.data.blocks import Block, padded, stacked
from hloom.data.dataset import Dataset, mix
from hloom.data.examples import decode_example, decode_sequence_example, encode_example, encode_sequence_example
from hloom.data.features import Bytes, Feature, FeatureList, Float, Int64, Text
from hloom.data.iterator import DataIterator
from hloom.data.native import crc32c
from hloom.data.sources.open import (
    array_record,
    arrays,
    csv,
    generator,
    images,
    npy,
    parquet,
    sequence,
    text,
    tfrecord,
)
from hloom.data.sources.records import decode_image
from hloom.data.sources.tfrecord import TFRecordWriter, write_tfrecord

__all__ = [
    "Block",
    "Bytes",
    "DataIterator",
    "Dataset",
    "Feature",
    "FeatureList",
    "Float",
    "Int64",
    "TFRecordWriter",
    "Text",
    "array_record",
    "arrays",
    "crc32c",
    "csv",
    "decode_example",
    "decode_image",
    "decode_sequence_example",
    "encode_example",
    "encode_sequence_example",
    "generator",
    "images",
    "mix",
    "npy",
    "padded",
    "parquet",
    "sequence",
    "stacked",
    "text",
    "tfrecord",
    "write_tfrecord",
]
__dir__ = __all__.copy

"""Digits from a TFRecord file: one tf.train.Example per record, a shuffling window, batches in the background.

Reads the digits of scikit-learn, which it first writes, and saves where it was, so that another run goes on there.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import hloom as hl
import hloom.numpy as hnp

FEATURES = {"image": hl.data.Bytes((8, 8), "uint8"), "label": hl.data.Int64(dtype="int32")}


def write(path):
    digits = load_digits()
    return hl.data.write_tfrecord(path, {"image": digits.images.astype(np.uint8), "label": digits.target}, FEATURES)


@hl.jit
def statistics(batch):
    return hnp.mean(batch["image"].astype(hnp.float32)), hnp.bincount(batch["label"], length=10)


def run(steps=500, report=print):
    """(examples per second, examples of each digit, whether a resumed iterator saw the same)."""
    with tempfile.TemporaryDirectory() as folder:
        count = write(Path(folder) / "digits.tfrecord")
        records = hl.data.tfrecord(Path(folder) / "*.tfrecord", FEATURES)
        dataset = records.shuffle(1000, seed=0).repeat().batch(100).prefetch()
        seen = np.zeros(10, int)
        with iter(dataset) as batches, iter(dataset) as resumed:
            began = time.perf_counter()
            for _ in range(steps):
                mean, digits = statistics(next(batches))
                seen += np.asarray(digits)
            rate = 100 * steps / (time.perf_counter() - began)
            resumed.restore(batches.state())
            same = all(np.array_equal(next(batches)["image"], next(resumed)["image"]) for _ in range(50))
    report(f"{count} records, mean {float(mean):.2f}, {rate:,.0f} examples/s, of each digit {seen}, resumed: {same}")
    return rate, seen, same


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    run(parser.parse_args().steps)

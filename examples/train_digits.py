"""Digits from TFRecord, trained by `fit` with checkpoints, summaries and evaluation. Kill it, run it again: it goes on.

    python examples/train_digits.py --run digits_run [--epochs 20]
    tensorboard --logdir digits_run

The 1,797 digits that scikit-learn bundles are written to a TFRecord file first; a fifth of them is held out.
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim, training

BATCH = 64
FEATURES = {"image": hl.data.Bytes((8, 8, 1), "uint8"), "label": hl.data.Int64(dtype="int32")}


def write(folder):
    """train.tfrecord and test.tfrecord."""
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    held_out = len(order) // 5
    for name, rows in (("test", order[:held_out]), ("train", order[held_out:])):
        if not (folder / f"{name}.tfrecord").exists():
            examples = {"image": digits.images[rows].astype(np.uint8)[..., None], "label": digits.target[rows]}
            hl.data.write_tfrecord(folder / f"{name}.tfrecord", examples, FEATURES)


def network(key):
    keys = hl.random.split(key, 3)
    return nn.Sequential(
        nn.Conv(1, 16, (3, 3), key=keys[0]), nn.BatchNorm(16), nn.relu, nn.MaxPool((2, 2)), nn.Flatten(),
        nn.Linear(256, 64, key=keys[1]), nn.relu, nn.Dropout(0.2), nn.Linear(64, 10, key=keys[2]),
    )  # fmt: skip


def loss(model, batch):
    logits = model(batch["image"].astype("f32") / 16)
    value = hnp.mean(nn.losses.softmax_cross_entropy_with_integer_labels(logits, batch["label"]))
    return value, {"accuracy": hl.metrics.accuracy(logits, batch["label"])}


@hl.jit
def measure(state, batch):
    """Of the averaged weights."""
    value, metrics = loss(state.average.value(), batch)
    return {"loss": value, **metrics}


def train(folder, epochs=20, progress=True):
    """The result of the run, which goes on where an earlier one in the folder ended."""
    folder = Path(folder)
    write(folder / "data")
    records = hl.data.tfrecord(folder / "data" / "train.tfrecord", FEATURES)
    test = hl.data.tfrecord(folder / "data" / "test.tfrecord", FEATURES).batch(BATCH)

    def batches(epoch):
        return records.shuffle(2000, seed=epoch).batch(BATCH, last="drop").prefetch()

    optimizer = optim.adam(optim.cosine_decay_schedule(3e-3, epochs * 22))
    state = training.TrainState.of(network(hl.random.key(0)), optimizer, average=0.99, key=hl.random.key(1))
    return training.fit(
        state,
        training.train_step(loss, optimizer),
        batches,
        epochs=epochs,
        evaluate=lambda state: training.evaluate(measure, state, test),
        checkpoints=folder / "checkpoints",
        callbacks=[training.EarlyStopping("eval_loss", patience=5), training.Summaries(folder / "summaries")],
        curves=folder / "curves.png",
        progress=progress,
    )


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--run", default="digits_run", help="folder of the run")
    arguments.add_argument("--epochs", type=int, default=20, help="passes over the training images")
    options = arguments.parse_args()
    found = train(options.run, options.epochs)
    print(f"{found.step} steps, held out: {found.metrics['eval_accuracy']:.1%}; curves in {options.run}/curves.png")

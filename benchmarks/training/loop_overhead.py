"""The cost of `fit` over a bare loop: LeNet on digits from TFRecord, with checkpoints each 100 steps, summaries each
10 and a progress bar.

    python -m benchmarks.training.loop_overhead [--steps 200] [--repeats 5] [--kind lenet-book]

Both read the same files through `hl.data`, run the same compiled step and alternate. The bare loop is
`for batch in dataset: state, metrics = step(state, batch)`. Another line shows the share of each addition.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim, training

BATCH = 100
FEATURES = {"image": hl.data.Bytes((28, 28, 1), "uint8"), "label": hl.data.Int64(dtype="int32")}


def write(path: Path) -> None:
    digits = load_digits()
    images = np.repeat(np.repeat(digits.images, 4, axis=1), 4, axis=2)[:, 2:30, 2:30, None] * 15.9
    hl.data.write_tfrecord(path, {"image": images.astype(np.uint8), "label": digits.target}, FEATURES)


def lenet(wide: bool) -> nn.Sequential:
    """The network of the TensorFlow listings (wide), or LeNet-5."""
    k = hl.random.split(hl.random.key(0), 5)
    first, second, hidden = (32, 64, 512) if wide else (6, 16, 120)
    return nn.Sequential(
        nn.Conv(1, first, (5, 5), padding="SAME", key=k[0]), nn.relu, nn.MaxPool((2, 2)),
        nn.Conv(first, second, (5, 5), padding="SAME", key=k[1]), nn.relu, nn.MaxPool((2, 2)), nn.Flatten(),
        nn.Linear(49 * second, hidden, key=k[2]), nn.relu, nn.Linear(hidden, 10, key=k[3]),
    )  # fmt: skip


def loss(model, batch):
    logits = model(batch["image"].astype("f32") / 255)
    return hnp.mean(nn.losses.softmax_cross_entropy_with_integer_labels(logits, batch["label"]))


def python_cost() -> None:
    """The time of `fit` itself per step, with a step of microseconds."""
    step = hl.jit(lambda state, batch: (state + batch, {"loss": batch}))
    one, count = hnp.ones(()), 3000
    batches = [one] * count

    def bare() -> None:
        state = hnp.zeros(())
        for batch in batches:
            state, metrics = step(state, batch)

    def fitted() -> None:
        training.fit(hnp.zeros(()), step, batches, progress=False)

    least = []
    for way in (bare, fitted):
        found = []
        for _ in range(5):
            began = time.perf_counter()
            way()
            found.append(time.perf_counter() - began)
        least.append(min(found) / count * 1e6)
    print(f"fit adds {least[1] - least[0]:.1f} us to a step of {least[0]:.1f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kind", choices=("lenet-5", "lenet-book"), default="lenet-5")
    arguments = parser.parse_args()
    steps = arguments.steps
    with tempfile.TemporaryDirectory(prefix="hloom-loop-") as name:
        folder, numbers = Path(name), itertools.count()
        write(folder / "digits.tfrecord")
        dataset = hl.data.tfrecord(folder / "digits.tfrecord", FEATURES).shuffle(2000, seed=0).repeat()
        dataset = dataset.batch(BATCH, last="drop").prefetch()
        model, optimizer = lenet(arguments.kind == "lenet-book"), optim.adam(1e-3)
        step = training.train_step(loss, optimizer)

        def fresh():
            copy = hl.tree.map(lambda x: x + 0, model)  # the step overwrites it
            return training.TrainState.of(copy, optimizer)

        def bare() -> None:
            state = fresh()
            for batch in itertools.islice(dataset, steps):
                state, metrics = step(state, batch)
            float(metrics["loss"])

        def fitted(**options) -> None:
            with contextlib.redirect_stderr(io.StringIO()):
                training.fit(fresh(), step, dataset, steps=steps, **options)

        def everything() -> None:
            place = folder / str(next(numbers))
            fitted(checkpoints=place / "c", checkpoint_every=100, callbacks=[training.Summaries(place / "s", every=10)])

        ways = {
            "bare loop": bare,
            "fit": lambda: fitted(progress=False),
            "fit without the choice of states": lambda: fitted(progress=False, on_nan="ignore"),
            "fit with bar": fitted,
            "fit with bar, checkpoints, summaries": everything,
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        work: dict[str, list[float]] = {name: [] for name in ways}  # seconds of all cores, which others' programs leave
        for k in range(arguments.repeats + 1):
            for name, way in ways.items():
                began, cpu = time.perf_counter(), time.process_time()
                way()
                if k:  # the first compiles
                    seconds[name].append(time.perf_counter() - began)
                    work[name].append(time.process_time() - cpu)
        for name in ways:
            ratio = statistics.median(b / f for b, f in zip(seconds["bare loop"], seconds[name], strict=True))
            fastest, least = min(seconds[name]), min(work[name])
            print(f"{name:40} {fastest / steps * 1e3:7.2f} ms/step: {min(seconds['bare loop']) / fastest:.3f} by the "
                  f"fastest runs, {ratio:.3f} by the median of pairs; {least / steps * 1e3:7.2f} ms of processors: "
                  f"{min(work['bare loop']) / least:.3f}")  # fmt: skip
        python_cost()


if __name__ == "__main__":
    main()

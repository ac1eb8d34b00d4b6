"""Kills a training process at random moments until it is done, and compares what it learned with an undisturbed run.

    python -m benchmarks.training.kills --kills 100

Each process trains a network on random data with `fit`, whose checkpoints (about 8 MB) are written most of the time, so
that kills fall into steps, into saves, into resuming and into the start of Python.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim, training

STEPS, EVERY, PAUSE = 200, 3, 0.01


def batches(epoch: int):
    random = np.random.default_rng(epoch)
    for _ in range(50):
        x = random.standard_normal((32, 256), np.float32)
        yield x, (x[:, 0] > 0).astype(np.int32)
        time.sleep(PAUSE)


def loss(model, batch):
    x, labels = batch
    return hnp.mean(nn.losses.softmax_cross_entropy_with_integer_labels(model(x), labels))


def train(folder: Path, steps: int):
    """A run that continues from the folder's contents."""
    keys = hl.random.split(hl.random.key(0), 3)
    model = nn.Sequential(
        nn.Linear(256, 1024, key=keys[0]), nn.relu, nn.Dropout(0.1), nn.Linear(1024, 384, key=keys[1]), nn.relu,
        nn.Linear(384, 2, key=keys[2]),
    )  # fmt: skip
    optimizer = optim.adam(optim.cosine_decay_schedule(1e-3, steps))
    state = training.TrainState.of(model, optimizer, average=0.99, key=hl.random.key(1))
    step = training.train_step(loss, optimizer)
    return training.fit(
        state, step, batches, steps=steps, checkpoints=folder, checkpoint_every=EVERY, progress=False
    )  # fmt: skip


def numbers(state) -> list[np.ndarray]:
    """All that a state holds."""
    return [np.asarray(x) for x in hl.tree.leaves(state._replace(key=hl.random.key_data(state.key)))]


def command(folder: Path, steps: int) -> list[str]:
    return [sys.executable, "-m", "benchmarks.training.kills", "--train", str(folder), "--steps", str(steps)]


def wait_for_progress(process: subprocess.Popen, place: Path) -> None:
    """Until the process begins to write a checkpoint, or ends; a minute at most."""
    before = {p.name for p in place.glob("*")}
    for _ in range(1200):
        if process.poll() is not None or {p.name for p in place.glob("*_*")} - before:
            return
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=100, help="how often a process is killed")
    parser.add_argument(
        "--steps", type=int, default=STEPS, help="of a run; runs follow each other until all kills are done"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--term", action="store_true", help="every second signal is SIGTERM instead of SIGKILL")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        train(arguments.train, arguments.steps)
        return
    moments = random.Random(arguments.seed)
    folder = Path(tempfile.mkdtemp(prefix="hloom-kills-"))
    try:
        wanted = numbers(train(folder / "undisturbed", arguments.steps).state)
        kills = runs = in_save = identical = 0
        while kills < arguments.kills:
            runs += 1
            place = folder / f"run{runs}"
            while True:
                process = subprocess.Popen(command(place, arguments.steps))
                if moments.random() < 0.8:  # the others are killed while they start
                    wait_for_progress(process, place)
                try:
                    process.wait(moments.uniform(0.0, 1.5))
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGTERM if arguments.term and kills % 2 else signal.SIGKILL)
                    process.wait(60)
                    kills += 1
                    in_save += any(place.glob(".unfinished-*"))
                    continue
                if process.returncode:
                    raise SystemExit(f"a resumed process failed with {process.returncode}; see above")
                break
            found = numbers(train(place, arguments.steps).state)
            same = all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
            identical += same
            print(f"run {runs}: {kills} kills so far, {in_save} during a save, {'identical' if same else 'DIFFERENT'}",
                  flush=True)  # fmt: skip
            shutil.rmtree(place)
        print(f"{kills} kills, {in_save} of them during a save; {identical} of {runs} runs bit-identical")
        if identical < runs:
            raise SystemExit(1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

"""From the start of a process to the first new step of a resumed run, with programs in the disk cache.

python -m benchmarks.training.resume_time [--repeats 5]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = """
import sys, time
import numpy as np
import hloom as hl, hloom.numpy as hnp
from hloom import nn, optim, training
imported = time.time()
def batches(epoch):
    random = np.random.default_rng(epoch)
    for _ in range(50):
        yield random.random((100, 28, 28, 1), np.float32), random.integers(0, 10, 100).astype(np.int32)
def loss(model, batch):
    return hnp.mean(nn.losses.softmax_cross_entropy_with_integer_labels(model(batch[0]), batch[1]))
k = hl.random.split(hl.random.key(0), 5)
model = nn.Sequential(
    nn.Conv(1, 6, (5, 5), key=k[0]), nn.relu, nn.MaxPool((2, 2)), nn.Conv(6, 16, (5, 5), key=k[1]), nn.relu,
    nn.MaxPool((2, 2)), nn.Flatten(), nn.Linear(784, 120, key=k[2]), nn.relu, nn.Linear(120, 10, key=k[3]))
optimizer = optim.adam(1e-3)
state = training.TrainState.of(model, optimizer)
seen = []
def first(loop):
    if not seen:
        seen.extend((time.time(), time.process_time()))
steps = int(sys.argv[2])
training.fit(state, training.train_step(loss, optimizer), batches, steps=steps, checkpoints=sys.argv[1],
             callbacks=[first], progress=False)
print(*seen, imported)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory(prefix="hloom-resume-") as name:
        totals, imports, plain, works = [], [], [], []
        for k in range(repeats + 1):
            began = time.time()
            subprocess.run([sys.executable, "-c", "import numpy"], check=True)
            plain.append(time.time() - began)
            began = time.time()
            command = [sys.executable, "-c", PROGRAM, str(Path(name) / "run"), str(10 + 3 * k)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            if k:  # the first run has nothing to resume from
                first, work, imported = map(float, done.stdout.split())
                totals.append(first - began)
                imports.append(imported - began)
                works.append(work)
        print(f"first new step after {statistics.median(totals):.2f} s (of {repeats}: {min(totals):.2f} to "
              f"{max(totals):.2f}), imports {statistics.median(imports):.2f} s; `import numpy` alone "
              f"{statistics.median(plain):.2f} s; processor time to the first step {min(works):.2f} s")  # fmt: skip


if __name__ == "__main__":
    main()

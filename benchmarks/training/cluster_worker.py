"""The program of the jobs that `cluster_kills` disturbs: a small regression, the same for each step and worker.

    cluster_worker.py MODE STEPS SECONDS OUT

Each worker writes the SHA-256 of its last model to OUT-<number>.
"""

import hashlib
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom import cluster, optim, training

mode: Any = sys.argv[1]  # one of cluster.fit's modes
steps, seconds, out = int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
random = np.random.default_rng(0)
X = random.normal(size=(512, 8)).astype(np.float32)
Y = X @ random.normal(size=(8, 2)).astype(np.float32)
optimizer = optim.adam(0.02)
worker = cluster.worker()


def loss(model, batch):
    return hnp.mean((batch["x"] @ model["w"] + model["b"] - batch["y"]) ** 2)


def batches(epoch):
    rows = np.random.default_rng((epoch, worker)).integers(0, len(X), (20, 16))
    for chosen in rows:
        time.sleep(seconds)
        yield {"x": X[chosen], "y": Y[chosen]}


state = training.TrainState.of({"w": hnp.zeros((8, 2)), "b": hnp.zeros(2)}, optimizer)
result = cluster.fit(state, loss, optimizer, batches, mode=mode, steps=steps, checkpoint_every=5, progress=False)
digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in hl.tree.leaves(result.state.model)))
Path(f"{out}-{worker}").write_text(f"{digest.hexdigest()} {result.step} {loss(result.state.model, {'x': X, 'y': Y})}")

"""Handwritten digits with three workers and two parameter servers, synchronous or not.

    hloom cluster submit --local --workers 3 --ps 2 examples/parameter_servers.py
    hloom cluster submit --local --workers 3 --ps 2 --async examples/parameter_servers.py --mode async
    hloom cluster submit --local --workers 2 examples/parameter_servers.py       # no servers: gradients by MPI

Variables go round-robin to the servers. A process that dies is started again; the job goes on from what is saved.
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits

import hloom as hl
import hloom.numpy as hnp
from hloom import cluster, optim, training

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--mode", choices=["sync", "async"], default="sync")
parser.add_argument("--steps", type=int, default=150)
options = parser.parse_args()

digits = load_digits()
X, Y = (digits.data / 16).astype(np.float32), digits.target.astype(np.int32)


def logits(model, x):
    return hnp.tanh(x @ model["w1"] + model["b1"]) @ model["w2"] + model["b2"]


def loss(model, batch):
    return hnp.mean(hl.nn.losses.softmax_cross_entropy_with_integer_labels(logits(model, batch["x"]), batch["y"]))


def batches(epoch):
    rows = np.random.default_rng((cluster.worker(), epoch)).integers(0, len(Y), (50, 50))
    return ({"x": X[chosen], "y": Y[chosen]} for chosen in rows)


one, two = hl.random.split(hl.random.key(0))
model = {
    "w1": 0.2 * hl.random.normal(one, (64, 32)), "b1": hnp.zeros(32),
    "w2": 0.2 * hl.random.normal(two, (32, 10)), "b2": hnp.zeros(10),
}  # fmt: skip
optimizer = optim.sgd(0.2)
state = training.TrainState.of(model, optimizer)
result = cluster.fit(state, loss, optimizer, batches, mode=options.mode, steps=options.steps, progress=False)
accuracy = float(hnp.mean((hnp.argmax(logits(result.state.model, X), axis=1) == Y).astype("float32")))
print(f"worker {cluster.worker()}: {options.mode}, {result.step} steps, accuracy {accuracy:.3f}")
assert accuracy > 0.85

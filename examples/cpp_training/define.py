"""A two-layer perceptron, its cost and an Adam step, as a C++ library: `python define.py FOLDER`.

The program in train.cpp then trains it without Python. CMakeLists.txt runs this file and builds both.
"""

import sys

import hloom as hl
import hloom.numpy as hnp
from hloom import optim

BATCH = 100
optimizer = optim.adam(1e-3)


def init():
    one, two = hl.random.split(hl.random.key(0))
    weights = {
        "w1": 0.1 * hl.random.normal(one, (32, 16)),
        "b1": hnp.zeros(16),
        "w2": 0.1 * hl.random.normal(two, (16, 8)),
        "b2": hnp.zeros(8),
    }
    return weights, optimizer.init(weights)


def predict(weights, x):
    return hnp.tanh(hnp.tanh(x @ weights["w1"] + weights["b1"]) @ weights["w2"] + weights["b2"])


def cost(weights, x, y):
    return hnp.sum((y - predict(weights, x)) ** 2)


def train(weights, moments, x, y):
    value, gradient = hl.value_and_grad(cost)(weights, x, y)
    updates, moments = optimizer.update(gradient, moments, weights)
    return optim.apply_updates(weights, updates), moments, value


def export(folder, **options):
    return hl.export(
        {"init": init, "train": train, "cost": cost, "predict": predict},
        state=("weights", "moments"),
        updates=("init", "train"),
        x=hl.ShapeDtypeStruct((BATCH, 32), "float32"),
        y=hl.ShapeDtypeStruct((BATCH, 8), "float32"),
        name="perceptron",
        folder=folder,
        **options,
    )


if __name__ == "__main__":
    exported = export(sys.argv[1] if len(sys.argv) > 1 else "build", kind="static")
    print(exported.path, exported.header, sep="\n")

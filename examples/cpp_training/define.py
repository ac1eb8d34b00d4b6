"""A two-layer perceptron, its cost and an Adam step as a saved program, and from it a C++ library.

    python define.py FOLDER       # perceptron.hloom, libperceptron.a, perceptron.h

The program in train.cpp then trains it without Python. CMakeLists.txt runs this file and builds both. The command line
does the second step as well:

    hloom export perceptron.hloom x=f32[100,32] y=f32[100,8] --fetch train=train,cost --fetch cost --fetch predict=out
"""

import sys
from pathlib import Path

import hloom as hl
import hloom.numpy as hnp
from hloom import sessions

BATCH = 100
FETCHES = {"train": ["train", "cost"], "cost": "cost", "predict": "out"}


def define():
    """The graph, with names for what C++ fetches."""
    program = sessions.Program("perceptron")
    one, two = hl.random.split(hl.random.key(0))
    with program:
        x, y = sessions.placeholder("x", [None, 32]), sessions.placeholder("y", [None, 8])
        w1 = sessions.variable("w1", 0.1 * hl.random.normal(one, (32, 16)))
        b1 = sessions.variable("b1", hnp.zeros(16))
        w2 = sessions.variable("w2", 0.1 * hl.random.normal(two, (16, 8)))
        b2 = sessions.variable("b2", hnp.zeros(8))
        out = program.target("out", hnp.tanh(hnp.tanh(x @ w1 + b1) @ w2 + b2))
        cost = program.target("cost", hnp.sum((y - out) ** 2))
        sessions.minimize(hl.optim.adam(1e-3), cost, name="train")
    return program


def export(folder, **options):
    """Saves the program, reads it again, as another process would, and exports it."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    saved = sessions.load(sessions.save(Path(folder) / "perceptron.hloom", define()))
    feeds = {"x": (BATCH, 32), "y": (BATCH, 8)}
    return hl.export(saved, fetches=FETCHES, feeds=feeds, folder=folder, **options)


if __name__ == "__main__":
    exported = export(sys.argv[1] if len(sys.argv) > 1 else "build", kind="static")
    print(exported.path, exported.header, sep="\n")

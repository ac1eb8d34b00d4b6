"""TensorFlow 1.0's first listings: a graph is defined and saved; a second process loads it and trains it by names.

python examples/tf1/mlp_graph.py [--folder mlp]
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom import optim, sessions
from hloom.sessions import Program, Session, minimize, placeholder, variable


def define():
    """A network of two layers, its cost and a step of Adam."""
    program = Program("mlp")
    with program:
        x, y = placeholder("x", [None, 32]), placeholder("y", [None, 8])
        one, two = hl.random.split(hl.random.key(0))
        w1 = variable("w1", 0.1 * hl.random.truncated_normal(one, -2, 2, (32, 16)))
        b1 = variable("b1", hnp.zeros(16))
        w2 = variable("w2", 0.1 * hl.random.truncated_normal(two, -2, 2, (16, 8)))
        b2 = variable("b2", hnp.zeros(8))
        out = hnp.tanh(hnp.tanh(x @ w1 + b1) @ w2 + b2)
        cost = hnp.sum(hnp.square(y - out))
        minimize(optim.adam(1e-3), cost, name="train")
        program.initializer(name="init")
    return program


def load_and_train(path, steps=200, report=print):
    """Trains the graph of a file on random batches; returns the first and the last cost."""
    program = sessions.load(path).program
    rng = np.random.default_rng(0)
    feed = {"x": rng.random((100, 32), np.float32), "y": rng.random((100, 8), np.float32)}
    costs = []
    with Session(program) as session:
        session.run("init")
        for step in range(steps):
            cost, _ = session.run(["cost", "train"], feed)
            costs.append(float(cost))
            if step % 50 == 0:
                report(f"step {step:4d}  cost {costs[-1]:.2f}")
    return costs[0], costs[-1]


def main(folder, report=print):
    """Returns the costs before and after training in another process, and how often the graph computes tanh."""
    program = define()
    kinds = [i.opcode for i in program.instructions]
    report(f"{program}; the gradient reads what is computed: {kinds.count('tanh')} tanh")
    sessions.save(Path(folder, "mlp.txt"), program)  # text
    sessions.save(Path(folder, "mlp.hloom"), program)  # binary
    done = subprocess.run(
        [sys.executable, __file__, "--load", str(Path(folder, "mlp.hloom"))], capture_output=True, text=True, check=True
    )
    report(done.stdout.rstrip())
    first, last = map(float, done.stdout.split()[-2:])
    return first, last, kinds.count("tanh")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--folder", help="where the graph is saved (default: a temporary folder)")
    arguments.add_argument("--load", help="train the graph of this file")
    given = arguments.parse_args()
    if given.load:
        print("from, to:", *load_and_train(given.load))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            Path(given.folder or temporary).mkdir(exist_ok=True)
            main(given.folder or temporary)

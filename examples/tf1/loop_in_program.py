"""TensorFlow 1.0's texts on C++: calls from Python at each step. Here the training loop is a part of the program.

python examples/tf1/loop_in_program.py [--steps 1000]
"""

import argparse
import time

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom import optim

optimizer = optim.adam(1e-3)


def cost(w, x, y):
    return hnp.sum((y - hnp.tanh(hnp.tanh(x @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"])) ** 2)


def step(carry, batch):
    w, state = carry
    value, gradient = hl.value_and_grad(cost)(w, *batch)
    updates, state = optimizer.update(gradient, state, w)
    return (optim.apply_updates(w, updates), state), value


def main(steps=1000, report=print):
    """Returns the last cost of both ways."""
    one, two = hl.random.split(hl.random.key(0))
    w = {"w1": 0.1 * hl.random.normal(one, (32, 16)), "b1": hnp.zeros(16)}
    w |= {"w2": 0.1 * hl.random.normal(two, (16, 8)), "b2": hnp.zeros(8)}
    start, rng = (w, optimizer.init(w)), np.random.default_rng(0)
    xs, ys = rng.random((steps, 100, 32), np.float32), rng.random((steps, 100, 8), np.float32)
    single, whole = hl.jit(step), hl.jit(lambda carry, xs, ys: hl.scan(step, carry, (xs, ys)))

    def by_calls():
        carry = start
        for batch in zip(xs, ys, strict=True):
            carry, value = single(carry, batch)
        return float(value)

    found = []
    for name, run in {"a call per step": by_calls, "one program": lambda: float(whole(start, xs, ys)[1][-1])}.items():
        run()
        started = time.perf_counter()
        found.append(run())
        report(f"{name:16} {(time.perf_counter() - started) / steps * 1e6:6.1f} us per step; cost {found[-1]:.3f}")
    return found


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--steps", type=int, default=1000)
    main(arguments.parse_args().steps)

"""Linear regression on medical data, by gradient descent and in closed form.

The data are the 442 diabetes patients that scikit-learn bundles: ten measurements (age, blood pressure, ...) and how
far the disease had progressed a year later. A fifth is held out. Gradient descent with momentum follows the gradient
that `hl.value_and_grad` returns; the result is compared with NumPy's least squares. Run

    python examples/linear_regression.py [--steps 3000]
"""

import argparse
import time

import numpy as np
from sklearn.datasets import load_diabetes

import hloom as hl
import hloom.numpy as hnp

RATE, MOMENTUM = 0.1, 0.9


def load():
    """Training and held-out measurements (standardized on the training part) and targets, float32."""
    data = load_diabetes()
    order = np.random.default_rng(0).permutation(len(data.target))
    x, y = data.data[order], data.target[order]
    held_out = len(y) // 5
    mean, deviation = x[held_out:].mean(axis=0), x[held_out:].std(axis=0)
    x = ((x - mean) / deviation).astype(np.float32)
    y = y.astype(np.float32)
    return x[held_out:], y[held_out:], x[:held_out], y[:held_out]


def predict(parameters, x):
    return x @ parameters["w"] + parameters["b"]


def loss(parameters, x, y):
    return hnp.mean((predict(parameters, x) - y) ** 2)


@hl.jit
def step(parameters, velocity, x, y):
    """One step of gradient descent with momentum."""
    value, gradient = hl.value_and_grad(loss)(parameters, x, y)
    velocity = hl.tree.map(lambda v, g: MOMENTUM * v - RATE * g, velocity, gradient)
    return hl.tree.map(lambda p, v: p + v, parameters, velocity), velocity, value


@hl.jit
def r_squared(parameters, x, y):
    """The share of the targets' variance that the prediction explains."""
    residual = y - predict(parameters, x)
    return 1 - hnp.sum(residual * residual) / hnp.sum((y - hnp.mean(y)) ** 2)


def closed_form(x, y):
    """The least-squares solution in double precision, by NumPy."""
    with_ones = np.column_stack([x, np.ones(len(x))]).astype(np.float64)
    solution = np.linalg.lstsq(with_ones, y.astype(np.float64), rcond=None)[0]
    return {"w": hnp.asarray(solution[:-1].astype(np.float32)), "b": hnp.asarray(np.float32(solution[-1]))}


def fit(steps=3000, report=print):
    """R^2 on the training part by descent and by the closed form, and on the held-out part by descent."""
    x, y, held_x, held_y = (hnp.asarray(a) for a in load())
    parameters = {"w": hnp.zeros(x.shape[1]), "b": hnp.zeros(())}
    velocity = {"w": hnp.zeros(x.shape[1]), "b": hnp.zeros(())}
    started = time.perf_counter()
    for k in range(1, steps + 1):
        parameters, velocity, value = step(parameters, velocity, x, y)
        if k in (1, 10, 100) or k % 1000 == 0:
            report(f"step {k:5d}  mean squared error {float(value):9.2f}  {time.perf_counter() - started:.2f} s")
    exact = closed_form(np.asarray(x), np.asarray(y))
    found = float(r_squared(parameters, x, y))
    best = float(r_squared(exact, x, y))
    held = float(r_squared(parameters, held_x, held_y))
    report(f"R^2 on {len(y)} patients: descent {found:.5f}, least squares {best:.5f}")
    report(f"R^2 on {len(held_y)} held-out patients: {held:.3f}")
    return found, best, held


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=3000, help="steps of gradient descent (default: 3000)")
    found, best, held = fit(parser.parse_args().steps)
    assert abs(found - best) < 1e-3, "descent should arrive at the least-squares solution"
    assert held > 0.35, "the fit should explain a good part of the held-out patients too"

"""Gaussian process regression on the diabetes data (442 patients) that scikit-learn bundles.

Length scale, amplitude and noise are found by gradient ascent on the marginal likelihood, through a Cholesky
factorization (Rasmussen and Williams, 2006, algorithm 2.1). Run

    python examples/gaussian_process.py [--steps 150]
"""

import argparse
import math

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import hloom as hl
import hloom.numpy as hnp
import hloom.scipy.linalg as linalg
from hloom import optim


def load():
    """Standardized measurements and progression of the disease, float64; (training, held-out fifth)."""
    data = load_diabetes()
    order = np.random.default_rng(0).permutation(len(data.target))
    x, y = data.data[order], data.target[order]
    held = len(y) // 5
    x = (x - x[held:].mean(axis=0)) / x[held:].std(axis=0)
    y = (y - y[held:].mean()) / y[held:].std()
    return x[held:], y[held:], x[:held], y[:held]


def covariance(parameters, a, b):
    """amplitude^2 exp(-|a - b|^2 / (2 length^2)) for all pairs; the parameters are logarithms."""
    squares = hnp.sum((a[:, None] - b[None]) ** 2, axis=-1)
    return hnp.exp(2 * parameters["amplitude"] - 0.5 * squares * hnp.exp(-2 * parameters["length"]))


def factor(parameters, x, y):
    """The Cholesky factor of the noisy covariance, and the covariance's solution for y."""
    noisy = covariance(parameters, x, x) + hnp.exp(2 * parameters["noise"]) * hnp.eye(len(x), dtype=x.dtype)
    lower = hnp.linalg.cholesky(noisy)
    return lower, linalg.cho_solve((lower, True), y)


def negative_log_likelihood(parameters, x, y):
    lower, weights = factor(parameters, x, y)
    return 0.5 * y @ weights + hnp.sum(hnp.log(hnp.diagonal(lower))) + 0.5 * len(x) * math.log(2 * math.pi)


@hl.jit
def predict(parameters, x, y, new):
    """Mean and standard deviation at new points, noise included."""
    lower, weights = factor(parameters, x, y)
    cross = covariance(parameters, x, new)
    mean = cross.T @ weights
    explained = hnp.sum(linalg.solve_triangular(lower, cross, lower=True) ** 2, axis=0)
    return mean, hnp.sqrt(hnp.exp(2 * parameters["amplitude"]) - explained + hnp.exp(2 * parameters["noise"]))


def fit(steps=150, report=print):
    """Returns (negative log-likelihood, scikit-learn's, R^2 held out, share held out within two deviations)."""
    x, y, held_x, held_y = load()
    x, y = hnp.asarray(x), hnp.asarray(y)
    parameters = {name: hnp.asarray(0.0, "f64") for name in ("amplitude", "length", "noise")}
    optimizer = optim.adam(optim.cosine_decay_schedule(0.1, steps, 0.02))
    state = optimizer.init(parameters)

    @hl.jit
    def step(parameters, state, x, y):
        value, gradient = hl.value_and_grad(negative_log_likelihood)(parameters, x, y)
        updates, state = optimizer.update(gradient, state)
        return optim.apply_updates(parameters, updates), state, value

    for k in range(1, steps + 1):
        parameters, state, value = step(parameters, state, x, y)
        if k % 50 == 0:
            report(f"step {k}  negative log-likelihood {float(value):.3f}")
    kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(1.0)
    theirs = GaussianProcessRegressor(kernel, random_state=0).fit(np.asarray(x), np.asarray(y))
    mean, deviation = predict(parameters, x, y, held_x)
    r2 = float(hl.metrics.r2_score(mean, held_y))
    inside = float(hnp.mean(hnp.abs(mean - held_y) < 2 * deviation))
    return float(negative_log_likelihood(parameters, x, y)), -theirs.log_marginal_likelihood_value_, r2, inside


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--steps", type=int, default=150, help="steps of gradient ascent")
    found, theirs, r2, inside = fit(arguments.parse_args().steps)
    print(f"negative log-likelihood {found:.3f} (scikit-learn {theirs:.3f}); held out R^2 {r2:.3f}")
    print(f"{inside:.1%} of the held-out patients lie within two standard deviations")
    assert found < theirs + 0.5 and r2 > 0.35 and inside > 0.85

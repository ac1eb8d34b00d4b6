"""Logistic regression by Newton's method, on the Wisconsin breast cancer data that scikit-learn bundles.

Gradient and Hessian come from `hl.grad` and `hl.hessian`, the steps from a `while_loop` that ends when the gradient is
small. Run

    python examples/logistic_regression.py [--penalty 1.0]
"""

import argparse

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import hloom as hl
import hloom.numpy as hnp
from hloom import lax, nn


def load():
    """Standardized measurements with a column of ones, and labels, float64; (training, held-out fifth)."""
    data = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(data.target))
    values, labels = data.data[order], data.target[order].astype(np.float64)
    held = len(labels) // 5
    values = (values - values[held:].mean(axis=0)) / values[held:].std(axis=0)
    values = np.concatenate([values, np.ones((len(values), 1))], axis=1)
    return values[held:], labels[held:], values[:held], labels[:held]


def objective(weights, values, labels, penalty):
    """The negative log-likelihood and half the squared weights times the penalty; the last weight is free."""
    cross_entropy = nn.losses.sigmoid_binary_cross_entropy(values @ weights, labels)
    return hnp.sum(cross_entropy) + 0.5 * penalty * hnp.sum(weights[:-1] ** 2)


@hl.jit
def newton(values, labels, penalty):
    """(weights, steps): Newton's method from zero until no element of the gradient is above 1e-8."""
    gradient, hessian = hl.grad(objective), hl.hessian(objective)

    def unfinished(state):
        weights, step = state
        return hnp.logical_and(hnp.max(hnp.abs(gradient(weights, values, labels, penalty))) > 1e-8, step < 50)

    def improve(state):
        weights, step = state
        arguments = (weights, values, labels, penalty)
        return weights - hnp.linalg.solve(hessian(*arguments), gradient(*arguments)), step + 1

    start = (hnp.zeros(values.shape[1], "f64"), hnp.asarray(0, "s32"))
    return lax.while_loop(unfinished, improve, start)


def fit(penalty=1.0, report=print):
    """Returns (largest difference to scikit-learn's weights, steps, accuracy on the held-out fifth)."""
    values, labels, held_values, held_labels = load()
    weights, steps = newton(values, labels, hnp.asarray(penalty, "f64"))
    theirs = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=10_000).fit(values[:, :-1], labels)
    difference = float(np.max(np.abs(np.asarray(weights) - np.append(theirs.coef_[0], theirs.intercept_))))
    accuracy = float(hl.metrics.accuracy(held_values @ weights > 0, held_labels > 0))
    report(f"{int(steps)} Newton steps; largest difference to scikit-learn's weights {difference:.1e}")
    return difference, int(steps), accuracy


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--penalty", type=float, default=1.0, help="weight of the squared weights")
    difference, steps, accuracy = fit(arguments.parse_args().penalty)
    print(f"accuracy on the held-out fifth: {accuracy:.1%}")
    assert difference < 1e-3 and steps < 20 and accuracy >= 0.95

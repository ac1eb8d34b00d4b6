"""Proximal optimizers: each step is the minimum of its problem, and without regularization they are known ones."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import hloom as hl
import hloom.numpy as hnp
from hloom import optim
from hloom.errors import ArgumentError

GRADIENTS = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)


def path(optimizer, start):
    w = {"w": hnp.asarray(start)}
    state = optimizer.init(w)
    update = hl.jit(optimizer.update)
    found = []
    for g in GRADIENTS:
        updates, state = update({"w": hnp.asarray(g)}, state, w)
        w = optim.apply_updates(w, updates)
        found.append(np.asarray(w["w"]))
    return np.array(found)


START = np.linspace(-1, 1, 5, dtype=np.float32)


@pytest.mark.parametrize("optimizer, known, start", [
    (optim.proximal_gradient_descent(0.1), optim.sgd(0.1), START),
    (optim.proximal_adagrad(0.1), optim.adagrad(0.1, eps=0.0), START),
    # Follow-the-regularized-leader without regularization is Adagrad, from 0 on.
    (optim.ftrl(0.1), optim.adagrad(0.1, eps=0.0), 0 * START),
    (optim.proximal_gradient_descent(lambda n: 0.1 / (1 + n)), optim.sgd(lambda n: 0.1 / (1 + n)), START),
])  # fmt: skip
def test_without_regularization(optimizer, known, start):
    np.testing.assert_allclose(path(optimizer, start), path(known, start), rtol=2e-5, atol=1e-6)


def minimum(function):
    return minimize_scalar(function, bounds=(-20, 20), method="bounded", options={"xatol": 1e-10}).x


RATE, L1, L2, FIRST = 0.3, 0.4, 0.7, 0.1


def problem(name, k, j, path):
    """The function of one parameter that a step minimizes, from the papers."""
    g, before = GRADIENTS[:, j].astype(float), [START[j], *path[:, j]]
    squares = FIRST + np.cumsum(g**2)
    if name == "proximal_gradient_descent":
        return lambda p: g[k] * p + (p - before[k]) ** 2 / (2 * RATE) + L1 * abs(p) + L2 / 2 * p * p
    if name == "proximal_adagrad":
        own = RATE / np.sqrt(squares[k])
        return lambda p: g[k] * p + (p - before[k]) ** 2 / (2 * own) + L1 * abs(p) + L2 / 2 * p * p
    t = k + 1
    if name == "adagrad_da":
        total = g[:t].sum()
        return lambda p: total * p + t * (L1 * abs(p) + L2 / 2 * p * p) + np.sqrt(squares[k]) / RATE / 2 * p * p
    roots = np.sqrt([FIRST, *squares[:t]])
    sigma = np.diff(roots) / RATE
    linear = sum(g[i] - sigma[i] * before[i] for i in range(t))
    return lambda p: linear * p + roots[-1] / RATE / 2 * p * p + L1 * abs(p) + L2 * p * p


@pytest.mark.parametrize("name", ("proximal_gradient_descent", "proximal_adagrad", "adagrad_da", "ftrl"))
def test_each_step_is_the_minimum_of_its_problem(name):
    found = path(getattr(optim, name)(RATE, l1=L1, l2=L2), START)
    for k in range(len(GRADIENTS)):
        for j in range(len(START)):
            assert found[k, j] == pytest.approx(minimum(problem(name, k, j, found)), abs=2e-4)
    assert (found == 0).any()  # sparse


def test_mistakes():
    with pytest.raises(ArgumentError, match="l1=-1"):
        optim.ftrl(0.1, l1=-1)
    with pytest.raises(ArgumentError, match="power of at most 0"):
        optim.ftrl(0.1, learning_rate_power=1)
    optimizer = optim.ftrl(0.1)
    with pytest.raises(ArgumentError, match="takes the parameters"):
        optimizer.update({"w": hnp.ones(2)}, optimizer.init({"w": hnp.ones(2)}))

"""hloom.optim: the steps of each optimizer against formulas in NumPy, and against Optax where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import optim
from hloom.errors import ArgumentError, TreeError

pytestmark = pytest.mark.quick

PARAMETERS = {"w": np.array([[1.0, -2.0], [0.5, 3.0]], np.float32), "b": np.array([0.1, -0.3], np.float32)}

OPTIMIZERS = {
    "sgd": lambda o: o.sgd(0.1),
    "momentum": lambda o: o.sgd(0.1, momentum=0.9),
    "nesterov": lambda o: o.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda o: o.adam(0.01, b1=0.8, b2=0.95, eps=1e-6),
    "nadam": lambda o: o.nadam(0.01),
    "adamw": lambda o: o.adamw(0.01, weight_decay=0.1),
    "adamw-masked": lambda o: o.adamw(0.01, weight_decay=0.1, mask={"w": True, "b": False}),
    "amsgrad": lambda o: o.amsgrad(0.01),
    "adamax": lambda o: o.adamax(0.01),
    "adagrad": lambda o: o.adagrad(0.1),
    "adadelta": lambda o: o.adadelta(1.0),
    "rmsprop": lambda o: o.rmsprop(0.01),
    "rmsprop-centered": lambda o: o.rmsprop(0.01, centered=True, momentum=0.5, initial_scale=0.3),
    "rmsprop-eps": lambda o: o.rmsprop(0.01, eps_in_sqrt=False, momentum=0.5, nesterov=True),
    "lion": lambda o: o.lion(0.01),
    "lamb": lambda o: o.lamb(0.01, weight_decay=0.01),
    "lars": lambda o: o.lars(0.1, weight_decay=0.01),
    "clipped": lambda o: o.chain(o.clip_by_global_norm(0.5), o.sgd(0.1)),
    "clip": lambda o: o.chain(o.clip(0.2), o.sgd(0.1)),
    "block-rms": lambda o: o.chain(o.clip_by_block_rms(0.1), o.sgd(0.1)),
    "centralized": lambda o: o.chain(o.centralize(), o.sgd(0.1)),
    "ema": lambda o: o.chain(o.ema(0.9), o.sgd(0.1)),
    "cosine": lambda o: o.sgd(o.warmup_cosine_decay_schedule(0.0, 0.3, 3, 8, 0.01)),
    "exponential": lambda o: o.adam(o.exponential_decay(0.1, 2, 0.7, staircase=True)),
    "finite": lambda o: o.apply_if_finite(o.adam(0.1), 3),
}


def gradients(step):
    """Gradients that change from step to step, with a zero among them."""
    random = np.random.default_rng(step)
    made = {k: random.standard_normal(v.shape).astype(np.float32) for k, v in PARAMETERS.items()}
    made["b"][0] = 0.0
    return made


def run(library, make, steps=6):
    optimizer = make(library)
    parameters = {k: hnp.asarray(v) if library is optim else v for k, v in PARAMETERS.items()}
    state = optimizer.init(parameters)
    for step in range(steps):
        updates, state = optimizer.update(gradients(step), state, parameters)
        parameters = library.apply_updates(parameters, updates)
    return {k: np.asarray(v) for k, v in parameters.items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_as_optax(name):
    optax = pytest.importorskip("optax", reason="optax is not installed; the formulas below are checked without it")
    expected = run(optax, OPTIMIZERS[name])
    found = run(optim, OPTIMIZERS[name])
    for key in PARAMETERS:
        np.testing.assert_allclose(found[key], expected[key], rtol=2e-5, atol=2e-6)


def test_adam_by_hand():
    x, m, v = 1.0, 0.0, 0.0
    optimizer = optim.adam(0.1)
    parameter = hnp.asarray(1.0, "f32")
    state = optimizer.init(parameter)
    for t, g in enumerate((0.5, -0.2, 0.1), 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        x -= 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        updates, state = optimizer.update(hnp.asarray(g, "f32"), state, parameter)
        parameter = optim.apply_updates(parameter, updates)
    assert float(parameter) == pytest.approx(x, rel=1e-5)


def test_momentum_nesterov_and_plain_by_hand():
    for nesterov in (False, True):
        x, v = 1.0, 0.0
        optimizer = optim.sgd(0.1, momentum=0.5, nesterov=nesterov)
        parameter = hnp.asarray(1.0, "f32")
        state = optimizer.init(parameter)
        for g in (1.0, -2.0, 0.5):
            v = g + 0.5 * v
            x -= 0.1 * (g + 0.5 * v if nesterov else v)
            updates, state = optimizer.update(hnp.asarray(g, "f32"), state, parameter)
            parameter = optim.apply_updates(parameter, updates)
        assert float(parameter) == pytest.approx(x, rel=1e-6)


def test_lion_adagrad_rmsprop_by_hand():
    g = np.array([0.5, -2.0], np.float32)
    zero = hnp.zeros(2)
    lion, adagrad, rms = optim.lion(0.1, weight_decay=0.0), optim.adagrad(0.1, 0.0), optim.rmsprop(0.1, 0.75, eps=0.0)
    for optimizer, expected in (
        (lion, -0.1 * np.sign(g)),
        (adagrad, -0.1 * g / np.sqrt(g * g + 1e-7)),
        (rms, -0.1 * g / np.sqrt(0.25 * g * g)),
    ):
        updates, _ = optimizer.update(g, optimizer.init(zero), zero)
        np.testing.assert_allclose(np.asarray(updates), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["adam", "rmsprop-centered", "lion", "clipped", "cosine"])
def test_inside_jit_as_outside(name):
    optimizer = OPTIMIZERS[name](optim)

    @hl.jit
    def step(parameters, state, gradient):
        updates, state = optimizer.update(gradient, state, parameters)
        return optim.apply_updates(parameters, updates), state

    parameters = {k: hnp.asarray(v) for k, v in PARAMETERS.items()}
    state = optimizer.init(parameters)
    for k in range(6):
        parameters, state = step(parameters, state, gradients(k))
    expected = run(optim, OPTIMIZERS[name])
    for key in PARAMETERS:
        np.testing.assert_allclose(np.asarray(parameters[key]), expected[key], rtol=1e-5, atol=1e-6)


def test_schedules():
    assert float(optim.linear_schedule(1.0, 0.0, 10)(5)) == pytest.approx(0.5)
    assert float(optim.polynomial_schedule(1.0, 0.0, 2, 10)(5)) == pytest.approx(0.25)
    assert float(optim.cosine_decay_schedule(1.0, 10, alpha=0.1)(10)) == pytest.approx(0.1)
    assert float(optim.cosine_decay_schedule(1.0, 10)(5)) == pytest.approx(0.5)
    assert float(optim.exponential_decay(1.0, 10, 0.5)(20)) == pytest.approx(0.25)
    assert float(optim.exponential_decay(1.0, 10, 0.5, end_value=0.4)(20)) == pytest.approx(0.4)
    assert float(optim.exponential_decay(1.0, 10, 0.5, staircase=True)(19)) == pytest.approx(0.5)
    steps = optim.piecewise_constant_schedule(1.0, {3: 0.1, 6: 0.5})
    assert [round(float(steps(k)), 3) for k in (0, 2, 3, 5, 6)] == [1.0, 1.0, 0.1, 0.1, 0.05]
    warm = optim.warmup_cosine_decay_schedule(0.0, 1.0, 10, 110, 0.2)
    assert [float(warm(k)) for k in (0, 5, 10, 60, 110)] == pytest.approx([0.0, 0.5, 1.0, 0.6, 0.2])
    restarts = optim.sgdr_schedule(
        [{"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 2, "decay_steps": 10, "end_value": 0.0}] * 2
    )
    assert float(restarts(2)) == pytest.approx(1.0) and float(restarts(12)) == pytest.approx(1.0)
    cycle = optim.cosine_onecycle_schedule(100, 1.0)
    assert float(cycle(30)) == pytest.approx(1.0) and float(cycle(0)) == pytest.approx(1 / 25)


def test_average_of_parameters():
    average = optim.ExponentialMovingAverage.of({"w": hnp.zeros(2)}, decay=0.5)
    for value in (1.0, 2.0, 4.0):
        average = average.update({"w": hnp.full(2, value)})
    expected = (0.125 * 1 + 0.25 * 2 + 0.5 * 4) / 0.875
    np.testing.assert_allclose(np.asarray(average.value()["w"]), expected, rtol=1e-6)
    jitted = hl.jit(lambda a, p: a.update(p))(average, {"w": hnp.ones(2)})
    assert int(jitted.count) == 4


def test_parts_of_parameters_get_their_own_optimizer():
    parameters = {k: hnp.asarray(v) for k, v in PARAMETERS.items()}
    optimizer = optim.partition({"train": optim.sgd(1.0), "freeze": optim.set_to_zero()}, {"w": "train", "b": "freeze"})
    updates, _ = optimizer.update(gradients(0), optimizer.init(parameters), parameters)
    np.testing.assert_array_equal(np.asarray(updates["b"]), 0)
    np.testing.assert_array_equal(np.asarray(updates["w"]), -gradients(0)["w"])
    with pytest.raises(ArgumentError, match="a transformation for the label 'slow'"):
        optim.partition({"train": optim.sgd(1.0)}, {"w": "train", "b": "slow"}).init(parameters)


def test_updates_that_are_not_finite_are_passed_over():
    optimizer = optim.apply_if_finite(optim.sgd(1.0), 2)
    parameter = hnp.ones(2)
    state = optimizer.init(parameter)
    bad = np.array([np.nan, 1.0], np.float32)
    for expected in (0.0, 0.0):
        updates, state = optimizer.update(bad, state, parameter)
        np.testing.assert_array_equal(np.asarray(updates), expected)
    updates, state = optimizer.update(bad, state, parameter)  # the third in a row is let through
    assert np.isnan(np.asarray(updates)[0]) and int(state.total_notfinite) == 3


def test_dtypes_stay():
    parameters = {"a": hnp.ones(3, "bf16"), "b": hnp.ones(3, "f64")}
    for make in (optim.adam, optim.sgd, optim.rmsprop, optim.adagrad, optim.lion):
        optimizer = make(0.1)
        state = optimizer.init(parameters)
        for _ in range(2):
            updates, state = optimizer.update(parameters, state, parameters)
        new = optim.apply_updates(parameters, updates)
        assert [x.dtype for x in hl.tree.leaves(new)] == [x.dtype for x in hl.tree.leaves(parameters)]


def test_errors():
    with pytest.raises(ArgumentError, match="gradient transformations; number 0"):
        optim.chain(optim.adam)
    adamw = optim.adamw(0.1)
    state = adamw.init(hnp.ones(2))
    with pytest.raises(ArgumentError, match="takes the parameters"):
        adamw.update(hnp.ones(2), state)
    with pytest.raises(ArgumentError, match="the state that its init created"):
        optim.sgd(0.1).update(hnp.ones(2), state, hnp.ones(2))
    with pytest.raises(TreeError):
        optim.apply_updates({"a": hnp.ones(2)}, {"b": hnp.ones(2)})
    with pytest.raises(TreeError, match="mask"):
        optim.masked(optim.sgd(0.1), {"x": True}).init({"y": hnp.ones(2)})

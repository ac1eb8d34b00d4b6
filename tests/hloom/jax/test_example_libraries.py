"""jax.example_libraries' programs on hloom: the same numbers as JAX's, and a network of stax layers that learns."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, TreeError
from hloom.jax.example_libraries import optimizers, stax

MAKERS = {
    "sgd": (0.1,),
    "momentum": (0.1, 0.9),
    "nesterov": (0.1, 0.9),
    "adagrad": (0.1,),
    "rmsprop": (0.1,),
    "rmsprop_momentum": (0.1,),
    "adam": (0.1,),
    "adamax": (0.1,),
    "sm3": (0.1,),
}


def run(library, name, jit, steps=5):
    init, update, get_params = getattr(library, name)(*MAKERS[name])
    state = init({"w": np.array([[1.0, -2.0], [3.0, 0.5]], np.float32), "b": np.array([0.5, 0.0], np.float32)})
    update = jit(update)
    for step in range(steps):
        random = np.random.default_rng(step)
        gradient = {
            "w": random.standard_normal((2, 2)).astype(np.float32),
            "b": random.standard_normal(2).astype(np.float32),
        }
        state = update(step, gradient, state)
    return get_params(state)


@pytest.mark.parametrize("name", MAKERS)
def test_optimizers_as_jax(name):
    jax = pytest.importorskip("jax")
    theirs = pytest.importorskip("jax.example_libraries.optimizers")
    expected, found = run(theirs, name, jax.jit), run(optimizers, name, hl.jit)
    for key in expected:
        np.testing.assert_allclose(np.asarray(found[key]), np.asarray(expected[key]), rtol=1e-5, atol=1e-6)


def test_state_as_a_plain_tree_and_back():
    init, update, get_params = optimizers.momentum(0.1, 0.9)
    state = update(0, {"w": hnp.ones(3)}, init({"w": hnp.ones(3)}))
    again = optimizers.pack_optimizer_state(optimizers.unpack_optimizer_state(state))
    np.testing.assert_array_equal(np.asarray(get_params(again)["w"]), np.asarray(get_params(state)["w"]))
    with pytest.raises(TreeError, match="gradients with the structure of the parameters"):
        update(0, {"v": hnp.ones(3)}, state)


def test_schedules_and_clipping():
    steps = optimizers.piecewise_constant([2, 5], [1.0, 0.5, 0.1])
    assert [float(steps(k)) for k in (0, 2, 3, 6)] == pytest.approx([1.0, 1.0, 0.5, 0.1])
    assert float(optimizers.exponential_decay(1.0, 2, 0.25)(4)) == pytest.approx(1 / 16)
    assert float(optimizers.inverse_time_decay(1.0, 2, 1.0)(4)) == pytest.approx(1 / 3)
    assert float(optimizers.polynomial_decay(1.0, 4, 0.0)(1)) == pytest.approx(0.75)
    clipped = optimizers.clip_grads([hnp.asarray([3.0, 4.0])], 1.0)
    np.testing.assert_allclose(np.asarray(clipped[0]), [0.6, 0.8], rtol=1e-6)
    with pytest.raises(ArgumentError, match="a step size"):
        optimizers.sgd([1.0, 2.0])


def test_a_convolutional_network_of_stax_layers_learns():
    init, apply = stax.serial(
        stax.Conv(4, (3, 3), padding="SAME"),
        stax.BatchNorm(),
        stax.Relu,
        stax.MaxPool((2, 2), (2, 2)),
        stax.FanOut(2),
        stax.parallel(stax.Identity, stax.Conv(4, (1, 1))),
        stax.FanInSum,
        stax.Flatten,
        stax.Dense(2),
        stax.LogSoftmax,
    )
    shape, params = init(hl.random.key(0), (-1, 8, 8, 1))
    assert shape == (-1, 2)
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 64)
    images = random.standard_normal((64, 8, 8, 1)).astype(np.float32)
    images[labels == 1, :, :4] += 1.0
    targets = np.eye(2, dtype=np.float32)[labels]
    opt_init, opt_update, get_params = optimizers.adam(1e-2)

    def loss(params):
        return -hnp.mean(hnp.sum(apply(params, images) * targets, axis=1))

    @hl.jit
    def step(k, state):
        value, gradient = hl.value_and_grad(loss)(get_params(state))
        return opt_update(k, gradient, state), value

    state = opt_init(params)
    values = []
    for k in range(30):
        state, value = step(k, state)
        values.append(float(value))
    assert values[-1] < 0.3 * values[0]


def test_dropout_and_shapes():
    init, apply = stax.serial(stax.Dropout(0.5), stax.Dense(3))
    shape, params = init(hl.random.key(0), (5, 4))
    assert shape == (5, 3)
    assert apply(params, np.ones((5, 4), np.float32), rng=hl.random.key(1)).shape == (5, 3)
    with pytest.raises(ArgumentError, match="requires rng"):
        apply(params, np.ones((5, 4), np.float32))
    shape, _ = stax.ConvTranspose(2, (3, 3), (2, 2), "SAME")[0](hl.random.key(0), (1, 4, 4, 3))
    assert shape == (1, 8, 8, 2)
    shape, _ = stax.serial(stax.FanOut(3), stax.FanInConcat())[0](hl.random.key(0), (2, 4))
    assert shape == (2, 12)

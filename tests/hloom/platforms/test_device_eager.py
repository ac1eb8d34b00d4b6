"""Where what is computed outside of `jit` is: gradients, maps, loops and branches."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import DeviceError


@pytest.fixture
def four_devices():
    with hl.config(num_cpu_devices=4):
        yield


def normal(*dims, seed=0):
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def squares(x):
    return (x * x).sum()


AT_ONCE = {
    "grad": lambda x: hl.grad(squares)(x),
    "value_and_grad": lambda x: hl.value_and_grad(squares)(x),
    "vjp": lambda x: hl.vjp(squares, x)[1](1.0),
    "jvp": lambda x: hl.jvp(squares, (x,), (x,)),
    "linearize": lambda x: hl.linearize(squares, x)[1](x),
    "hessian": lambda x: hl.hessian(squares)(x),
    "vmap": lambda x: hl.vmap(hnp.sin)(x),
    "a loop": lambda x: lax.fori_loop(0, 3, lambda k, y: y * x, x),
    "the gradient of a loop": lambda x: hl.grad(lambda x: lax.scan(lambda c, _: (c * x, None), x, None, 3)[0].sum())(x),
    "a branch": lambda x: lax.cond(x[0] > 0, lambda: x, lambda: -x),
}


@pytest.mark.parametrize("name", AT_ONCE)
def test_what_is_computed_at_once_is_where_its_arguments_are(name, four_devices):
    x = normal(3)
    wanted = tree_of_arrays(AT_ONCE[name](x))
    assert all(a.device == hl.devices("cpu")[0] for a in wanted)
    found = tree_of_arrays(AT_ONCE[name](hl.device_put(x, "cpu:2")))
    assert [str(a.device) for a in found] == ["cpu:2"] * len(found)
    with hl.device("cpu:3"):
        scoped = tree_of_arrays(AT_ONCE[name](hl.device_put(x, "cpu:2")))
    assert [str(a.device) for a in scoped] == ["cpu:3"] * len(scoped)
    for a, b, c in zip(wanted, found, scoped, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


def tree_of_arrays(made) -> list:
    return [leaf for leaf in hl.tree.leaves(made) if isinstance(leaf, hl.Array)]


def test_gradients_at_once_of_parts_on_several_devices(four_devices):
    def f(x, y):
        with hl.device("cpu:1"):
            a = hnp.sin(x)
        with hl.device("cpu:2"):
            return (a * y).sum()

    value, (dx, dy) = hl.value_and_grad(f, (0, 1))(hl.device_put(normal(3), "cpu:3"), normal(3, seed=1))
    assert [str(a.device) for a in (value, dx, dy)] == ["cpu:2", "cpu:1", "cpu:2"]


def test_arguments_on_two_devices(four_devices):
    one, three = (hl.device_put(normal(3), f"cpu:{k}") for k in (1, 3))
    with pytest.raises(DeviceError, match="cpu:1 and cpu:3"):
        hl.grad(lambda x, y: (x * y).sum())(one, three)
    with pytest.raises(DeviceError, match="cpu:1 and cpu:3"):
        hl.vmap(lambda x, y: (x * y).sum(), in_axes=(0, None))(one, three)
    assert str(hl.vmap(lambda x, y: (x * y).sum(), in_axes=(0, None))(normal(3), three).device) == "cpu:3"

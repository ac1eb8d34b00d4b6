"""`debug_key_reuse`: a second use of a key is an error."""

from __future__ import annotations

import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import KeyReuseError


@pytest.fixture(autouse=True)
def checked():
    with hl.config(debug_key_reuse=True):
        yield


def twice(key):
    return hl.random.normal(key) + hl.random.uniform(key)  # here


def loop(key):
    return [hl.random.normal(key) for _ in range(2)]


def split_then_used(key):
    hl.random.split(key)
    return hl.random.normal(key)


def elements(key):
    keys = hl.random.split(key, 3)
    return hl.random.normal(keys[0]) + hl.random.normal(keys[0])


def inside(key):
    return hl.jit(lambda k: hl.random.normal(k))(key) + hl.random.normal(key)


def captured(key):
    return hl.vmap(lambda x: x + hl.random.normal(key))(hnp.ones(3)).sum() + hl.random.normal(key)


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("function", [twice, loop, split_then_used, elements, inside, captured])
def test_reuse_is_found(function, jit, raw):
    if not jit and function in (elements, captured):
        pytest.skip("outside of traces an index makes a new array, and vmap sees a constant")
    key = (hl.random.PRNGKey if raw else hl.random.key)(0)
    with pytest.raises(KeyReuseError, match="used by .*test_key_reuse.py(.|\n)*hl.random.split"):
        (hl.jit(function) if jit else function)(key)


@pytest.mark.parametrize("jit", [True, False])
def test_right_programs_pass(jit):
    def function(key):
        key, first = hl.random.split(key)
        steps = [hl.random.normal(hl.random.fold_in(first, k)) for k in range(3)]
        a, b = hl.random.split(key)
        batch = hl.vmap(hl.random.normal)(hl.random.split(a, 3))
        return sum(steps) + hl.random.permutation(hl.random.clone(b), 4).sum() + hl.random.normal(b) + batch.sum()

    run = hl.jit(function) if jit else function
    run(hl.random.key(0)), run(hl.random.key(0))
    for name in ("gamma", "beta", "dirichlet", "choice", "permutation", "categorical", "lognormal", "t", "laplace"):
        arguments = {"gamma": (2.0,), "beta": (2.0, 3.0), "dirichlet": (hnp.ones(3),), "choice": (5,), "t": (3.0,)}
        arguments |= {"permutation": (5,), "categorical": (hnp.ones(3),)}
        getattr(hl.random, name)(hl.random.key(0), *arguments.get(name, ()))


def test_a_jitted_function_uses_up_its_argument():
    draw, key = hl.jit(lambda k: hl.random.normal(k)), hl.random.key(0)
    draw(key)
    with pytest.raises(KeyReuseError):
        draw(key)
    with hl.config(debug_key_reuse=False):
        draw(key)

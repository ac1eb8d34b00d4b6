"""Arguments that are no arrays: the error names the argument and how to mark it as static."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ArgumentError

pytestmark = pytest.mark.quick
X = hnp.ones(3)


def scaled(x, mode, scale=1.0):
    return x * scale


known = hl.jit(scaled)
known(X, 1.0)
CASES = [
    (lambda: hl.jit(scaled)(X, "mean"), "mode", "str: 'mean'", "static_argnames='mode'"),
    (lambda: hl.jit(scaled)(X, mode="mean"), "mode", "str: 'mean'", "static_argnames='mode'"),
    (lambda: known(X, "mean"), "mode", "str: 'mean'", "static_argnames='mode'"),
    (lambda: hl.jit(scaled)(X, hnp.sin), "mode", "function", "static_argnames='mode'"),
    (lambda: hl.jit(scaled)(X, np.float32), "mode", "type", "static_argnames='mode'"),
    (lambda: hl.jit(scaled).lower(X, "mean"), "mode", "str", "static_argnames='mode'"),
    (lambda: hl.jit(scaled, static_argnums=2)(X, "a", 2.0), "mode", "str", "static_argnames='mode'"),
    (lambda: hl.jit(lambda n, x, m: x, static_argnums=0)(3, X, "a"), "m", "str", "static_argnames='m'"),
    (lambda: hl.jit(lambda x: hl.jit(scaled)(x, "a"))(X), "mode", "str", "static_argnames='mode'"),
    (lambda: hl.jit(lambda *a: a[0])(X, "a"), "a[1]", "str", "static_argnums=1"),
    (lambda: hl.jit(scaled)({"x": X, "m": "a"}, 2), "x['m']", "str", "take it out of the tree"),
    (lambda: hl.jit(scaled)(X, object()), "mode", "object", "pass a number"),
    (lambda: hl.jit(functools.partial(scaled, scale=2.0))(X, "a"), "mode", "str", "static_argnames='mode'"),
    (lambda: hl.vmap(scaled)(X, "a"), "mode", "str", "functools.partial(function, mode='a')"),
    (lambda: hl.grad(scaled)("a", 1.0), "x", "str", "functools.partial(function, x='a')"),
    (lambda: hl.checkpoint(scaled)(X, "a"), "mode", "str", "functools.partial(function, mode='a')"),
    (lambda: hl.eval_shape(scaled, X, "a"), "mode", "str", "functools.partial(function, mode='a')"),
]


@pytest.mark.parametrize("call,asked,found,repair", CASES, ids=map(str, range(len(CASES))))
def test_an_argument_that_is_no_array_is_named(call, asked, found, repair):
    with pytest.raises(ArgumentError) as caught:
        call()
    error = caught.value
    assert f"argument '{asked}' of " in error.asked and "must be an array" in error.asked, str(error)
    assert found in error.found and repair in error.repair, str(error)
    assert error.source.file == __file__ and error.source.line == call.__code__.co_firstlineno


def test_refs_and_arrays_still_pass():
    assert hl.jit(lambda r: r[...] + 1)(hl.new_ref(X)).shape == (3,)
    assert lax.map(hl.jit(lambda x: scaled(x, "a")), X).shape == (3,)

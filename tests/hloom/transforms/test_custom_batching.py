"""custom_vmap: the rule under vmap, derivatives beside it, errors."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, BatchingError, HloomError, ShapeError, TreeError

X = np.arange(6.0, dtype=np.float32).reshape(2, 3)


def marked():
    """x * y, and under vmap the same plus 100, so that it shows where the rule is used."""
    seen = []

    @hl.custom_batching.custom_vmap
    def f(x, y):
        return x * y

    @f.def_vmap
    def rule(axis_size, in_batched, x, y):
        seen.append((axis_size, in_batched))
        return x * y + 100.0, True

    return f, seen


def test_the_rule_is_used_under_vmap():
    f, seen = marked()
    np.testing.assert_array_equal(f(X, X), X * X)
    np.testing.assert_array_equal(hl.jit(f)(X, X), X * X)
    assert seen == []
    np.testing.assert_array_equal(hl.vmap(f)(X, X), X * X + 100)
    np.testing.assert_array_equal(hl.jit(hl.vmap(f, (0, None)))(X, X[0]), X * X[0] + 100)
    assert seen == [(2, [True, True]), (2, [True, False])]


def test_derivatives_are_those_of_the_function():
    f, _ = marked()
    np.testing.assert_array_equal(hl.grad(lambda x: f(x, X).sum())(X), X)
    value, tangent = hl.jvp(f, (X, X), (X, X))
    np.testing.assert_array_equal(tangent, 2 * X * X)
    np.testing.assert_array_equal(hl.vmap(hl.grad(lambda x: f(x, x).sum()))(X), 2 * X)


def test_results_that_are_the_same_for_all():
    f = hl.custom_batching.custom_vmap(lambda x: {"a": x, "b": hnp.ones(2)})
    f.def_vmap(lambda size, batched, x: ({"a": x, "b": hnp.zeros(2)}, {"a": True, "b": False}))
    found = hl.vmap(f, out_axes={"a": 0, "b": None})(X)
    np.testing.assert_array_equal(found["a"], X)
    np.testing.assert_array_equal(found["b"], np.zeros(2))


def test_values_from_outside():
    def outer(x, w):
        f = hl.custom_batching.custom_vmap(lambda x: x * w)
        f.def_vmap(lambda size, batched, x: (x * w + 1, True))
        return hl.vmap(f)(x)

    np.testing.assert_array_equal(hl.jit(outer)(X, 2.0), X * 2 + 1)


def test_sequential_vmap():
    seen = []

    @hl.custom_batching.sequential_vmap
    def f(x, y):
        seen.append(x.shape)
        return x * y.sum()

    y = np.array([1.0, -2.0, 0.5])
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(hl.jit(hl.vmap(f, (0, None)))(x, y), x * y.sum())
    assert all(shape == (3,) for shape in seen)


def fails(error, function, *parts):
    with pytest.raises(error) as caught:
        function()
    assert isinstance(caught.value, HloomError)
    for part in (*parts, "found:", "repair:", "where:"):
        assert part in str(caught.value), str(caught.value)


def test_errors():
    def with_rule(rule):
        f = hl.custom_batching.custom_vmap(lambda x: x)
        if rule:
            f.def_vmap(rule)
        return lambda: hl.vmap(f)(X)

    fails(ArgumentError, lambda: hl.custom_batching.custom_vmap(3), "custom_vmap takes a function")
    fails(BatchingError, with_rule(None), "it has no rule yet")
    fails(TreeError, with_rule(lambda n, b, x: x), "return a pair")
    fails(TreeError, with_rule(lambda n, b, x: ((x, x), True)), "structure")
    fails(TreeError, with_rule(lambda n, b, x: (x, (True, True))), "whether it is batched")
    fails(ShapeError, with_rule(lambda n, b, x: (x[0], True)), "result 0", "f32[2,3]", "f32[3]")

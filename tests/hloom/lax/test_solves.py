"""custom_root and custom_linear_solve: values, derivatives of both modes, batches, errors."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import DifferentiationError, HloomError, ShapeError
from hloom.jax.test_util import check_grads

A = np.array([[4.0, 1.0, 0.5], [0.5, 3.0, -1.0], [1.0, 0.0, 5.0]])
B = np.array([1.0, -2.0, 0.5])


def newton(f, x):
    """A root of a scalar function; its derivative could not be taken in reverse mode."""
    df = hl.grad(f)
    return lax.while_loop(lambda x: abs(f(x)) > 1e-10, lambda x: x - f(x) / df(x), x)


def cube_root(a):
    return lax.custom_root(lambda x: x**3 - a, hnp.ones((), "f64") * 2, newton, lambda g, y: y / g(hnp.ones((), "f64")))


def test_roots():
    a = np.float64(27.0)
    np.testing.assert_allclose(cube_root(a), 3.0)
    np.testing.assert_allclose(hl.jit(cube_root)(a), 3.0)
    np.testing.assert_allclose(hl.jit(hl.grad(cube_root))(a), 1 / 27)
    np.testing.assert_allclose(hl.jvp(cube_root, (a,), (np.float64(2),))[1], 2 / 27)
    np.testing.assert_allclose(hl.jit(hl.grad(hl.grad(cube_root)))(a), -2 / 9 * 27.0 ** (-5 / 3))
    many = np.array([1.0, 8.0, 27.0])
    np.testing.assert_allclose(hl.jit(hl.vmap(hl.grad(cube_root)))(many), many ** (-2 / 3) / 3)


def solve(matvec, b):
    """By the matrix of the function: JAX's examples have iterative solvers here."""
    return hnp.linalg.solve(hl.jacfwd(matvec)(hnp.zeros_like(b)), b)


def with_solve(a, b, **options):
    return lax.custom_linear_solve(lambda x: a @ x, b, solve, **options)


def test_linear_solves():
    f = lambda a, b: with_solve(a, b, transpose_solve=solve)  # noqa: E731
    expected = np.linalg.solve(A, B)
    np.testing.assert_allclose(f(A, B), expected)
    np.testing.assert_allclose(hl.jit(f)(A, B), expected)
    check_grads(f, (A, B), order=2)
    plain = lambda a, b: hnp.linalg.solve(a, b)  # noqa: E731
    total = lambda f: hl.jit(hl.grad(lambda a, b: (f(a, b) ** 2).sum(), (0, 1)))  # noqa: E731
    for x, y in zip(total(f)(A, B), total(plain)(A, B), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9)
    many = np.stack([A, A + np.eye(3), A * 2])
    for x, y in zip(hl.vmap(total(f), (0, None))(many, B), hl.vmap(total(plain), (0, None))(many, B), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9)
    over = lambda f: hl.grad(lambda b: (hl.vmap(f, (0, None))(many, b) ** 2).sum())(B)  # noqa: E731
    np.testing.assert_allclose(over(f), over(plain), rtol=1e-9)


def test_symmetric():
    s = A + A.T
    f = lambda s, b: with_solve(s, b, symmetric=True)  # noqa: E731
    np.testing.assert_allclose(hl.grad(lambda b: f(s, b).sum())(B), np.linalg.solve(s, np.ones(3)))


def fails(error, function, *parts):
    with pytest.raises(error) as caught:
        function()
    assert isinstance(caught.value, HloomError)
    for part in (*parts, "found:", "repair:"):
        assert part in str(caught.value), str(caught.value)


def test_errors():
    fails(DifferentiationError, lambda: hl.grad(lambda b: with_solve(A, b).sum())(B), "transpose_solve")
    jitted = hl.jit(lambda b: lax.custom_linear_solve(lambda x: x[:2], b, solve))
    fails(ShapeError, lambda: jitted(B), "matvec")

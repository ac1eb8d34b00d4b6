"""Iterative solvers, custom_linear_solve and custom_root: solutions, and derivatives against direct solves."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import DifferentiationError, HloomError
from hloom.scipy.sparse.linalg import bicgstab, cg, gmres

RNG = np.random.default_rng(0)
A = RNG.normal(size=(5, 5))
GENERAL = hnp.asarray(A + 6 * np.eye(5))
DEFINITE = hnp.asarray(A @ A.T + 5 * np.eye(5))
B = hnp.asarray(RNG.normal(size=5))
METHODS = [(cg, DEFINITE), (bicgstab, GENERAL), (gmres, GENERAL)]
IDS = ["cg", "bicgstab", "gmres"]


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method, matrix", METHODS, ids=IDS)
def test_solutions(method, matrix):
    for start in (None, B):
        x, info = method(matrix, B, start, tol=1e-12)
        assert info is None
        close(matrix @ x, B)
    inverse = 1 / hnp.diag(matrix)
    close(matrix @ method(lambda v: matrix @ v, B, tol=1e-12, M=lambda v: inverse * v)[0], B)
    close(matrix @ hl.jit(lambda m, b: method(m, b, tol=1e-12)[0])(matrix, B), B)
    many = hnp.stack([B, 2 * B, B + 1])
    found = hl.vmap(lambda b: method(matrix, b, tol=1e-12)[0])(many)
    close(found @ matrix.T, many)


@pytest.mark.parametrize("method, matrix", METHODS, ids=IDS)
def test_derivatives_are_those_of_the_system(method, matrix):
    def loss(m, b):
        return (method(lambda v: m @ v, b, tol=1e-13)[0] ** 3).sum()

    def direct(m, b):
        return (hnp.linalg.solve(m, b) ** 3).sum()

    for found, wanted in zip(hl.grad(loss, (0, 1))(matrix, B), hl.grad(direct, (0, 1))(matrix, B), strict=True):
        close(found, wanted)
    close(hl.jvp(loss, (matrix, B), (matrix, B))[1], hl.jvp(direct, (matrix, B), (matrix, B))[1])
    close(hl.hessian(loss, 1)(matrix, B), hl.hessian(direct, 1)(matrix, B))


def test_complex_systems():
    m = GENERAL + 0.3j * DEFINITE
    hermitian = m @ hnp.conj(m.T)
    b = B + 1j * B[::-1]
    for method, matrix in ((cg, hermitian), (bicgstab, m), (gmres, m)):
        x = method(matrix, b, tol=1e-12)[0]
        close(matrix @ x, b)
        found = hl.grad(lambda b, f=method, a=matrix: hnp.abs(f(a, b, tol=1e-13)[0]).sum())(b)
        close(found, hl.grad(lambda b, a=matrix: hnp.abs(hnp.linalg.solve(a, b)).sum())(b))


def test_trees():
    x, _ = cg(lambda t: {"a": 2 * t["a"], "b": 3 * t["b"]}, {"a": hnp.ones(2), "b": hnp.ones((2, 3))})
    close(x["a"], np.full(2, 0.5))
    np.testing.assert_allclose(x["b"], np.full((2, 3), 1 / 3), rtol=1e-5)


def test_too_few_steps_end():
    x, _ = cg(DEFINITE, B, maxiter=1)
    assert np.abs(np.asarray(DEFINITE @ x - B)).max() > 1e-6


def test_custom_linear_solve_with_aux_and_without_transpose():
    def solved(m, b):
        return lax.custom_linear_solve(
            lambda v: m @ v, b, lambda f, right: (hnp.linalg.solve(m, right), {"n": hnp.asarray(3)}), has_aux=True
        )

    x, aux = hl.jit(solved)(GENERAL, B)
    close(GENERAL @ x, B)
    assert int(aux["n"]) == 3
    _, tangent = hl.jvp(lambda b: solved(GENERAL, b)[0], (B,), (B,))
    close(tangent, x)
    with pytest.raises(DifferentiationError, match="transpose_solve"):
        hl.grad(lambda b: solved(GENERAL, b)[0].sum())(B)


def test_roots():
    def root(y):
        def newton(f, start):
            return lax.fori_loop(0, 20, lambda i, x: x - f(x) / (2 * x), start)

        return lax.custom_root(lambda x: x**2 - y, lax.full_like(y, 1), newton, lambda g, y: y / g(1.0))

    y = hnp.asarray(3.0, dtype="f64")
    close(hl.jit(root)(y), 3**0.5)
    close(hl.grad(root)(y), 0.5 * 3**-0.5)
    close(hl.jit(hl.grad(hl.grad(root)))(y), -0.25 * 3**-1.5)
    close(hl.vmap(hl.grad(root))(hnp.stack([y, y * 2])), 0.5 * np.array([3.0, 6.0]) ** -0.5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: cg(3.0, B),
        lambda: cg(DEFINITE, {"a": B}, {"b": B}),
        lambda: cg(DEFINITE, B, hnp.ones(3)),
        lambda: gmres(DEFINITE, B, solve_method="other"),
        lambda: hl.jit(lambda b: lax.custom_linear_solve(lambda v: v[:2], b, lambda f, b: b))(B),
        lambda: hl.jit(lambda b: lax.custom_linear_solve(lambda v: (v, v), b, lambda f, b: b))(B),
        lambda: lax.custom_root(1.0, B, None, None),
    ],
)
def test_errors_say_what_is_wrong(call):
    with pytest.raises(HloomError) as caught:
        call()
    assert caught.value.asked and caught.value.found and caught.value.repair

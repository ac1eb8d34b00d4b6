"""jacfwd, jacrev, hessian, linear_transpose and check_grads."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, DifferentiationError, HloomError, ShapeError, TreeError
from hloom.jax.test_util import check_grads

X = np.array([0.5, -1.0, 2.0])
M = np.arange(6.0).reshape(2, 3) / 4


def f(x, m):
    return {"a": m @ hnp.sin(x), "b": (x * x).sum()}


EXPECTED = {"a": M * np.cos(X), "b": 2 * X}


@pytest.mark.parametrize("jacobian", [hl.jacfwd, hl.jacrev])
def test_against_the_formula(jacobian):
    for wrap in (lambda f: f, hl.jit):
        found = wrap(jacobian(f))(X, M)
        np.testing.assert_allclose(found["a"], EXPECTED["a"], rtol=1e-12)
        np.testing.assert_allclose(found["b"], EXPECTED["b"], rtol=1e-12)
        by_x, by_m = wrap(jacobian(f, argnums=(0, 1)))(X, M)["a"]
        np.testing.assert_allclose(by_x, EXPECTED["a"], rtol=1e-12)
        np.testing.assert_allclose(by_m, np.einsum("ij,k->ijk", np.eye(2), np.sin(X)), rtol=1e-12)
        assert by_m.shape == (2, 2, 3) and by_m.dtype == np.float64
    found, aux = jacobian(lambda x: (x**2, {"seen": x.sum()}), has_aux=True)(X)
    np.testing.assert_allclose(found, np.diag(2 * X))
    np.testing.assert_allclose(aux["seen"], X.sum())
    many = hl.vmap(jacobian(hnp.sin))(np.stack([X, X + 1]))
    np.testing.assert_allclose(many[1], np.diag(np.cos(X + 1)), rtol=1e-12)
    assert jacobian(lambda x: x * 2)(3.0).shape == () and float(jacobian(lambda x: x * 2)(3.0)) == 2.0


@pytest.mark.parametrize("jacobian", [hl.jacfwd, hl.jacrev])
def test_trees_of_arguments(jacobian):
    found = jacobian(lambda d: (d["x"].sum() * d["y"], d["x"]))({"x": X, "y": np.float64(3)})
    np.testing.assert_allclose(found[0]["x"], np.full(3, 3.0))
    np.testing.assert_allclose(found[0]["y"], X.sum())
    np.testing.assert_allclose(found[1]["x"], np.eye(3))
    np.testing.assert_allclose(found[1]["y"], np.zeros(3))


@pytest.mark.parametrize("jacobian", [hl.jacfwd, hl.jacrev])
def test_holomorphic(jacobian):
    z = np.array([1 + 2j, 0.5 - 1j])
    np.testing.assert_allclose(jacobian(lambda z: z**2, holomorphic=True)(z), np.diag(2 * z), rtol=1e-12)
    fails(DifferentiationError, lambda: jacobian(lambda z: z**2)(z), "are real", "holomorphic=True")


def test_hessian():
    def quartic(x, m):
        return (x**4).sum() + (m @ x).prod()

    found = hl.hessian(quartic)(X, M)
    rows = M @ X
    expected = np.diag(12 * X**2) + np.outer(M[0], M[1]) + np.outer(M[1], M[0])
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    both = hl.jit(hl.hessian(quartic, argnums=(0, 1)))(X, M)
    np.testing.assert_allclose(both[0][0], expected, rtol=1e-10)
    assert both[0][1].shape == (3, 2, 3) and both[1][1].shape == (2, 3, 2, 3)
    np.testing.assert_allclose(np.asarray(both[0][1]), np.transpose(np.asarray(both[1][0]), (2, 0, 1)), rtol=1e-10)
    del rows
    value, aux = hl.hessian(lambda x: ((x**3).sum(), x[0]), has_aux=True)(X)
    np.testing.assert_allclose(value, np.diag(6 * X))
    assert float(aux) == 0.5


def test_linear_transpose():
    shape = hl.ShapeDtypeStruct((3,), "f64")
    back = hl.linear_transpose(lambda x: {"y": M @ x, "z": x[::-1].sum()}, shape)
    (found,) = back({"y": np.array([1.0, 2.0]), "z": np.float64(3)})
    np.testing.assert_allclose(found, M.T @ [1.0, 2.0] + 3)
    two = hl.linear_transpose(lambda x, y: 2 * x - y, X, X)(X)
    np.testing.assert_allclose(two[0], 2 * X)
    np.testing.assert_allclose(two[1], -X)
    np.testing.assert_allclose(
        hl.jit(lambda m: hl.linear_transpose(lambda x: m @ x, shape)(np.ones(2))[0])(M), M.sum(0)
    )
    again = hl.linear_transpose(lambda c: back({"y": c, "z": hnp.zeros((), "f64")})[0], np.ones(2))
    np.testing.assert_allclose(again(X)[0], M @ X)
    fails(DifferentiationError, lambda: hl.linear_transpose(lambda x: x * x, X), "'multiply'", "not linear")
    fails(DifferentiationError, lambda: hl.linear_transpose(hnp.sin, X), "'sine'", "not linear")
    fails(DifferentiationError, lambda: hl.linear_transpose(lambda x: 1 / x, X), "'divide'", "divisor")
    fails(DifferentiationError, lambda: hl.linear_transpose(lambda x: x, np.arange(3)), "s64[3]")
    fails(TreeError, lambda: back(X), "expected")
    fails(ShapeError, lambda: back({"y": X, "z": 1.0}), "f64[3], expected f64[2]")


def test_check_grads():
    check_grads(lambda x, m: (m @ hnp.tanh(x)).prod(), (X, M), order=2)
    check_grads(lambda x: hnp.sin(x).sum(), (X.astype(np.float32),), order=2)
    check_grads(lambda x, n: x * n, (X, 3), order=1, modes="rev")
    wrong = hl.custom_jvp(lambda x: x * x)
    wrong.defjvp(lambda p, t: (p[0] * p[0], 3 * p[0] * t[0]))
    for mode in ("fwd", "rev"):
        with pytest.raises(AssertionError, match=f"check_grads: {mode}"):
            check_grads(wrong, (X,), order=1, modes=[mode])
    late = hl.custom_jvp(lambda x: hnp.sin(x))
    late.defjvp(lambda p, t: (hnp.sin(p[0]), hl.lax.stop_gradient(hnp.cos(p[0])) * t[0]))
    check_grads(late, (X,), order=1)
    with pytest.raises(AssertionError, match="check_grads: rev of fwd|check_grads: fwd of fwd"):
        check_grads(late, (X,), order=2)
    fails(ArgumentError, lambda: check_grads(hnp.sin, (X,), 1, modes="both"), "'both'")


def fails(error, function, *parts):
    with pytest.raises(error) as caught:
        function()
    assert isinstance(caught.value, HloomError)
    for part in (*parts, "found:", "repair:", "where:"):
        assert part in str(caught.value), str(caught.value)


@pytest.mark.parametrize("jacobian", [hl.jacfwd, hl.jacrev, hl.hessian])
def test_errors(jacobian):
    fails(ArgumentError, lambda: jacobian(3), "of a function")
    fails(ArgumentError, lambda: jacobian(f, argnums=2)(X, M), "argument 2", "2 positional arguments")
    fails(ArgumentError, lambda: jacobian(f, argnums="x"), "argnums")
    fails(DifferentiationError, lambda: jacobian(lambda x: x)(np.arange(3)), "s64[3]", "integers and booleans")

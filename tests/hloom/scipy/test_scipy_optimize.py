"""hloom.scipy.optimize.minimize: minima of known functions, in jit and under vmap, and errors."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import HloomError
from hloom.scipy.optimize import minimize


def rosenbrock(x):
    return hnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def himmelblau(p):
    x, y = p
    return (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_known_minima(dtype):
    result = minimize(rosenbrock, hnp.zeros(3, dtype), method="BFGS", tol=1e-3 if dtype == "float32" else 1e-8)
    assert bool(result.success) and int(result.status) == 0 and result.x.dtype == dtype
    np.testing.assert_allclose(result.x, np.ones(3), atol=1e-3 if dtype == "float32" else 1e-6)
    assert 0 < int(result.nit) <= int(result.nfev) == int(result.njev)
    result = minimize(himmelblau, hnp.ones(2, dtype), method="BFGS")
    np.testing.assert_allclose(result.x, [3, 2], atol=1e-3)


def test_arguments_jit_and_vmap():
    def quadratic(x, a, b):
        return 0.5 * x @ a @ x - b @ x

    a, b = hnp.asarray(np.diag([1.0, 10, 100]) + 0.5), hnp.asarray([1.0, 2, 3], dtype="f64")
    solve = hl.jit(lambda b: minimize(quadratic, hnp.zeros(3, "f64"), (a, b), method="BFGS", tol=1e-8).x)
    np.testing.assert_allclose(solve(b), hnp.linalg.solve(a, b), atol=1e-7)
    many = hnp.stack([b, 2 * b])
    np.testing.assert_allclose(hl.vmap(solve)(many), hnp.linalg.solve(a, many.T).T, atol=1e-7)
    # The approximation of the inverse Hessian tends to it.
    result = minimize(quadratic, hnp.zeros(3, "f64"), (a, b), method="BFGS", tol=1e-10)
    np.testing.assert_allclose(result.hess_inv, np.linalg.inv(np.asarray(a)), rtol=0.2, atol=0.02)


def test_ends_that_are_no_minimum():
    result = minimize(rosenbrock, hnp.zeros(3), method="BFGS", options={"maxiter": 2})
    assert not bool(result.success) and int(result.status) == 1 and int(result.nit) == 2
    result = minimize(lambda x: hnp.sum(x) * hnp.nan, hnp.zeros(3), method="BFGS")
    assert not bool(result.success) and int(result.status) == -1
    result = minimize(lambda x: hnp.sum(x**2), hnp.zeros(3), method="BFGS")
    assert bool(result.success) and int(result.nit) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: minimize(rosenbrock, hnp.zeros(3), method="Nelder-Mead"),
        lambda: minimize(rosenbrock, hnp.zeros((3, 1)), method="BFGS"),
        lambda: minimize(rosenbrock, hnp.zeros(3, "s32"), method="BFGS"),
        lambda: minimize(rosenbrock, hnp.zeros(3), [1], method="BFGS"),
        lambda: minimize(rosenbrock, hnp.zeros(3), method="BFGS", options={"disp": True}),
    ],
)
def test_errors_say_what_is_wrong(call):
    with pytest.raises(HloomError) as caught:
        call()
    assert caught.value.asked and caught.value.found and caught.value.repair and caught.value.source is not None

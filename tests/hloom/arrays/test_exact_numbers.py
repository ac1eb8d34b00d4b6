"""A Python float beside double precision keeps its digits, as an argument and through functions; what was created in
single precision by default warns."""

import warnings

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import PrecisionWarning

X = np.linspace(1.0, 2.0, 5)
A = 0.1

FUNCTIONS = {
    "product": (lambda x, a: x * a, X * A),
    "expression": (lambda x, a: x * (a * 0.3 + a**2 - hnp.sqrt(a)), X * (A * 0.3 + A**2 - np.sqrt(A))),
    "choice": (lambda x, a: hnp.where(x > 1.5, a, x), np.where(X > 1.5, A, X)),
    "matrix": (lambda x, a: (x[:, None] * a) @ x[None, :], np.outer(X * A, X)),
    "loop": (lambda x, a: lax.fori_loop(0, 3, lambda i, c: c * a, x), X * A * A * A),
    "carry": (lambda x, a: lax.fori_loop(0, 3, lambda i, c: c + x, a), A + X + X + X),
    "branch": (lambda x, a: lax.cond(x[0] > 0, lambda: x * a, lambda: x), X * A),
    "vmap": (lambda x, a: hl.vmap(lambda y: y + a)(x), X + A),
    "inner_jit": (lambda x, a: hl.jit(lambda y, b: y + b)(x, a * 2), X + A * 2),
    "gradient": (lambda x, a: hl.grad(lambda y: (y * a).sum())(x), np.full(5, A)),
    "differentiated": (lambda x, a: hl.value_and_grad(lambda b: (x * b).sum())(a)[0], (X * A).sum()),
    "checkpoint": (lambda x, a: hl.grad(hl.checkpoint(lambda y: (y * a).sum()))(x), np.full(5, A)),
    "complex": (lambda x, a: (x + 0j) * a, X * A + 0j),
    "constant": (lambda x, a: hnp.sqrt(2.0) * 0.1 * x, np.sqrt(2.0) * 0.1 * X),
    "full": (lambda x, a: hnp.full(5, 0.1) * 3.0 * x, 0.1 * 3.0 * X),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_number_beside_float64(name):
    function, expected = FUNCTIONS[name]
    if name == "carry":
        expected = np.broadcast_to(expected, X.shape)
        function = lambda x, a: lax.fori_loop(0, 3, lambda i, c: c + x, x * 0 + a)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for run in (function, hl.jit(function)):
            result = run(hnp.asarray(X), A)
            assert result.dtype in (np.float64, np.complex128)
            np.testing.assert_allclose(result, expected, rtol=1e-15)


def test_a_number_that_float32_does_not_hold():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f = hl.jit(lambda x, a: x * a)
        assert f(np.ones(1), 1e300).tolist() == [1e300]
        assert f(np.ones(1), 1e-300).tolist() == [1e-300]
        assert (hnp.asarray(1e300) * np.ones(1)).tolist() == [1e300]
        assert f(np.ones(1, np.float32), 1e300).tolist() == [np.inf]
        assert f(np.ones(1), 1e300j).tolist() == [1e300j]
        assert f(np.ones(2), hnp.asarray(0.1)).tolist() == [0.1, 0.1]
        assert f(np.ones(2), hnp.asarray(0.1)).tolist() == [0.1, 0.1]  # the shortest way


def test_donation_and_named_arguments():
    f = hl.jit(lambda x, p: x * p["a"], donate_argnums=0)
    assert f(hnp.ones(3, "float64"), {"a": 0.1}).tolist() == [0.1] * 3
    assert hl.jit(lambda x, *, a: x * a)(np.ones(3), a=0.1).tolist() == [0.1] * 3
    compiled = hl.jit(lambda x, a: x * a).lower(np.ones(2), 0.5).compile()
    assert compiled(np.ones(2), 0.1).tolist() == [0.1, 0.1]


def test_gradients_reach_the_number():
    x = hnp.asarray(X)
    for f in (lambda a: (x * a * a).sum(), hl.jit(lambda a: (x * a * a).sum())):
        for g in (hl.grad(f), hl.jit(hl.grad(f))):
            np.testing.assert_allclose(g(A), (2 * A * X).sum(), rtol=1e-6)
            np.testing.assert_allclose(hl.grad(g)(A), (2 * X).sum(), rtol=1e-6)


def test_programs_without_float64_have_no_further_parameter():
    f = hl.jit(lambda x, a: x * a)
    assert "f64" not in f.lower(np.ones(2, np.float32), 0.5).as_text()
    assert f(np.ones(2, np.float32), 0.1).dtype == np.float32
    assert hnp.sqrt(2.0).dtype == np.float32


@pytest.mark.parametrize(
    "made",
    [
        lambda: hnp.linspace(0, 0.1, 5),
        lambda: hnp.arange(0, 0.5, 0.1),
        lambda: hnp.array([0.1, 0.2, 0.3, 0.4, 0.5]),
        lambda: hnp.logspace(0, 1, 5),
        lambda: hnp.geomspace(1.0, 3.0, 5),
    ],
    ids=["linspace", "arange", "array", "logspace", "geomspace"],
)
def test_creation_without_a_dtype_warns_beside_float64(made):
    with pytest.warns(PrecisionWarning, match="repair: pass dtype='float64'") as found:
        made() + hnp.asarray(X)
    assert found[0].filename == __file__
    with pytest.warns(PrecisionWarning):
        hl.jit(lambda x: made() + x)(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made() + hnp.ones(5, "float32")
        made() * 2.0


def test_creation_that_loses_no_digits_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for array in (hnp.zeros(5), hnp.ones(5), hnp.arange(5.0), hnp.linspace(0, 1, 5), hnp.array([1.0] * 5)):
            array + hnp.asarray(X)
        hnp.linspace(0, 0.1, 5, dtype="float64") + hnp.asarray(X)


def test_a_line_warns_once():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(3):
            hnp.linspace(0, 0.1, 5) + hnp.asarray(X)
    assert len(found) == 1

"""hloom.scipy.linalg against SciPy: numbers, batches, gradients, under jit, and errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import HloomError
from hloom.scipy import linalg

FLOATING = ("float32", "float64", "complex64", "complex128")


def random(dtype, *dims, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=dims) + (1j * rng.normal(size=dims) if dtype.startswith("complex") else 0)
    return a.astype(dtype)


def definite(dtype, *dims):
    a = random(dtype, *dims)
    return (a @ a.swapaxes(-1, -2).conj() + dims[-1] * np.eye(dims[-1])).astype(dtype)


def near(found, wanted, factor=1):
    found = np.asarray(found)
    tolerance = factor * (3e-4 if found.dtype in (np.float32, np.complex64) else 1e-9)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", FLOATING)
def test_functions_are_those_of_scipy(dtype):
    a, b, p = random(dtype, 4, 4), random(dtype, 4, 3, seed=1), definite(dtype, 4, 4)
    x = hnp.asarray
    for lower in (True, False):
        near(linalg.cholesky(x(p), lower=lower), scipy.linalg.cholesky(p, lower=lower))
        near(linalg.cho_solve(linalg.cho_factor(x(p), lower), x(b)), scipy.linalg.solve(p, b))
        near(linalg.solve_triangular(x(a), x(b), 2, lower), scipy.linalg.solve_triangular(a, b, 2, lower), 50)
        near(linalg.eigh(x(p), lower=lower, eigvals_only=True), scipy.linalg.eigh(p, eigvals_only=True))
    for trans in (0, 1, 2):
        near(
            linalg.lu_solve(linalg.lu_factor(x(a)), x(b), trans),
            scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), b, trans),
            20,
        )
    for m, n in ((4, 4), (5, 3), (3, 5)):
        r = random(dtype, m, n)
        for found, wanted in zip(linalg.lu(x(r)), scipy.linalg.lu(r), strict=True):
            near(found, wanted)
        near(linalg.lu(x(r), permute_l=True)[0], scipy.linalg.lu(r, permute_l=True)[0])
        for mode in ("full", "economic"):
            q, s, order = linalg.qr(x(r), mode=mode, pivoting=True)
            near(q @ s, r[:, np.asarray(order)])
        u, h = linalg.polar(x(r))
        near(u @ h, r)
        near(h, scipy.linalg.polar(r)[1])
        near(linalg.polar(x(r), "left")[1], scipy.linalg.polar(r, "left")[1])
    near(linalg.qr_multiply(x(a), x(b), "left")[0], scipy.linalg.qr_multiply(a, b, "left")[0])
    near(linalg.inv(x(p)), scipy.linalg.inv(p))
    near(linalg.det(x(a)), scipy.linalg.det(a))
    near(linalg.solve(x(p), x(b), assume_a="pos"), scipy.linalg.solve(p, b))
    near(linalg.svd(x(b), compute_uv=False), scipy.linalg.svd(b, compute_uv=False))
    h, q = linalg.hessenberg(x(a), calc_q=True)
    near(q @ h @ np.conj(np.asarray(q)).T, a)
    assert not np.tril(np.asarray(h), -2).any()
    t, z = linalg.schur(x(a), output="complex")
    near(z @ t @ np.conj(np.asarray(z)).T, a)
    near(linalg.solve_sylvester(x(p), x(a), x(a)), scipy.linalg.solve_sylvester(p, a, a))


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_general_eigenvalue_problems(kind):
    a, b = definite("float64", 4, 4), definite("float64", 4, 4) + np.diag([1.0, 2, 3, 4])
    w, v = linalg.eigh(hnp.asarray(a), hnp.asarray(b), type=kind)
    near(w, scipy.linalg.eigh(a, b, type=kind, eigvals_only=True))
    v, w = np.asarray(v), np.asarray(w)
    left, right = {1: (a @ v, b @ v * w), 2: (a @ b @ v, v * w), 3: (b @ a @ v, v * w)}[kind]
    near(left, right)


def test_a_real_schur_form_becomes_triangular():
    a = random("float64", 5, 5)
    t, z = linalg.rsf2csf(*linalg.schur(hnp.asarray(a)))
    t, z = np.asarray(t), np.asarray(z)
    near(z @ t @ z.conj().T, a)
    near(z @ z.conj().T, np.eye(5))
    assert np.abs(np.tril(t, -1)).max() < 1e-12


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("scale", [0.01, 1.0, 20.0])
def test_expm(dtype, scale):
    a = (random(dtype, 2, 4, 4) * np.float32(scale)).astype(dtype)
    a = a - np.eye(4, dtype=dtype) * np.float32(2 * scale)  # keeps the exponential small
    found = hl.jit(linalg.expm)(hnp.asarray(a))
    wanted = scipy.linalg.expm(a.astype(np.complex128 if "complex" in dtype else np.float64))
    assert found.dtype == dtype
    size = np.abs(wanted).max().astype(dtype)
    near((np.asarray(found) / size).astype(dtype), wanted / size, 10)


def test_expm_that_would_need_too_many_squarings_is_nan():
    assert np.isnan(np.asarray(linalg.expm(hnp.eye(2) * 1e8))).all()
    assert np.isnan(np.asarray(linalg.expm(hnp.full((2, 2), np.nan)))).all()


def test_derivatives_of_matrix_functions():
    a, e = random("float64", 3, 3), random("float64", 3, 3, seed=2)
    for found, wanted in zip(
        linalg.expm_frechet(hnp.asarray(a), hnp.asarray(e)), scipy.linalg.expm_frechet(a, e), strict=True
    ):
        near(found, wanted)
    step = 1e-6
    p = definite("float64", 3, 3)
    for function, point in ((linalg.expm, a), (lambda x: linalg.sqrtm(x).real, p), (linalg.det, a), (linalg.inv, p)):
        out, tangent = hl.jvp(function, (hnp.asarray(point),), (hnp.asarray(e),))
        near(
            tangent,
            (function(hnp.asarray(point + step * e)) - function(hnp.asarray(point - step * e))) / (2 * step),
            1e4,
        )
        weights = hnp.asarray(random("float64", *out.shape, seed=5))
        gradient = hl.grad(lambda x, function=function, weights=weights: (function(x) * weights).sum())(
            hnp.asarray(point)
        )
        near((gradient * e).sum(), (weights * tangent).sum())


def test_roots_and_functions():
    p = definite("float64", 4, 4)
    root = np.asarray(linalg.sqrtm(hnp.asarray(p)))
    near(root @ root, p)
    assert root.dtype == np.complex128
    a = random("float64", 4, 4)
    near(linalg.funm(hnp.asarray(a), hnp.sin), scipy.linalg.sinm(a))


SPECIAL = [
    ("toeplitz", ([1.0, 2, 3],)),
    ("toeplitz", ([1.0, 2, 3], [1.0, 5])),
    ("hankel", ([1.0, 2, 3],)),
    ("hankel", ([1.0, 2, 3], [3.0, 7, 8, 9])),
    ("circulant", ([1.0, 2, 3],)),
    ("companion", ([1.0, -6, 11, -6],)),
    ("fiedler", ([1.0, 4, 12, 45],)),
    ("fiedler_companion", ([1.0, -16, 86, -176, 105],)),
    ("fiedler_companion", ([2.0, -16, 86, -176, 105, 3],)),
    ("hilbert", (4,)),
    ("invhilbert", (4,)),
    ("pascal", (4,)),
    ("pascal", (4, "lower")),
    ("invpascal", (4,)),
    ("invpascal", (4, "upper")),
    ("hadamard", (8,)),
    ("helmert", (4,)),
    ("helmert", (4, True)),
    ("dft", (5,)),
    ("dft", (4, "sqrtn")),
    ("leslie", ([0.1, 2.0, 1.0, 0.1], [0.2, 0.8, 0.7])),
    ("convolution_matrix", ([-1.0, 4, -2], 5)),
    ("convolution_matrix", ([-1.0, 4, -2], 5, "same")),
    ("convolution_matrix", ([-1.0, 4, -2, 3], 2, "valid")),
]


@pytest.mark.parametrize("name, arguments", SPECIAL, ids=[f"{n}-{k}" for k, (n, _) in enumerate(SPECIAL)])
def test_special_matrices(name, arguments):
    wanted = getattr(scipy.linalg, name)(*arguments)
    found = getattr(linalg, name)(*[hnp.asarray(a) if isinstance(a, list) else a for a in arguments])
    assert found.shape == wanted.shape
    near(found, wanted)


def test_block_diag():
    near(
        linalg.block_diag(hnp.ones((2, 2)), hnp.asarray([3.0, 4.0]), 5.0),
        scipy.linalg.block_diag(np.ones((2, 2)), [3, 4], 5),
    )


def test_eigh_tridiagonal():
    d, e = random("float64", 5), random("float64", 4, seed=1)
    w, v = linalg.eigh_tridiagonal(hnp.asarray(d), hnp.asarray(e))
    near(w, scipy.linalg.eigh_tridiagonal(d, e, eigvals_only=True))
    some = linalg.eigh_tridiagonal(hnp.asarray(d), hnp.asarray(e), eigvals_only=True, select="i", select_range=(1, 3))
    near(some, np.asarray(w)[1:4])


@pytest.mark.parametrize(
    "call",
    [
        lambda: linalg.solve(hnp.eye(2), hnp.ones(3)),
        lambda: linalg.cholesky(hnp.ones((2, 3))),
        lambda: linalg.hadamard(3),
        lambda: linalg.schur(hnp.eye(2), output="triangular"),
        lambda: linalg.lu_solve(linalg.lu_factor(hnp.eye(2)), hnp.ones(2), trans=3),
        lambda: linalg.eigh(hnp.eye(2), type=2),
        lambda: linalg.companion(hnp.ones(1)),
        lambda: linalg.qr(hnp.eye(2), mode="raw"),
    ],
)
def test_errors_say_what_is_wrong(call):
    with pytest.raises(HloomError) as caught:
        call()
    error = caught.value
    assert error.asked and error.found and error.repair and error.source is not None

"""Programs of linear algebra that JAX exports: their custom calls of LAPACK run as ops, with JAX's numbers."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl

jax = pytest.importorskip("jax")
jnp = jax.numpy
RNG = np.random.default_rng(0)

PROGRAMS = {
    "cholesky": lambda a: jnp.linalg.cholesky(a @ jnp.conj(a.mT) + jnp.eye(4, dtype=a.dtype)),
    "qr": lambda a: jnp.linalg.qr(a),
    "qr-complete": lambda a: jnp.linalg.qr(a[..., :2], mode="complete"),
    "lu": lambda a: jax.lax.linalg.lu(a),
    "solve": lambda a: jnp.linalg.solve(a, a[..., :2]),
    "det": lambda a: jnp.linalg.det(a),
    "eigh": lambda a: jnp.linalg.eigh(a + jnp.conj(a.mT)),
    "svd": lambda a: jnp.linalg.svd(a[..., :3], full_matrices=False),
    "svd-full": lambda a: jnp.linalg.svd(a[..., :3]),
    "svdvals": lambda a: jnp.linalg.svdvals(a),
    "eig": lambda a: jnp.linalg.eig(a),
    "eigvals": lambda a: jnp.linalg.eigvals(a),
    "triangular_solve": lambda a: jax.lax.linalg.triangular_solve(
        a, a, left_side=False, lower=True, transpose_a=True, conjugate_a=True, unit_diagonal=True
    ),
    "hessenberg": lambda a: jax.lax.linalg.hessenberg(a),
    "tridiagonal": lambda a: jax.lax.linalg.tridiagonal(a + jnp.conj(a.mT)),
    "fft": lambda a: jnp.fft.fft2(a),
}


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dims", [(4, 4), (2, 4, 4)], ids=["one", "batch"])
def test_programs_of_jax(name, dtype, dims):
    a = RNG.normal(size=dims) + (1j * RNG.normal(size=dims) if dtype == "complex128" else 0)
    a = a.astype(dtype)
    with jax.enable_x64(True):
        function = jax.jit(PROGRAMS[name])
        text = function.lower(a).as_text()
        wanted = [np.asarray(x) for x in jax.tree.leaves(function(a))]
    found = hl.from_stablehlo(text)(a)
    found = [np.asarray(x) for x in (found if isinstance(found, (tuple, list)) else [found])]
    tolerance = 2e-4 if dtype == "float32" else 1e-10
    for x, y in zip(found, wanted, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        if name == "eig":
            x, y = np.abs(x), np.abs(y)  # the sign of an eigenvector is free
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def test_a_matrix_that_is_not_definite_is_nan():
    a = np.diag([1.0, -1.0]).astype(np.float32)
    text = jax.jit(jnp.linalg.cholesky).lower(a).as_text()
    np.testing.assert_array_equal(hl.from_stablehlo(text)(a), np.tril(np.full((2, 2), np.nan)))

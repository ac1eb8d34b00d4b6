"""Programs that JAX exports with custom calls of LAPACK and of XLA: these run as ops, with JAX's numbers."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg.lapack

import hloom as hl
from hloom.errors import HloomError

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
    "qr-pivoting": lambda a: [jnp.abs(x) for x in jax.lax.linalg.qr(a[..., :3], pivoting=True)],
    "svd-qr": lambda a: jax.lax.linalg.svd(a, algorithm=jax.lax.linalg.SvdAlgorithm.QR, compute_uv=False),
    "schur": lambda a: [jnp.abs(x) for x in jax.lax.linalg.schur(a)],
    "tridiagonal_solve": lambda a: jax.lax.linalg.tridiagonal_solve(a[..., 0], a[..., 1] + 9, a[..., 2], a),
    # Of a pivot that is zero the sign is free.
    "tridiagonal_solve-singular": lambda a: jnp.abs(
        jax.lax.linalg.tridiagonal_solve(
            0 * a[..., 0], a[..., 1] * jnp.array([1, 1, 0, 0]), 0 * a[..., 2], a, perturb_singular=True
        )
    ),
    "fft": lambda a: jnp.fft.fft2(a),
}


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("dims", "hlo"), [((4, 4), True), ((2, 4, 4), False)], ids=["one", "batch"])
def test_programs_of_jax(name, dtype, dims, hlo):
    a = RNG.normal(size=dims) + (1j * RNG.normal(size=dims) if dtype == "complex128" else 0)
    a = a.astype(dtype)
    with jax.enable_x64(True):
        function = jax.jit(PROGRAMS[name])
        lowered = function.lower(a)
        text = lowered.compiler_ir("hlo").as_hlo_text() if hlo else lowered.as_text()
        wanted = [np.asarray(x) for x in jax.tree.leaves(function(a))]
    found = (hl.from_hlo if hlo else hl.from_stablehlo)(text)(a)
    found = [np.asarray(x) for x in (found if isinstance(found, (tuple, list)) else [found])]
    tolerance = 2e-4 if dtype == "float32" else 1e-10
    for x, y in zip(found, wanted, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        if name in ("eig", "eigh", "svd", "svd-full"):
            x, y = np.abs(x), np.abs(y)  # the sign of a vector is free
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def test_a_matrix_that_is_not_definite_is_nan():
    a = np.diag([1.0, -1.0]).astype(np.float32)
    text = jax.jit(jnp.linalg.cholesky).lower(a).as_text()
    np.testing.assert_array_equal(hl.from_stablehlo(text)(a), np.tril(np.full((2, 2), np.nan)))


@pytest.mark.parametrize("dialect", ["stablehlo", "hlo", "optimized"])
def test_the_first_by_a_comparator(dialect):
    def function(x):
        return jax.lax.approx_max_k(x, 3), jax.lax.approx_min_k(x, 2, reduction_dimension=0)

    x = RNG.normal(size=(5, 9)).astype(np.float32)
    lowered = jax.jit(function).lower(x)
    if dialect == "stablehlo":
        found = hl.from_stablehlo(lowered.as_text())(x)
    elif dialect == "hlo":
        found = hl.from_hlo(lowered.compiler_ir("hlo").as_hlo_text())(x)
    else:
        found = hl.from_hlo(lowered.compile().as_text())(x)
    for a, b in zip(found, jax.tree.leaves(function(x)), strict=True):
        np.testing.assert_array_equal(np.asarray(a), b)


def test_eigenvalues_of_a_schur_form():
    """LAPACK's gees gives them beside the form; JAX does not return them."""
    a = np.array([[0.0, -2.0, 1.0], [3.0, 0.5, 0.0], [0.0, 0.0, 4.0]], np.float32)
    text = """
    func.func @main(%a: tensor<3x3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
      %0:6 = stablehlo.custom_call @lapack_sgees_ffi(%a) {mhlo.backend_config = {mode = 86 : ui8, sort = 78 : ui8}} :
        (tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<i32>, tensor<i32>)
      return %0#2, %0#3 : tensor<3xf32>, tensor<3xf32>
    }
    """
    real, imaginary = (np.asarray(x) for x in hl.from_stablehlo(text)(a))
    values = real + 1j * imaginary
    np.testing.assert_allclose(np.sort_complex(values), np.sort_complex(np.linalg.eigvals(a)), rtol=1e-5)


def test_options_that_ops_do_not_have_are_named():
    text = """
    func.func @main(%a: tensor<3x3xf32>) -> tensor<3x3xf32> {
      %0:6 = stablehlo.custom_call @lapack_sgees_ffi(%a) {mhlo.backend_config = {mode = 86 : ui8, sort = 83 : ui8}} :
        (tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<i32>, tensor<i32>)
      return %0#0 : tensor<3x3xf32>
    }
    """
    with pytest.raises(hl.errors.ParseError, match="line 3, column 7"):
        hl.from_stablehlo(text)(np.eye(3, dtype=np.float32))


HESSENBERG = """
func.func @main(%a: tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<2xf32>) {
  %0:3 = stablehlo.custom_call @lapack_sgehrd_ffi(%a) {mhlo.backend_config = {OPTIONS}} :
    (tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<2xf32>, tensor<i32>)
  return %0#0, %0#1 : tensor<3x3xf32>, tensor<2xf32>
}
"""


@pytest.mark.parametrize("options", ["", "low = 1 : i32", "high = 3 : i32", "low = 1 : i32, high = 3 : i32"])
def test_whole_matrices_are_reduced_to_hessenberg_form(options):
    """Rows 1 to n where LAPACK's gehrd is not told which."""
    a = RNG.normal(size=(3, 3)).astype(np.float32)
    found = hl.from_stablehlo(HESSENBERG.replace("OPTIONS", options))(a)
    for x, y in zip(found, scipy.linalg.lapack.sgehrd(a)[:2], strict=True):
        np.testing.assert_allclose(np.asarray(x), y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", ["low = 2 : i32", "high = 2 : i32", "low = 0 : i32, high = 3 : i32"])
def test_parts_of_matrices_are_not_reduced(options):
    with pytest.raises(HloomError, match="hloom reduces whole matrices"):
        hl.from_stablehlo(HESSENBERG.replace("OPTIONS", options))(np.eye(3, dtype=np.float32))

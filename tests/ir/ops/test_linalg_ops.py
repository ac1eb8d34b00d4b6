"""Ops of linear algebra and the Fourier transform: what the references compute, errors of the shape rules."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.ir.build import Builder
from hloom.ir.errors import AttributeValueError, DTypeError, ShapeError
from hloom.ir.interpret import evaluate
from hloom.ir.ops.linalg.matrices import exponents
from hloom.ir.types import Shape

FLOATING = ("float32", "float64", "complex64", "complex128")


def compute(opcode, *arrays, shape=None, **attributes):
    b = Builder("f")
    parameters = [b.parameter(Shape(a.dtype, a.shape)) for a in arrays]
    result = b.emit(opcode, *parameters, shape=shape, **attributes)
    value = evaluate(b.finish(result), list(arrays))
    shapes = getattr(result.shape, "elements", (result.shape,))
    for array, inferred in zip(value if isinstance(value, tuple) else (value,), shapes, strict=True):
        assert (array.dtype, array.shape) == (inferred.dtype, inferred.dims)
    return value


def random(dtype, *dims, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=dims) + (1j * rng.normal(size=dims) if dtype.startswith("complex") else 0)
    return a.astype(dtype)


def definite(dtype, *dims):
    a = random(dtype, *dims)
    return a @ a.swapaxes(-1, -2).conj() + dims[-1] * np.eye(dims[-1], dtype=dtype)


def close(found, wanted):
    tolerance = 2e-4 if found.dtype in (np.float32, np.complex64) else 1e-11
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(dtype, lower):
    a = definite(dtype, 2, 3, 4, 4)
    factor = compute("cholesky", a, lower=lower)
    assert factor.dtype == dtype
    adjoint = factor.conj().swapaxes(-1, -2)
    close(factor @ adjoint if lower else adjoint @ factor, a)
    other = np.triu(factor, 1) if lower else np.tril(factor, -1)
    assert not other.any()
    # Only one triangle is read.
    half = np.tril(a) if lower else np.triu(a)
    np.testing.assert_array_equal(compute("cholesky", half, lower=lower), factor)


def test_cholesky_of_what_is_not_definite_is_nan_there_alone():
    a = np.stack([np.eye(3), -np.eye(3), np.full((3, 3), np.nan), np.diag([1, np.inf, 1])])
    factor = compute("cholesky", a, lower=True)
    np.testing.assert_array_equal(factor[0], np.eye(3))
    assert (np.isnan(factor[1:]) == np.tril(np.ones((3, 3), bool))).all()


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("how", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_triangular_solve(dtype, left, lower, unit, how):
    a = random(dtype, 2, 3, 3) * np.float32(0.3) + 2 * np.eye(3, dtype=dtype)
    b = random(dtype, 2, 3, 5) if left else random(dtype, 2, 5, 3)
    x = compute("triangular-solve", a, b, left_side=left, lower=lower, unit_diagonal=unit, transpose_a=how)
    part = np.tril(a) if lower else np.triu(a)
    if unit:
        part = np.where(np.eye(3, dtype=bool), 1, part)
    part = {"NO_TRANSPOSE": part, "TRANSPOSE": part.swapaxes(-1, -2), "ADJOINT": part.conj().swapaxes(-1, -2)}[how]
    close(part @ x if left else x @ part, b)
    assert x.dtype == dtype


def test_triangular_solve_of_a_singular_matrix_divides_by_zero():
    a, b = np.zeros((2, 2), np.float32), np.ones((2, 1), np.float32)
    assert not np.isfinite(compute("triangular-solve", a, b, left_side=True, lower=True)).any()


def test_narrow_floats_are_solved_in_float32():
    a, b = random("float32", 3, 3).astype(np.float16) + 2 * np.eye(3, dtype=np.float16), np.ones((3, 2), np.float16)
    found = compute("triangular-solve", a, b, left_side=True, lower=True)
    wide = compute("triangular-solve", a.astype(np.float32), b.astype(np.float32), left_side=True, lower=True)
    np.testing.assert_array_equal(found, wide.astype(np.float16))


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_tridiagonal_solve(dtype, n):
    below, middle, above = (random(dtype, 2, n, seed=k) for k in range(3))
    middle = middle + 4
    b = random(dtype, 2, n, 3)
    x = compute("tridiagonal-solve", below, middle, above, b)
    whole = np.zeros((2, n, n), dtype)
    for k in range(n):
        whole[:, k, k] = middle[:, k]
        if k:
            whole[:, k, k - 1], whole[:, k - 1, k] = below[:, k], above[:, k - 1]
    close(whole @ x, b)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_tridiagonal_solve_of_singular_matrices(dtype, n):
    below, middle, above = (random(dtype, 3, n, seed=k) for k in range(3))
    b, info = random(dtype, 3, n, 2), np.finfo(dtype)
    regular = compute("tridiagonal-solve", below, middle, above, b)
    close(compute("tridiagonal-solve", below, middle, above, b, perturb_singular=True), regular)
    middle[1:, -1] = above[1:, :] = below[1:] = 0
    middle[2] = 0
    x = compute("tridiagonal-solve", below, middle, above, b, perturb_singular=True)
    close(x[0], regular[0])
    assert np.isfinite(x).all()
    largest = np.abs(middle[1]).max() if n > 1 else 0
    pivot = max(info.eps * largest, info.smallest_normal)
    np.testing.assert_allclose(np.abs(x[1, -1]), np.abs(b[1, -1]) / pivot, 1e-5) if n > 1 else None
    assert (np.abs(x[2]).max(axis=-1) > 0.1 / info.smallest_normal).all()


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("dims", [(2, 4, 4), (5, 3), (2, 3, 5)])
def test_decompositions_multiply_to_the_matrix(dtype, dims):
    a = random(dtype, *dims)
    m, n = dims[-2:]
    for full in (False, True):
        q, r = compute("qr", a, full_matrices=full)
        close(q @ r, a)
        close(q.conj().swapaxes(-1, -2) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*dims[:-2], *[q.shape[-1]] * 2)))
        u, s, vh = compute("svd", a, compute_uv=True, full_matrices=full)
        k = min(m, n)
        close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a)
        close(compute("svd", a)[0], s)
    q, r, p = compute("qr", a, pivoting=True)
    close(q @ r, np.take_along_axis(a, p[..., None, :], -1))
    factors, pivots, order = compute("lu", a)
    k = min(m, n)
    lower = np.tril(factors[..., :, :k], -1) + np.eye(m, k, dtype=dtype)
    close(lower @ np.triu(factors[..., :k, :]), np.take_along_axis(a, order[..., :, None], -2))
    np.testing.assert_array_equal(compute("lu-pivots-to-permutation", pivots, shape=Shape("s32", order.shape)), order)


@pytest.mark.parametrize("dtype", FLOATING)
def test_eigenvalues_and_forms(dtype):
    a = random(dtype, 2, 4, 4)
    for lower in (True, False):
        half = np.tril(a, -1) if lower else np.triu(a, 1)
        full = half + half.conj().swapaxes(-1, -2) + np.eye(4) * a.real
        w, v = compute("eigh", a, lower=lower)
        assert w.dtype == np.dtype(dtype).type(0).real.dtype
        close((full @ v).astype(dtype), v * w[..., None, :])
    w, left, right = compute("eig", a, left=True, right=True)
    close(a @ right, right * w[..., None, :])
    close(left.conj().swapaxes(-1, -2) @ a, w[..., :, None] * left.conj().swapaxes(-1, -2))
    form, basis = compute("schur", a, vectors=True)
    close(basis @ form @ basis.conj().swapaxes(-1, -2), a)
    reflectors, tau = compute("hessenberg", a)
    q = np.broadcast_to(np.eye(4, dtype=dtype), a.shape).copy()
    q[..., 1:, 1:] = compute("householder-product", np.ascontiguousarray(reflectors[..., 1:, :3]), tau)
    close(q @ np.triu(reflectors, -1) @ q.conj().swapaxes(-1, -2), a)


def test_numbers_that_are_not_finite_give_nan_in_their_problem():
    a = np.stack([np.eye(3), np.full((3, 3), np.inf)]).astype(np.float32)
    for opcode, attributes in (("eigh", {}), ("eig", {"right": True}), ("svd", {"compute_uv": True}), ("schur", {})):
        for part in compute(opcode, a, **attributes):
            assert np.isfinite(part[0]).all() and np.isnan(part[1]).all(), opcode


@pytest.mark.parametrize("dims", [(0, 0), (2, 0, 0), (0, 3, 3)])
def test_empty_matrices(dims):
    a = np.zeros(dims)
    for opcode in ("cholesky", "qr", "lu", "eigh", "eig", "svd", "schur", "hessenberg", "tridiagonal"):
        compute(opcode, a)
    compute("svd", a, compute_uv=True, full_matrices=True)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("length", [(8,), (7,), (4, 8), (3, 4, 5)])
def test_fft(dtype, length):
    x = random(dtype, 2, *length)
    axes = tuple(range(1, 1 + len(length)))
    wide = x.astype(np.complex128)
    close(compute("fft", x, fft_type="FFT", fft_length=length), np.fft.fftn(wide, axes=axes))
    close(compute("fft", x, fft_type="IFFT", fft_length=length), np.fft.ifftn(wide, axes=axes))
    spectrum = compute("fft", x.real.copy(), fft_type="RFFT", fft_length=length)
    close(spectrum, np.fft.rfftn(wide.real, axes=axes))
    assert spectrum.dtype == dtype
    close(compute("fft", spectrum, fft_type="IRFFT", fft_length=length), x.real)


F32, C64 = np.float32, np.complex64
ERRORS = [
    ("cholesky", [((3, 4), F32)], {}, ShapeError, "square"),
    ("cholesky", [((3,), F32)], {}, ShapeError, "rank 1"),
    ("cholesky", [((3, 3), np.float16)], {}, DTypeError, "f16"),
    ("cholesky", [((3, 3), np.int32)], {}, DTypeError, "s32"),
    ("qr", [((3,), F32)], {}, ShapeError, "rank 1"),
    ("eig", [((3, 4), F32)], {}, ShapeError, "columns"),
    ("triangular-solve", [((3, 3), F32), ((4, 2), F32)], {"left_side": True}, ShapeError, "rows"),
    ("triangular-solve", [((3, 3), F32), ((3, 4), F32)], {}, ShapeError, "columns"),
    ("triangular-solve", [((2, 3, 3), F32), ((3, 4), F32)], {"left_side": True}, ShapeError, "batch"),
    ("triangular-solve", [((3, 3), F32), ((3, 4), C64)], {"left_side": True}, DTypeError, "dtype"),
    ("triangular-solve", [((3, 3), F32)] * 2, {"left_side": True, "transpose_a": "T"}, AttributeValueError, "T"),
    ("tridiagonal-solve", [((3,), F32)] * 3 + [((4, 1), F32)], {}, ShapeError, "diagonals"),
    ("householder-product", [((3, 4), F32), ((3,), F32)], {}, ShapeError, "reflectors"),
    ("fft", [((3,), F32)], {"fft_type": "FFT", "fft_length": (3,)}, DTypeError, "complex"),
    ("fft", [((3,), C64)], {"fft_type": "RFFT", "fft_length": (3,)}, DTypeError, "real"),
    ("fft", [((3,), C64)], {"fft_type": "DCT", "fft_length": (3,)}, AttributeValueError, "DCT"),
    ("fft", [((3,), C64)], {"fft_type": "FFT", "fft_length": (4,)}, ShapeError, "(4,)"),
    ("fft", [((3,), C64)], {"fft_type": "FFT", "fft_length": ()}, ShapeError, "one to three"),
    ("fft", [((3,), C64)], {"fft_type": "IRFFT", "fft_length": (6,)}, ShapeError, "(4,)"),
    ("fft", [((3,), np.float16)], {"fft_type": "RFFT", "fft_length": (3,)}, DTypeError, "f16"),
]  # fmt: skip


@pytest.mark.parametrize("opcode, operands, attributes, error, word", ERRORS)
def test_errors(opcode, operands, attributes, error, word):
    b = Builder("f")
    with pytest.raises(error) as caught:
        b.emit(opcode, *[b.parameter(Shape(dtype, dims)) for dims, dtype in operands], **attributes)
    assert caught.value.asked and caught.value.repair and word in f"{caught.value.asked} {caught.value.found}"


@pytest.mark.parametrize("dtype", FLOATING)
def test_exponents_of_matrices(dtype):
    """Those of the largest real or imaginary part, one for each matrix: near the largest number as well."""
    real = np.finfo(dtype).dtype
    largest, least = np.finfo(real).max, np.finfo(real).tiny
    i = 1j if dtype.startswith("complex") else 0
    a = np.zeros((5, 2, 2), dtype)
    a[0] = [[3, -1], [0, 0.25]]
    a[1, 1, 0] = largest + i * largest  # whose absolute value is beyond all numbers
    a[2, 0, 1] = -least - i * least
    a[3] = [[np.inf, 1], [1, 1]]
    wanted = [2, np.finfo(real).maxexp, np.finfo(real).minexp + 1, 0, 0]
    np.testing.assert_array_equal(exponents(a)[:, 0, 0], wanted)
    assert exponents(a[0], 5 * a[0]).tolist() == [[4]]  # of several arrays together

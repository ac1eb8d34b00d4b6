"""Sorts and linear algebra by kernels: against NumPy and SciPy, from size 1 on, in batches, and from bad numbers."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.compiler.targets.cpu import target

SIZES = (1, 2, 3, 5, 8, 17, 33)
BATCHES = ((), (3,), (2, 2))
TOLERANCE = {np.float32: 3e-4, np.float64: 1e-10}
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def kernels_only(monkeypatch):
    monkeypatch.setattr(target, "library_is_faster", lambda instruction: False)


def run(function, *arrays):
    """The results of a program that has kernels and no step of Python."""
    compiled = hl.jit(function).lower(*arrays).compile()
    assert "matrix_" in compiled.source() or "radix_" in compiled.source()
    assert not [s for s in compiled.plan.steps if type(s).__name__ == "HostStep"]
    found = compiled(*arrays)
    return tuple(map(np.asarray, found)) if isinstance(found, tuple) else np.asarray(found)


def close(found, expected, dtype) -> None:
    scale = np.abs(expected).max(initial=0.0) + 1e-30
    assert np.abs(found - expected).max(initial=0.0) <= TOLERANCE[dtype] * scale


def turned(x):
    return np.swapaxes(x, -1, -2)


def orthonormal(columns, dtype) -> None:
    close(
        turned(columns) @ columns,
        np.broadcast_to(np.eye(columns.shape[-1]), columns[..., 0, 0].shape + (columns.shape[-1],) * 2),
        dtype,
    )


@pytest.fixture(params=[np.float32, np.float64], ids=["f32", "f64"])
def dtype(request):
    return request.param


def positive(batch, n, dtype):
    a = rng.normal(size=(*batch, n, n))
    return (a @ turned(a) / (2 * n) + np.eye(n) / 2).astype(dtype)


@pytest.mark.parametrize("batch", BATCHES)
def test_cholesky_solve_det_eigh(batch, dtype):
    for n in SIZES:
        a = positive(batch, n, dtype)
        wide = a.astype(np.float64)
        factor = np.linalg.cholesky(wide)
        close(run(lax.linalg.cholesky, a), factor, dtype)
        close(run(lambda a: hnp.linalg.cholesky(a, upper=True), a), turned(factor), dtype)
        close(run(hnp.linalg.det, a), np.linalg.det(wide), dtype)
        for columns in (1, 9):
            b = rng.normal(size=(*batch, n, columns)).astype(dtype)
            close(run(hnp.linalg.solve, a, b), np.linalg.solve(wide, b), dtype)
        values, vectors = run(lambda a: tuple(hnp.linalg.eigh(a)), a)
        close(values, np.linalg.eigvalsh(wide), dtype)
        close(vectors * values[..., None, :] @ turned(vectors), wide, dtype)
        orthonormal(vectors, dtype)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_triangular_systems(left, lower, transpose, dtype):
    for n, columns, batch, unit in (
        (1, 1, (), False),
        (5, 1, (2,), True),
        (7, 3, (), False),
        (17, 70, (3,), False),
        (33, 8, (), True),
    ):
        t = rng.normal(size=(*batch, n, n)) / (2 * n) + 2 * np.eye(n)
        t = (np.tril(t) if lower else np.triu(t)).astype(dtype)
        b = rng.normal(size=(*batch, n, columns) if left else (*batch, columns, n)).astype(dtype)
        whole = t.astype(np.float64)
        if unit:
            whole[..., np.arange(n), np.arange(n)] = 1
        whole = turned(whole) if transpose else whole
        expected = np.linalg.solve(whole, b) if left else turned(np.linalg.solve(turned(whole), turned(b)))
        options = {"left_side": left, "lower": lower, "transpose_a": transpose, "unit_diagonal": unit}
        close(run(lambda t, b, o=options: lax.linalg.triangular_solve(t, b, **o), t, b), expected, dtype)


@pytest.mark.parametrize("batch", BATCHES)
def test_lu_qr_svd(batch, dtype):
    for m, n in ((1, 1), (1, 4), (4, 1), (5, 5), (9, 4), (4, 9), (33, 17)):
        a = rng.normal(size=(*batch, m, n)).astype(dtype)
        wide, k = a.astype(np.float64), min(m, n)
        factors, pivots, order = run(lambda a: tuple(lax.linalg.lu(a)), a)
        rows = a.reshape(-1, m, n)
        for one, p, perm, f in zip(
            rows, pivots.reshape(-1, k), order.reshape(-1, m), factors.reshape(-1, m, n), strict=True
        ):
            expected, exchanges, _ = scipy.linalg.lapack.get_lapack_funcs(("getrf",), (one,))[0](one)
            close(f, expected, dtype)
            assert p.tolist() == exchanges.tolist() and sorted(perm.tolist()) == list(range(m))
        for mode in ("reduced", "complete"):
            q, r = run(lambda a, mode=mode: tuple(hnp.linalg.qr(a, mode=mode)), a)
            close(r, np.linalg.qr(wide, mode)[1], dtype)
            close(q @ r, wide, dtype)
            orthonormal(q, dtype)
        for full in (False, True):
            u, s, vt = run(lambda a, full=full: tuple(hnp.linalg.svd(a, full_matrices=full)), a)
            close(s, np.linalg.svd(wide, compute_uv=False), dtype)
            close(u[..., :k] * s[..., None, :] @ vt[..., :k, :], wide, dtype)
            orthonormal(u, dtype)
            orthonormal(turned(vt), dtype)
        close(run(lambda a: hnp.linalg.svd(a, compute_uv=False), a), np.linalg.svd(wide, compute_uv=False), dtype)


def test_matrices_without_full_rank_and_numbers_that_are_not_finite(dtype):
    zeros, ones = np.zeros((4, 4), dtype), np.ones((5, 3), dtype)
    u, s, vt = run(lambda a: tuple(hnp.linalg.svd(a)), ones)
    close(s, np.array([np.sqrt(15), 0, 0]), dtype)
    orthonormal(u, dtype)
    orthonormal(turned(vt), dtype)
    assert run(lambda a: tuple(hnp.linalg.svd(a)), zeros)[1].tolist() == [0] * 4
    assert run(lambda a: tuple(hnp.linalg.eigh(a)), zeros)[0].tolist() == [0] * 4
    assert np.isnan(run(lax.linalg.cholesky, np.array([[1, 2], [2, 1]], dtype))).all()
    assert np.isnan(run(hnp.linalg.solve, np.ones((2, 2), dtype), np.ones((2, 1), dtype))).all()
    for function in (lambda a: hnp.linalg.svd(a)[1], lambda a: hnp.linalg.eigh(a)[0]):
        mixed = np.stack([np.eye(3, dtype=dtype), np.full((3, 3), np.nan, dtype)])
        found = run(function, mixed)  # a bad matrix leaves the others of its batch alone
        assert found[0].tolist() == [1, 1, 1] and np.isnan(found[1]).all()


@pytest.mark.parametrize("count", [2, 24, 25, 300, 5000])
def test_sorts_of_all_dtypes_are_stable_and_in_numpys_order(count):
    for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"):
        x = (rng.normal(size=(3, count)) * 100).astype(kind)
        if kind[0] == "f":
            x[0, : min(4, count)] = [np.nan, -0.0, 0.0, np.inf][: min(4, count)]
        for axis in (0, 1):
            found = run(lambda x, axis=axis: hnp.sort(x, axis), x)
            assert np.array_equal(found, np.sort(x, axis), equal_nan=kind[0] == "f"), (kind, axis)
            found = run(lambda x, axis=axis: hnp.argsort(x, axis), x)
            assert np.array_equal(found, np.argsort(x, axis, kind="stable")), (kind, axis)
    first, second = rng.integers(0, 5, count), rng.normal(size=count).round(1)
    assert np.array_equal(run(lambda a, b: hnp.lexsort((a, b)), second, first), np.lexsort((second, first)))
    pairs = run(lambda a, b: lax.sort((a, b), num_keys=1), first, second)
    order = np.argsort(first, kind="stable")
    assert np.array_equal(pairs[0], first[order]) and np.array_equal(pairs[1], second[order])


def test_results_do_not_depend_on_who_computes_them_for_sorts(monkeypatch):
    x = rng.normal(size=(4, 3000)).astype(np.float32)
    by_kernel = run(hnp.sort, x)
    monkeypatch.setattr(target, "library_is_faster", lambda instruction: True)
    hl.clear_caches()
    assert np.array_equal(np.asarray(hl.jit(lambda x: hnp.sort(x))(x)), by_kernel)


@pytest.mark.parametrize("complex_dtype", [np.complex64, np.complex128], ids=["c64", "c128"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_complex_matrices(batch, complex_dtype):
    dtype = np.float32 if complex_dtype is np.complex64 else np.float64

    def draw(*shape):
        return (rng.normal(size=(*batch, *shape)) + 1j * rng.normal(size=(*batch, *shape))).astype(complex_dtype)

    def adjoint(x):
        return np.conj(turned(x))

    for n in (1, 2, 5, 9):
        a = draw(n, n)
        wide = a.astype(np.complex128)
        positive = (wide @ adjoint(wide) / n + np.eye(n)).astype(complex_dtype)
        factor = np.linalg.cholesky(positive.astype(np.complex128))
        close(run(lax.linalg.cholesky, positive), factor, dtype)
        close(run(lambda a: hnp.linalg.cholesky(a, upper=True), positive), adjoint(factor), dtype)
        close(run(hnp.linalg.det, a), np.linalg.det(wide), dtype)
        lu, _, permutation = run(lax.linalg.lu, a)
        lower, upper = np.tril(lu, -1) + np.eye(n), np.triu(lu)
        close(lower @ upper, np.take_along_axis(wide, permutation[..., None], -2), dtype)
        for columns in (1, 9):
            b = draw(n, columns)
            close(run(hnp.linalg.solve, positive, b), np.linalg.solve(positive.astype(np.complex128), b), dtype)
            for left in (True, False):
                for kind in ({}, {"transpose_a": True}, {"transpose_a": True, "conjugate_a": True}):
                    given = b if left else turned(b)
                    x = run(
                        lambda a, b, kind=kind, left=left: lax.linalg.triangular_solve(
                            a, b, left_side=left, lower=True, **kind
                        ),
                        factor.astype(complex_dtype), given,
                    )  # fmt: skip
                    m = turned(factor) if kind else factor
                    m = np.conj(m) if len(kind) == 2 else m
                    close(m @ x if left else x @ m, given, dtype)
        for rows in (n, n + 3):
            a = draw(rows, n)
            q, r = run(lambda a: tuple(hnp.linalg.qr(a)), a)
            close(q @ r, a, dtype)
            close(adjoint(q) @ q, np.broadcast_to(np.eye(n), (*batch, n, n)), dtype)
            expected = np.linalg.qr(a.astype(np.complex128))
            close(r, expected[1], dtype)
            full, _ = run(lambda a: tuple(hnp.linalg.qr(a, mode="complete")), a)
            close(adjoint(full) @ full, np.broadcast_to(np.eye(rows), (*batch, rows, rows)), dtype)


@pytest.mark.parametrize("complex_dtype", [np.complex64, np.complex128], ids=["c64", "c128"])
def test_complex_svd_and_eigh(complex_dtype):
    dtype = np.float32 if complex_dtype is np.complex64 else np.float64

    def adjoint(x):
        return np.conj(turned(x))

    def unitary(x):
        close(adjoint(x) @ x, np.broadcast_to(np.eye(x.shape[-1]), (*x.shape[:-2], x.shape[-1], x.shape[-1])), dtype)

    for shape in ((1, 1), (3, 3), (7, 4), (4, 7), (2, 5, 5), (9, 2)):
        a = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(complex_dtype)
        deficient = a.copy()
        deficient[..., -1] = deficient[..., 0]
        for given in (a, deficient, np.zeros_like(a)):
            for full in (False, True):
                u, s, vh = run(lambda a, full=full: tuple(hnp.linalg.svd(a, full_matrices=full)), given)
                k = min(shape[-2:])
                close(u[..., :k] * s[..., None, :] @ vh[..., :k, :], given, dtype)
                close(s, np.linalg.svd(given.astype(np.complex128), compute_uv=False), dtype)
                unitary(u)
                unitary(adjoint(vh))
            close(run(lambda a: hnp.linalg.svd(a, compute_uv=False), given), s, dtype)
        if shape[-1] != shape[-2]:
            continue
        identity = np.broadcast_to(np.eye(shape[-1]), shape)
        for hermitian in (a + adjoint(a), a @ adjoint(a), np.zeros_like(a), identity):
            wide = hermitian.astype(np.complex128)
            one = np.tril(hermitian).astype(complex_dtype)
            for given, lower in ((one, True), (adjoint(one), False)):
                w, v = run(
                    lambda a, lower=lower: tuple(
                        hnp.linalg.eigh(a, UPLO="L" if lower else "U", symmetrize_input=False)
                    ),
                    given,
                )
                close(w, np.linalg.eigvalsh(wide), dtype)
                close(v * w[..., None, :] @ adjoint(v), wide, dtype)
                unitary(v)
    for bad in (np.nan, np.inf):
        assert np.isnan(run(lambda a: tuple(hnp.linalg.svd(a)), np.full((2, 3), bad, complex_dtype))[1]).all()


@pytest.mark.parametrize(
    "kind", [np.float32, np.float64, np.complex64, np.complex128], ids=["f32", "f64", "c64", "c128"]
)
def test_pinv(kind):
    dtype = np.float32 if kind in (np.float32, np.complex64) else np.float64
    for shape in ((1, 1), (4, 4), (6, 3), (3, 6), (2, 5, 4)):
        a = rng.normal(size=shape).astype(kind)
        if np.iscomplexobj(a):
            a = (a + 1j * rng.normal(size=shape)).astype(kind)
        deficient = a.copy()
        deficient[..., -1] = deficient[..., 0]
        for given in (a, deficient, np.zeros_like(a)):
            wide = given.astype(np.complex128 if np.iscomplexobj(a) else np.float64)
            close(run(lambda a: hnp.linalg.pinv(a, rtol=1e-3), given), np.linalg.pinv(wide, rcond=1e-3), dtype)
    assert np.isnan(run(hnp.linalg.pinv, np.full((3, 2), np.nan, kind))).all()


def test_complex_matrices_that_are_not_definite_or_finite_are_nan():
    indefinite = np.array([[1, 2j], [-2j, 1]], np.complex64)
    assert np.isnan(run(lax.linalg.cholesky, indefinite)).all()
    infinite = np.array([[np.inf, 0], [0, 1]], np.complex128)
    assert np.isnan(run(lax.linalg.cholesky, infinite)).any()

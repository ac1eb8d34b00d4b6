"""Linear algebra of awkward matrices: without full rank, near the ends of a dtype's range, badly scaled, not finite.

`tests/reliability.py --only matrices` runs the whole campaign, of which this is a sample; docs/reliability.md has its
figures. The other tests are what it has found.
"""

from __future__ import annotations

import awkward_matrices
import matrix_doors
import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
import hloom.scipy.linalg as hsl
from hloom import lax

FLOATING = awkward_matrices.FLOATING
rng = np.random.default_rng(0)


@pytest.fixture(params=[True, False], ids=["library", "kernels"])
def library_calls(request):
    with hl.config(library_calls=request.param):
        yield


@pytest.mark.filterwarnings("ignore::scipy.linalg.LinAlgWarning", "ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize(
    ("door", "dtype", "m", "n"),
    [
        ("jitted", "float64", 4, 4),
        ("kernels", "float32", 5, 3),
        ("kernels", "complex128", 3, 3),
        ("batched", "complex64", 2, 6),
        ("eager", "complex128", 3, 2),
    ],
)
def test_a_sample_of_the_campaign(door, dtype, m, n):
    found = list(matrix_doors.through(door, dtype, m, n, seed=1))
    assert len(found) > 500
    assert not [f"{what}: {wrong}" for what, wrong in found if wrong]


def test_gradients_are_those_in_closed_form():
    found = [row for m, n in ((3, 3), (5, 3)) for row in matrix_doors.gradients("float64", m, n, seed=2)]
    assert len(found) > 150
    assert not [f"{what}: {wrong}" for what, wrong in found if wrong]


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("shape", [(3, 3), (17, 8), (8, 17)])
def test_singular_values_where_vectors_lie_in_fewer_dimensions(shape, dtype, library_calls):
    """Rounding leaves vectors of noise, whose angles mean nothing: the rotations went on for ever, and all was NaN."""
    m, n = shape
    compute = hl.jit(lambda a: (hnp.linalg.svdvals(a), hnp.linalg.matrix_rank(a), hnp.linalg.pinv(a)))
    draw = awkward_matrices.Draw(rng, dtype)
    for kind in ("ones", "rank_one", "zero_rows", "zero_columns", "equal_columns", "equal_rows", "small_integers"):
        a = awkward_matrices.KINDS[kind](draw, m, n).astype(dtype)
        s, rank, inverse = map(np.asarray, compute(a))
        wanted = np.linalg.svd(a, compute_uv=False)
        np.testing.assert_allclose(s, wanted, rtol=0, atol=30 * max(m, n) * np.finfo(dtype).eps * wanted[0])
        assert rank == np.linalg.matrix_rank(a) and np.isfinite(inverse).all()


@pytest.mark.parametrize("name", ["eigvalsh", "svdvals", "eigvals"])
@pytest.mark.parametrize("dtype", FLOATING)
def test_values_near_the_ends_of_the_range(name, dtype, library_calls):
    function = hl.jit(getattr(hnp.linalg, name))
    b = awkward_matrices.Draw(rng, dtype).normal(5, 5)
    b = (b + b.conj().T).astype(dtype)
    info = np.finfo(dtype)
    wanted = np.sort(np.asarray(function(b)))
    for power in (info.minexp - 10, info.minexp // 2 - 40, info.maxexp // 2 + 5, info.maxexp - 4):
        factor = np.ldexp(info.dtype.type(1), power)
        found = np.sort(np.asarray(function(b * factor)))
        slack = 20 * info.smallest_subnormal + 1e3 * info.eps * factor
        np.testing.assert_allclose(found, wanted * factor, rtol=0, atol=slack)


def test_eigenvectors_of_badly_scaled_matrices():
    """LAPACK balances a matrix, and scales vectors back that were only good for the balanced one."""
    draw = awkward_matrices.Draw(np.random.default_rng(3), "float64")
    for made in (
        draw.normal(3, 3) * np.logspace(-40, 0, 3),
        draw.normal(8, 8) * draw.powers(-10, 10, 8, 1),
        draw.normal(17, 17) * draw.powers(-60, 60, 17, 17),
    ):
        w, left, right = map(np.asarray, hl.jit(lax.linalg.eig)(made))
        bound = 30 * len(w) * np.finfo(float).eps * np.linalg.norm(made)
        assert np.linalg.norm(made @ right - right * w, axis=0).max() <= bound
        assert np.linalg.norm(left.conj().T @ made - w[:, None] * left.conj().T, axis=1).max() <= bound


@pytest.mark.parametrize("power", [-300, 300])
def test_left_eigenvectors_keep_the_scale(power):
    a = rng.normal(size=(3, 3))
    w = np.asarray(lax.linalg.eig(a * 10.0**power)[0])
    np.testing.assert_allclose(np.sort(w), np.sort(np.linalg.eigvals(a)) * 10.0**power, rtol=1e-10)


@pytest.mark.parametrize("dtype", FLOATING)
def test_qr_of_denormal_numbers_is_orthogonal(dtype, library_calls):
    info = np.finfo(dtype)
    a = (awkward_matrices.Draw(rng, dtype).normal(4, 4) * float(info.smallest_subnormal) * 500).astype(dtype)
    q, r = map(np.asarray, hl.jit(lambda a: tuple(hnp.linalg.qr(a)))(a))
    assert np.abs(q.conj().T @ q - np.eye(4)).max() < 100 * info.eps
    product = q.astype(np.complex128) @ (r.astype(np.complex128) / float(info.tiny))
    np.testing.assert_allclose(product, a / info.tiny, rtol=0, atol=20 * info.eps)


@pytest.mark.parametrize("dtype", FLOATING)
def test_determinants_whose_parts_are_beyond_the_range(dtype, library_calls):
    big = 10.0 ** (25 if np.finfo(dtype).maxexp == 128 else 200)
    for diagonal, wanted in (
        ([big, big, 1 / big, 1 / big], 1),
        ([1 / big, 1 / big, big, big], 1),
        ([big, big, 1 / big, 1 / big, 1 / big], 1 / big),
        ([big, big, big, 1 / big], np.inf),
        ([1 / big, 1 / big, 1 / big], 0),
    ):
        found = np.asarray(hl.jit(hnp.linalg.det)(np.diag(np.asarray(diagonal, dtype))))
        np.testing.assert_allclose(found.real, wanted, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_quotients_of_denormal_numbers(dtype):
    """The inverse of the divisor overflows, the quotient does not."""
    tiny = float(np.finfo(dtype).smallest_subnormal)
    x, y = (np.array([n * (3 + 4j) * tiny], dtype) for n in (300, 20))
    for divide in (hnp.divide, hl.jit(hnp.divide)):
        np.testing.assert_allclose(np.asarray(divide(x, y)), 15, rtol=1e-6)
        np.testing.assert_allclose(np.asarray(divide(x * 1j, y)), 15j, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("n", [3, 20])
def test_systems_of_denormal_complex_numbers(n, dtype, library_calls):
    tiny, eps = float(np.finfo(dtype).tiny), np.finfo(dtype).eps
    a = (awkward_matrices.Draw(rng, dtype).normal(n, n) * (tiny / 16)).astype(dtype)
    wide = a.astype(np.complex128) * (1 / tiny)
    x = np.asarray(hl.jit(hnp.linalg.solve)(a, a[:, :1]))
    assert np.abs(wide @ x - wide[:, :1]).max() < 1e3 * eps
    p, lower, upper = map(np.asarray, hl.jit(lambda a: tuple(hsl.lu(a)))(a))
    assert np.abs(p @ lower @ (upper.astype(np.complex128) * (1 / tiny)) - wide).max() < 1e3 * eps


def test_least_squares_of_tiny_matrices():
    """The pseudo-inverse is beyond the range, the solution is not."""
    for dtype, scale in (("float32", 1e-40), ("float64", 1e-310)):
        a, b = (rng.normal(size=s) for s in ((5, 3), (5, 2)))
        found = np.asarray(hl.jit(hnp.linalg.lstsq)((a * scale).astype(dtype), (b * scale).astype(dtype))[0])
        np.testing.assert_allclose(found, np.linalg.lstsq(a, b, rcond=None)[0], rtol=1e-3, atol=1e-3)


def test_sylvester_equations_have_one_solution_or_none():
    a, b, c = (rng.normal(size=(3, 3)) for _ in range(3))
    wanted = np.asarray(hsl.solve_sylvester(a, b, c))
    np.testing.assert_allclose(np.asarray(hsl.solve_sylvester(*(x * 1e-300 for x in (a, b, c)))), wanted, rtol=1e-8)
    assert np.isnan(np.asarray(hsl.solve_sylvester(np.zeros((2, 2)), np.zeros((2, 2)), np.ones((2, 2))))).all()

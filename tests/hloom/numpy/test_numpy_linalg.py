"""hnp.linalg and hnp.einsum: numbers against NumPy, gradients against JAX, under jit and vmap, and errors."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, DTypeError, HloomError, ShapeError

FLOATING = ("float32", "float64", "complex64", "complex128")


def random(dtype, *dims, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=dims) + (1j * rng.normal(size=dims) if dtype.startswith("complex") else 0)
    return np.asarray(a, dtype)


def definite(dtype, *dims):
    a = random(dtype, *dims)
    return (a @ a.swapaxes(-1, -2).conj() + dims[-1] * np.eye(dims[-1])).astype(dtype)


def near(found, wanted, factor=1):
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    tolerance = factor * (5e-4 if found.dtype in (np.float32, np.complex64) else 1e-9)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", FLOATING)
def test_functions_are_those_of_numpy(dtype):
    a, p, b = random(dtype, 4, 4), definite(dtype, 4, 4), random(dtype, 4, 3, seed=1)
    many = random(dtype, 2, 3, 4, 4, seed=3)
    x = hnp.asarray
    for value in (a, many):
        for name in ("det", "inv", "pinv", "svd:S", "matrix_rank"):
            name, _, part = name.partition(":")
            found, wanted = getattr(hnp.linalg, name)(x(value)), getattr(np.linalg, name)(value)
            near(getattr(found, part) if part else found, getattr(wanted, part) if part else wanted, 20)
        for found, wanted in zip(hnp.linalg.slogdet(x(value)), np.linalg.slogdet(value), strict=True):
            near(found, wanted, 10)
        for found, wanted in zip(hnp.linalg.slogdet(x(value), method="qr"), np.linalg.slogdet(value), strict=True):
            near(found, wanted, 10)
        for n in (-2, -1, 0, 1, 2, 3, 7):
            wanted = np.linalg.matrix_power(value.astype(np.complex128), n)
            size = np.abs(wanted).max()
            near(np.asarray(hnp.linalg.matrix_power(x(value), n)) / size.astype(a.real.dtype), wanted / size, 100)
        near(hnp.linalg.solve(x(value), x(b)), np.linalg.solve(value, b), 100)
        near(hnp.linalg.solve(x(value), x(b[:, 0])), np.linalg.solve(value, b[:, :1])[..., 0], 100)
        near(hnp.linalg.diagonal(x(value), offset=1), np.linalg.diagonal(value, offset=1))
        near(hnp.linalg.trace(x(value), offset=-1), np.linalg.trace(value, offset=-1))
    near(hnp.linalg.cholesky(x(p)), np.linalg.cholesky(p))
    near(hnp.linalg.cholesky(x(p), upper=True), np.linalg.cholesky(p, upper=True))
    near(hnp.linalg.eigvalsh(x(p)), np.linalg.eigvalsh(p))
    near(np.sort_complex(hnp.linalg.eigvals(x(a))), np.sort_complex(np.linalg.eigvals(a)), 5)
    w, v = hnp.linalg.eig(x(a))
    near(a @ v, v * w)
    near(hnp.linalg.lstsq(x(many[0, 0][:, :2]), x(b))[0], np.linalg.lstsq(many[0, 0][:, :2], b, rcond=None)[0], 10)
    near(hnp.linalg.multi_dot([x(b.T), x(a), x(b)]), np.linalg.multi_dot([b.T, a, b]), 10)
    near(hnp.linalg.tensorinv(x(random(dtype, 4, 6, 8, 3)), 2), np.linalg.tensorinv(random(dtype, 4, 6, 8, 3), 2), 20)
    t, r = random(dtype, 2, 3, 6), random(dtype, 2, 3)
    near(hnp.linalg.tensorsolve(x(t), x(r)), np.linalg.tensorsolve(t, r), 20)


@pytest.mark.parametrize("dtype", FLOATING)
def test_norms(dtype):
    v, m = random(dtype, 5), random(dtype, 2, 3, 4)
    for order in (None, 0, 1, 2, 3, -1, -2, 0.5, np.inf, -np.inf):
        near(hnp.linalg.norm(hnp.asarray(v), order), np.linalg.norm(v, order))
        near(hnp.linalg.norm(hnp.asarray(m), order, 1, True), np.linalg.norm(m, order, 1, True))
    for order in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        for axis in ((0, 1), (2, 1), (-2, -1)):
            for keepdims in (False, True):
                found = hnp.linalg.norm(hnp.asarray(m), order, axis, keepdims)
                near(found, np.linalg.norm(m, order, axis, keepdims))
    near(hnp.linalg.norm(hnp.asarray(m)), np.linalg.norm(m))
    near(hnp.linalg.vector_norm(hnp.asarray(m), axis=(0, 2), ord=3), np.linalg.vector_norm(m, axis=(0, 2), ord=3))
    for p in (None, 1, -1, 2, -2, np.inf, "fro"):
        a = definite(dtype, 3, 3)
        near(hnp.linalg.cond(hnp.asarray(a), p), np.linalg.cond(a, p), 10)


def test_integers_are_computed_in_float():
    x = hnp.asarray(np.array([[2, 1], [1, 3]], np.int32))
    assert hnp.linalg.inv(x).dtype == np.float32
    assert hnp.linalg.det(hnp.asarray(np.array([[2, 1], [1, 3]], np.int64))).dtype == np.float64


def test_singular_matrices():
    ones = hnp.ones((2, 2))
    assert not np.isfinite(np.asarray(hnp.linalg.inv(ones))).any()
    assert float(hnp.linalg.det(ones)) == 0
    assert np.isinf(hnp.linalg.cond(ones, 1)) and np.isinf(hnp.linalg.slogdet(ones).logabsdet)
    near(hnp.linalg.pinv(ones), np.full((2, 2), 0.25))
    near(hl.grad(hnp.linalg.det)(hnp.asarray(np.diag([1.0, 2, 0]))), np.diag([0.0, 0, 2]))


def test_a_batch_with_one_singular_matrix_keeps_the_others():
    a = np.stack([np.eye(2), np.ones((2, 2))])
    found = np.asarray(hnp.linalg.solve(hnp.asarray(a), hnp.ones((2, 1), "f64")))
    near(found[0], np.ones((2, 1)))
    assert not np.isfinite(found[1]).all()


def loss(function):
    """A real scalar that depends on every element of the result, and on no phase of its vectors."""

    def scalar(*args):
        import jax

        xp = hnp if not isinstance(args[0], jax.Array) else jax.numpy
        found = function(xp, *args)
        total = 0.0
        for k, part in enumerate(found if isinstance(found, tuple) else (found,)):
            weights = np.cos(1.0 + k + np.arange(part.size)).reshape(part.shape)
            total = total + (xp.abs(part) ** 2 * weights).sum()
        return total

    return scalar


A, P = random("float64", 4, 4), definite("float64", 4, 4)
GRADIENTS = {
    "cholesky": (lambda xp, a: xp.linalg.cholesky(a), P),
    "inv": (lambda xp, a: xp.linalg.inv(a), A),
    "det": (lambda xp, a: xp.linalg.det(a), A),
    "slogdet": (lambda xp, a: xp.linalg.slogdet(a)[1], A),
    "solve": (lambda xp, a: xp.linalg.solve(a, a.T), A),
    "qr": (lambda xp, a: tuple(xp.linalg.qr(a)), random("float64", 5, 3)),
    "svd": (lambda xp, a: tuple(xp.linalg.svd(a, full_matrices=False)), random("float64", 5, 3)),
    "svd-complex": (lambda xp, a: tuple(xp.linalg.svd(a, full_matrices=False)), random("complex128", 3, 4)),
    "eigh": (lambda xp, a: tuple(xp.linalg.eigh(a)), A + A.T),
    "eigh-complex": (lambda xp, a: tuple(xp.linalg.eigh(a)), definite("complex128", 3, 3)),
    "eigvals": (lambda xp, a: xp.linalg.eigvals(a), A),
    "pinv": (lambda xp, a: xp.linalg.pinv(a), random("float64", 5, 3)),
    "lstsq": (lambda xp, a: xp.linalg.lstsq(a, a[:, :2] ** 2)[0], random("float64", 5, 3)),
    "nuc": (lambda xp, a: xp.linalg.norm(a, "nuc"), A),
    "norm": (lambda xp, a: xp.linalg.norm(a, axis=0), A),
    "matrix_power": (lambda xp, a: xp.linalg.matrix_power(a, -3), P),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_jax(name):
    jax = pytest.importorskip("jax")
    function, point = GRADIENTS[name]
    with jax.enable_x64(True):
        wanted = np.asarray(jax.grad(loss(function))(jax.numpy.asarray(point)))
    found = hl.jit(hl.grad(loss(function)))(hnp.asarray(point))
    size = np.abs(wanted).max()
    near(np.asarray(found) / size, wanted / size)


@pytest.mark.parametrize("name", ["cholesky", "inv", "det", "slogdet", "qr", "svd", "eigh", "pinv", "nuc"])
def test_vmap_is_stacking(name):
    function, point = GRADIENTS[name]
    points = np.stack([point, point * 2, point + (point if name in ("cholesky", "eigh") else 1)])
    mapped = hl.vmap(lambda a: function(hnp, a))(hnp.asarray(points))
    for k, one in enumerate(points):
        single = function(hnp, hnp.asarray(one))
        parts = zip(mapped, single, strict=True) if isinstance(single, tuple) else [(mapped, single)]
        for many, part in parts:
            near(np.abs(many[k]), np.abs(part))


# --- einsum -------------------------------------------------------------------------------------------------------

CHAINS = [
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ia,jb,ab->ij", (2, 3), (4, 5), (3, 5)),
    ("...ij,...jk,kl->...il", (6, 2, 3), (6, 3, 4), (4, 5)),
    ("ijk,jil,klm,m->", (2, 3, 4), (3, 2, 5), (4, 5, 6), (6,)),
    ("iij,jk,k", (3, 3, 2), (2, 4), (4,)),
]


@pytest.mark.parametrize("optimize", [True, False, "auto", "optimal", "greedy", "dp"])
@pytest.mark.parametrize("chain", CHAINS, ids=lambda c: c[0])
def test_chains_of_einsum(chain, optimize):
    arrays = [random("float64", *dims, seed=k) for k, dims in enumerate(chain[1:])]
    near(hnp.einsum(chain[0], *map(hnp.asarray, arrays), optimize=optimize), np.einsum(chain[0], *arrays))


def test_paths_of_einsum():
    arrays = [random("float64", *dims) for dims in ((2, 30), (30, 4), (4, 5))]
    path, account = hnp.einsum_path("ij,jk,kl", *map(hnp.asarray, arrays))
    assert path == [(0, 1), (0, 1)] and "scaling" in str(account)
    wanted = np.einsum("ij,jk,kl", *arrays)
    for chosen in (path, [(1, 2), (0, 1)], ["einsum_path", (0, 1, 2)]):
        near(hnp.einsum("ij,jk,kl", *map(hnp.asarray, arrays), optimize=chosen), wanted)
    for wrong in ([(0, 5)], "fastest", 3.5):
        with pytest.raises(ArgumentError):
            hnp.einsum("ij,jk,kl", *map(hnp.asarray, arrays), optimize=wrong)


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: hnp.linalg.inv(hnp.ones((2, 3))), ShapeError),
        (lambda: hnp.linalg.inv(hnp.ones((2, 2), "bf16")), DTypeError),
        (lambda: hnp.linalg.solve(hnp.eye(2), hnp.ones(3)), ShapeError),
        (lambda: hnp.linalg.eigh(hnp.eye(2), UPLO="X"), ArgumentError),
        (lambda: hnp.linalg.qr(hnp.eye(2), mode="economic"), ArgumentError),
        (lambda: hnp.linalg.norm(hnp.ones((2, 2)), "other"), ArgumentError),
        (lambda: hnp.linalg.norm(hnp.ones(2), "fro"), ArgumentError),
        (lambda: hnp.linalg.norm(hnp.ones((2, 2, 2)), 2), ShapeError),
        (lambda: hnp.linalg.cross(hnp.ones(2), hnp.ones(2)), ShapeError),
        (lambda: hnp.linalg.outer(hnp.ones((2, 2)), hnp.ones(2)), ShapeError),
        (lambda: hnp.linalg.matrix_power(hnp.eye(2), 0.5), ArgumentError),
        (lambda: hnp.linalg.lstsq(hnp.ones((3, 2)), hnp.ones(2)), ShapeError),
        (lambda: hnp.linalg.slogdet(hnp.eye(2), method="svd"), ArgumentError),
        (lambda: hnp.linalg.tensorinv(hnp.ones((2, 3, 4)), 1), ShapeError),
    ],
)
def test_errors_say_what_is_wrong(call, error):
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, HloomError)
    assert caught.value.asked and caught.value.found and caught.value.repair and caught.value.source is not None

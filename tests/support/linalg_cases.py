"""Cases of linear algebra and of the Fourier transform for the tests of derivatives.

Factors that are free up to a sign or a phase are compared through products in which it cancels.
"""

from __future__ import annotations

import numpy as np
from derivative_cases import Case, complex_normal, normal, positive

from hloom.ir.ops.linalg.matrices import adjoint, call, dot

NAMES = {normal: "real", complex_normal: "complex"}


def definite(sampler):
    def draw(rng, dims):
        a = sampler(rng, dims)
        return a @ a.swapaxes(-1, -2).conj() + dims[-1] * np.eye(dims[-1])

    return draw


def near_identity(sampler):
    return lambda rng, dims: sampler(rng, dims) * 0.4 + 2 * np.eye(dims[-1])


CASES = []


def case(opcode, function, *draw, label):
    CASES.append(Case(opcode, function, draw, label=label))


for _sampler in (normal, complex_normal):
    _name = NAMES[_sampler]
    for _lower in (True, False):
        _draw = (definite(_sampler), (2, 4, 4))
        case("cholesky", lambda x, lower=_lower: x.op("cholesky", lower=lower), _draw, label=f"{_name}-{_lower}")
    for _left in (True, False):
        for _how in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"):
            for _flags in ({"lower": True, "unit_diagonal": False}, {"lower": False, "unit_diagonal": True}):
                _attributes = {"left_side": _left, "transpose_a": _how, **_flags}
                case(
                    "triangular-solve",
                    lambda a, b, attributes=_attributes: a.op("triangular-solve", b, **attributes),
                    (near_identity(_sampler), (2, 3, 3)),
                    (_sampler, (2, 3, 5) if _left else (2, 5, 3)),
                    label=f"{_name}-{_left}-{_how}-{_flags['lower']}",
                )
    case(
        "tridiagonal-solve",
        lambda a, b, c, d: a.op("tridiagonal-solve", b, c, d),
        (_sampler, (2, 5)), (positive if _sampler is normal else _sampler, (2, 5)), (_sampler, (2, 5)),
        (_sampler, (2, 5, 3)), label=_name,
    )  # fmt: skip
    case(
        "tridiagonal-solve",
        lambda a, b, c, d: a.op("tridiagonal-solve", b, c, d, perturb_singular=True),
        (_sampler, (2, 5)), (positive if _sampler is normal else _sampler, (2, 5)), (_sampler, (2, 5)),
        (_sampler, (2, 5, 3)), label=f"{_name}-perturbed",
    )  # fmt: skip

for _length in ((5,), (4,), (1,), (3, 4), (2, 3, 5)):
    for _which in ("FFT", "IFFT"):
        _shape = (complex_normal, (2, *_length))
        case(
            "fft",
            lambda x, t=_which, n=_length: x.op("fft", fft_type=t, fft_length=n),
            _shape,
            label=f"{_which}-{_length}",
        )
    _half = (2, *_length[:-1], _length[-1] // 2 + 1)
    case(
        "fft",
        lambda x, n=_length: x.op("fft", fft_type="RFFT", fft_length=n),
        (normal, (2, *_length)),
        label=f"RFFT-{_length}",
    )
    case(
        "fft",
        lambda x, n=_length: x.op("fft", fft_type="IRFFT", fft_length=n),
        (complex_normal, _half),
        label=f"IRFFT-{_length}",
    )


# --- decompositions -----------------------------------------------------------------------------------------------


def eigh(x, lower):
    """Eigenvalues, and the absolute squares of the eigenvectors' components with their products between neighbours."""
    values, vectors = call(x, "eigh", lower=lower)
    return [values, projectors(vectors)]


def projectors(vectors):
    """v_k v_k^H weighted by k + 1, over the columns v_k: what is left when phases cancel."""
    count = vectors.dims[-1]
    weights = np.broadcast_to(np.arange(1.0, count + 1), vectors.dims).astype(vectors.dtype)
    weighted = vectors * type(vectors)(vectors.builder, vectors.builder.constant(weights))
    return dot(weighted, adjoint(vectors))


def svd(x, full):
    u, s, vh = call(x, "svd", compute_uv=True, full_matrices=full)
    return [s, projectors(u), projectors(adjoint(vh)), dot(u, vh)]


def svd_between(x):
    """Rectangular: the polar factor u vh has no phases left."""
    u, s, vh = call(x, "svd", compute_uv=True)
    return [s, dot(u, vh), projectors(u), projectors(adjoint(vh))]


for _sampler in (normal, complex_normal):
    _name = NAMES[_sampler]
    for _dims in ((2, 4, 4), (4, 3), (2, 3, 5)):
        case("qr", lambda x: call(x, "qr"), (_sampler, _dims), label=f"{_name}-{_dims}")
        case("lu", lambda x: call(x, "lu")[:1], (_sampler, _dims), label=f"{_name}-{_dims}")
        case("svd", svd_between, (_sampler, _dims), label=f"{_name}-{_dims}")
        case("svd", lambda x: call(x, "svd"), (_sampler, _dims), label=f"{_name}-{_dims}-values")
    case("qr", lambda x: call(x, "qr", pivoting=True)[:2], (_sampler, (4, 3)), label=f"{_name}-pivoting")
    case("qr", lambda x: call(x, "qr", full_matrices=True), (_sampler, (3, 4)), label=f"{_name}-full-wide")
    case("svd", lambda x: svd(x, True), (_sampler, (3, 3)), label=f"{_name}-full")
    for _lower in (True, False):
        case("eigh", lambda x, lower=_lower: eigh(x, lower), (_sampler, (2, 4, 4)), label=f"{_name}-{_lower}")
    case("eig", lambda x: call(x, "eig", right=True), (_sampler, (2, 4, 4)), label=_name)
    case("eig", lambda x: call(x, "eig"), (_sampler, (4, 4)), label=f"{_name}-values")
    case(
        "householder-product",
        lambda a, t: a.op("householder-product", t),
        (_sampler, (2, 4, 3)), (positive, (2, 3)) if _sampler is normal else (_sampler, (2, 3)), label=_name,
    )  # fmt: skip


# --- functions of whole matrices ------------------------------------------------------------------------------------


def singular(rng, dims):
    a = rng.normal(size=dims)
    a[..., -1, :] = a[..., 0, :] * 2
    return a


def bound(x):
    """A bound of 1e-9 for each matrix."""
    real = np.float64
    return type(x)(x.builder, x.builder.constant(np.full(x.dims[:-2], 1e-9, real)))


for _sampler in (normal, complex_normal):
    _name = NAMES[_sampler]
    _square = (near_identity(_sampler), (2, 3, 3))
    case("solve", lambda a, b: a.op("solve", b), _square, (_sampler, (2, 3, 2)), label=_name)
    case("sylvester", lambda a, b, c: a.op("sylvester", b, c), _square, _square, (_sampler, (2, 3, 3)), label=_name)
    case("det", lambda a: a.op("det"), (_sampler, (2, 3, 3)), label=_name)
    case("adjugate", lambda a: a.op("adjugate"), (_sampler, (2, 3, 3)), label=_name)
    for _dims in ((3, 3), (2, 4, 3), (3, 5)):
        case("pinv", lambda a: a.op("pinv", bound(a)), (_sampler, _dims), label=f"{_name}-{_dims}")
    case("sqrtm", lambda a: a.op("sqrtm"), (definite(_sampler), (2, 3, 3)), label=_name)
case("det", lambda a: a.op("det"), (singular, (2, 4, 4)), label="singular")

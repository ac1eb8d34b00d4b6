"""What the routines of linear algebra mean, by NumPy and SciPy: `linear_algebra.py` lists them.

Each takes and returns row-major arrays that hold column-major matrices, for a batch: function(*arrays, *options).
Where LAPACK leaves a choice (signs of vectors), it is that of the op's reference on the matrix that the op was given.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloom.ir.ops.linalg.decompositions import lapack, pivots_to_permutation
from hloom.ir.ops.linalg.matrices import stack

_FAILED = 1  # info of a matrix for which LAPACK raised


def _each(function: Callable, lead: tuple[int, ...], *arrays) -> tuple[np.ndarray, ...]:
    """function(one problem of each array) -> its results, for every problem of the batch."""
    count = len(lead)
    stacked = [stack(a, a.ndim - count) for a in arrays]
    found = [function(*(a[k] for a in stacked)) for k in range(len(stacked[0]))]
    return tuple(np.stack(part).reshape(lead + np.shape(part[0])) for part in zip(*found, strict=True))


def _info(value: int) -> np.ndarray:
    return np.array(value, np.int32)


def potrf(x, triangle):
    function = lapack("potrf", x.dtype)

    def one(m):
        factor, info = function(m.T, lower=triangle == "L", clean=0)
        return factor.T, _info(info)

    return _each(one, x.shape[:-2], x)


def trsm(a, b, side, triangle, how, diagonal):
    import scipy.linalg.blas  # saves start-up time: SciPy

    (function,) = scipy.linalg.blas.get_blas_funcs(("trsm",), dtype=b.dtype)
    flags = {"side": "LR".index(side), "lower": "UL".index(triangle), "trans_a": "NTC".index(how),
             "diag": "NU".index(diagonal)}  # fmt: skip
    (x,) = _each(lambda m, right: (function(1.0, m.T, right.T, **flags).T,), a.shape[:-2], a, b)
    return x


def getrf(x):
    function = lapack("getrf", x.dtype)

    def one(m):
        factors, pivots, info = function(m.T)
        return factors.T, (pivots + 1).astype(np.int32), _info(info)

    return _each(one, x.shape[:-2], x)


def getrs(factors, pivots, b, how):
    function = lapack("getrs", b.dtype)

    def one(lu, exchanged, right):
        x, info = function(lu.T, exchanged - 1, right.T, trans="NTC".index(how))
        return x.T, _info(info)

    return _each(one, b.shape[:-2], factors, pivots, b)


def laswp(values, pivots):
    (x,) = _each(lambda v, p: (v[pivots_to_permutation(p - 1, len(v))],), values.shape[:-1], values, pivots)
    return x


def geqrf(x):
    function = lapack("geqrf", x.dtype)

    def one(m):
        packed, factors, _, info = function(m.T)
        return packed.T, factors, _info(info)

    return _each(one, x.shape[:-2], x)


def orgqr(x, factors):
    function = lapack("ungqr" if x.dtype.kind == "c" else "orgqr", x.dtype)

    def one(m, tau):
        q, _, info = function(np.asfortranarray(m.T), tau)
        return q.T, _info(info)

    return _each(one, x.shape[:-2], x, factors)


def syevd(x, triangle):
    def one(m):
        try:
            values, vectors = np.linalg.eigh(m, "U" if triangle == "L" else "L")  # row-major: the other triangle
        except np.linalg.LinAlgError:
            return m, np.zeros(len(m), m.real.dtype), _info(_FAILED)
        return vectors.conj().T, values, _info(0)

    return _each(one, x.shape[:-2], x)


def gesvd(x, job):
    def one(m):
        m = m.T
        rows, columns = m.shape
        try:
            if job == "N":
                return np.linalg.svd(m, compute_uv=False), _info(0)
            u, values, vh = np.linalg.svd(m, full_matrices=job == "A")
            return u.T, values, vh.T, _info(0)
        except np.linalg.LinAlgError:
            values = np.zeros(columns, m.real.dtype)
            u = np.zeros((rows if job == "A" else columns, rows), m.dtype)
            vh = np.zeros((columns, columns), m.dtype)
            return (values, _info(_FAILED)) if job == "N" else (u, values, vh, _info(_FAILED))

    return _each(one, x.shape[:-2], x)


REFERENCES: dict[str, Callable] = {
    function.__name__: function for function in (potrf, trsm, getrf, getrs, laswp, geqrf, orgqr, syevd, gesvd)
}

"""Linear algebra with `numpy.linalg`'s and `jax.numpy.linalg`'s names: also the Array API's extension `linalg`.

Matrices are the last two axes; leading axes are a batch. Integers are converted to floats (64-bit ones to f64); f16 and
bf16 are errors, because LAPACK does not support them. Multiple results are named tuples.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hloom import lax
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.sizes.expressions import Size, greatest
from hloom.ir.types import COMPLEX, DTYPES, real_dtype
from hloom.lax.linalg import matrices, square
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
    canonical_axes,
    canonical_axis,
    convert,
    inexact_dtype,
    promote_operands,
    to_inexact,
    whole_number,
)
from hloom.numpy.creation import arange, asarray, zeros
from hloom.numpy.dtypes import finfo
from hloom.numpy.elementwise.logic import isnan, where
from hloom.numpy.linear import products
from hloom.numpy.linear.einsum import multi_dot
from hloom.numpy.linear.factorizations import (
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    float_matrices,
    float_square,
    qr,
    svd,
    svdvals,
)
from hloom.numpy.linear.matrices import eye
from hloom.numpy.linear.products import cross as general
from hloom.numpy.linear.products import matmul, matrix_transpose, tensordot, vecdot
from hloom.numpy.reducing import reductions
from hloom.numpy.reducing.reductions import count_nonzero, prod
from hloom.numpy.shaping import diagonals
from hloom.numpy.shaping.manipulation import broadcast_to, expand_dims, moveaxis, ravel, reshape, squeeze, transpose
from hloom.tracing.trace import bind

__all__ = [
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]
__dir__ = __all__.copy


class SlogdetResult(NamedTuple):
    """The sign (a complex number of length 1) of a determinant and the logarithm of its absolute value."""

    sign: object
    logabsdet: object


# --- determinants, inverses, systems ------------------------------------------------------------------------------


def cond(x, p=None):
    """The condition number |x| |x^-1| in the matrix norm p (as for `norm`; None and 2: singular values).

    inf for a singular matrix; NaN if x contains NaN. Raises ShapeError, DTypeError, ArgumentError.

    >>> hnp.linalg.cond(hnp.array([[2.0, 0.0], [0.0, 0.5]])).round(3)
    Array(4., dtype=float32)
    """
    x = matrices(to_inexact(x, "cond"), "cond")
    if p in (None, 2, -2):
        s = svdvals(x)
        if not s.shape[-1]:
            raise ShapeError("cond takes matrices that are not empty", f"{x._shape!r}", "check the shape")
        result = s[..., 0] / s[..., -1] if p != -2 else s[..., -1] / s[..., 0]
    else:
        result = norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))
    # NaN from NaN inputs is kept, NaN from a singular matrix is an infinite condition number.
    own = reductions.any(isnan(x), axis=(-2, -1))
    return where(isnan(result) & ~own, lax.full_like(result, np.inf), result)


def det(a):
    """The determinant, differentiable also where it is 0. Raises ShapeError, DTypeError.

    >>> hnp.linalg.det(hnp.array([[2.0, 1.0], [4.0, 3.0]])).round(3)
    Array(2., dtype=float32)
    """
    return bind("det", float_square(a, "det"))


def slogdet(a, *, method: str | None = None):
    """SlogdetResult(sign, logabsdet): the determinant is sign * exp(logabsdet), with no overflow.

    method: 'lu' or 'qr'. Raises ShapeError, DTypeError, ArgumentError.

    >>> hnp.linalg.slogdet(hnp.array([[2.0, 0.0], [0.0, -0.5]])).sign
    Array(-1., dtype=float32)
    """
    a = float_square(a, "slogdet")
    if method not in (None, "lu", "qr"):
        raise ArgumentError("slogdet takes method 'lu' or 'qr'", f"{method!r}", "leave it out")
    n = a.shape[-1]
    if method == "qr":
        # The determinant of Q is the product over its reflections: -1 for each in the real case.
        form, taus = lax.linalg.geqrf(lax.stop_gradient(a))
        sign = prod(where(taus != 0, -1, 1), axis=-1).astype(a.dtype)
        if np.dtype(a.dtype).kind == "c":
            sign = det(lax.linalg.householder_product(form, taus))
        diagonal_ = diagonals.diagonal(lax.linalg.qr(a, full_matrices=False)[1], axis1=-2, axis2=-1)
    else:
        factors, pivots, _ = lax.linalg.lu(a)
        diagonal_ = diagonals.diagonal(factors, axis1=-2, axis2=-1)
        exchanged = count_nonzero(pivots != arange(n, dtype=pivots.dtype), axis=-1)
        sign = (1 - 2 * (exchanged % 2)).astype(a.dtype)
    size = lax.abs(diagonal_)
    zero = size == 0
    unit = where(zero, lax.full_like(diagonal_, 0), diagonal_ / where(zero, lax.full_like(size, 1), size))
    return SlogdetResult(sign * prod(unit, axis=-1), reductions.sum(_log(size), axis=-1))


def _log(x):
    """The logarithm, correctly rounded in single precision: its errors would accumulate over the diagonal."""
    return convert(lax.log(convert(x, DTYPES["f64"])), x.dtype)


def inv(a):
    """The inverse; for a singular matrix it contains inf or NaN. Raises ShapeError, DTypeError.

    >>> hnp.linalg.inv(hnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    a = float_square(a, "inv")
    return bind("solve", a, broadcast_to(eye(a.shape[-1], dtype=a.dtype), a.shape))


def solve(a, b):
    """The solution x of a x = b, with b a vector (n,) or matrices (..., n, k). inf or NaN for a singular a.

    Raises ShapeError, DTypeError.

    >>> hnp.linalg.solve(hnp.array([[2.0, 0.0], [0.0, 4.0]]), hnp.array([2.0, 8.0]))
    Array([1., 2.], dtype=float32)
    """
    a, b = square(a, "solve"), as_operand(b, "solve")
    if b.ndim < 1 or b.shape[-1 if b.ndim == 1 else -2] != a.shape[-1]:
        raise ShapeError(
            "solve takes a right side with as many rows as the matrix",
            f"{a._shape!r} and {b._shape!r}",
            "give it the shape (n,) or (..., n, k); a batch of vectors as (..., n, 1)",
        )
    (a, b), _ = promote_operands("solve", (a, b), _inexact, broadcast=False)
    vector = b.ndim == 1
    if vector:
        b = lax.expand_dims(b, (1,))
    batch = broadcast_shapes("solve", [a.shape[:-2], b.shape[:-2]])
    result = bind("solve", *(broadcast_dims_to(x, batch + x.shape[-2:]) for x in (a, b)))
    return lax.squeeze(result, (-1,)) if vector else result


def _inexact(dtype):
    return inexact_dtype(dtype)


def _larger_size(x) -> Size:
    """max(m, n) of the matrices."""
    return greatest(*x.shape[-2:])


def pinv(a, rtol=None, hermitian: bool = False, *, rcond=None):
    """The pseudo-inverse of Moore and Penrose, (..., n, m).

    Singular values up to rtol times the largest are treated as 0; rtol (formerly rcond) is 10 max(m, n) eps by default,
    a scalar or an array that broadcasts to the batch. Raises ShapeError, DTypeError.

    >>> hnp.linalg.pinv(hnp.array([[2.0, 0.0], [0.0, 0.0]])).round(3)
    Array([[0.5, 0. ],
           [0. , 0. ]], dtype=float32)
    """
    a = float_matrices(a, "pinv")
    rtol = rcond if rtol is None else rtol
    dtype = real_dtype(a.dtype)
    if rtol is None:
        rtol = 10.0 * _larger_size(a) * float(finfo(dtype).eps)
    bound = broadcast_to(asarray(rtol, dtype=dtype), a.shape[:-2])
    return bind("pinv", a, bound)


def matrix_rank(M, rtol=None, *, hermitian: bool = False, tol=None):
    """The number of singular values above rtol times the largest (default max(m, n) eps), or above tol; s32.

    An array of rank 0 or 1 has rank 1, or 0 if all its elements are 0. Raises ArgumentError, DTypeError.

    >>> hnp.linalg.matrix_rank(hnp.array([[1.0, 2.0], [2.0, 4.0]]))
    Array(1, dtype=int32)
    """
    x = to_inexact(M, "matrix_rank")
    if x.ndim < 2:
        return reductions.any(x != 0).astype("s32")
    if rtol is not None and tol is not None:
        raise ArgumentError("matrix_rank takes rtol or tol", "both", "leave one out")
    s = svd(x, compute_uv=False, hermitian=hermitian)
    if tol is not None:
        bound = asarray(tol, dtype=s.dtype)[..., None]
    else:
        if rtol is None:
            rtol = _larger_size(x) * float(finfo(s.dtype).eps)
        bound = asarray(rtol, dtype=s.dtype)[..., None] * reductions.max(s, axis=-1, keepdims=True, initial=0)
    return reductions.sum(s > bound, axis=-1, dtype="s32")


def lstsq(a, b, rcond=None, *, numpy_resid: bool = False):
    """(x, residuals, rank, s): the x (n,) or (n, k) of least norm among those that minimize |b - a x|.

    residuals: the squared norms of b - a x, one per column (empty as in NumPy if numpy_resid and a lacks full rank or
    has no more rows than columns). Singular values up to rcond times the largest are treated as 0: by default max(m, n)
    eps. Raises ShapeError, DTypeError.

    >>> a, b = hnp.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]), hnp.array([1.0, 3.0, 5.0])
    >>> x, residuals, rank, singular_values = hnp.linalg.lstsq(a, b)
    >>> x.round(3)
    Array([2., 1.], dtype=float32)
    """
    a, b = matrices(a, "lstsq"), as_operand(b, "lstsq")
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        raise ShapeError(
            "lstsq takes one matrix (m, n) and a right side (m,) or (m, k)",
            f"{a._shape!r} and {b._shape!r}",
            "check the sizes; hl.vmap does batches",
        )
    (a, b), _ = promote_operands("lstsq", (a, b), _inexact, broadcast=False)
    m, n = a.shape
    eps = float(finfo(a.dtype).eps)
    rcond = eps * _larger_size(a) if rcond is None else where(asarray(rcond) < 0, eps, rcond)
    columns = lax.expand_dims(b, (1,)) if b.ndim == 1 else b
    s = svdvals(a)
    rank = reductions.sum(s > rcond * reductions.max(s, initial=0), dtype="s32")
    # The pseudo-inverse of a tiny matrix may overflow although the solution does not.
    factor = _to_usual_range(a)
    x = matmul(pinv(a * factor, rcond), columns * factor)
    if numpy_resid and (m <= n or int(rank) < n):
        residuals = zeros((0,), real_dtype(a.dtype))
    else:
        residuals = reductions.sum(lax.square(lax.abs(columns - matmul(a, x))), axis=0)
    return (lax.squeeze(x, (1,)) if b.ndim == 1 else x), residuals, rank, s


def _to_usual_range(a):
    """A power of two that scales a matrix with very small or large elements towards 1; 1 for all others."""
    half = 2.0 ** (64 if real_dtype(a.dtype) == DTYPES["f32"] else 512)
    size = reductions.max(lax.abs(lax.stop_gradient(a)), initial=0)
    return where(size < 1 / half, half, where(size > half, 1 / half, 1.0)).astype(a.dtype)


def matrix_power(a, n: int):
    """a @ a @ ... (n factors), by repeated squaring; of the inverse for a negative n. Raises ShapeError, DTypeError.

    >>> hnp.linalg.matrix_power(hnp.array([[1, 1], [1, 0]]), 5)
    Array([[8, 5],
           [5, 3]], dtype=int32)
    """
    a, n = square(a, "matrix_power"), whole_number(n, "matrix_power", "exponent")
    if n == 0:
        return broadcast_to(eye(a.shape[-1], dtype=a.dtype), a.shape)
    if n < 0:
        a, n = inv(a), -n
    result = None
    while True:
        if n & 1:
            result = a if result is None else matmul(result, a)
        n >>= 1
        if not n:
            return result
        a = matmul(a, a)


def tensorinv(a, ind: int = 2):
    """The inverse of a under tensordot over its first `ind` axes. Raises ShapeError, ArgumentError.

    >>> a = hnp.eye(4).reshape(2, 2, 4)
    >>> hnp.linalg.tensorinv(a, ind=2).shape
    (4, 2, 2)
    """
    a, ind = as_operand(a, "tensorinv"), whole_number(ind, "tensorinv", "ind")
    if ind <= 0:
        raise ArgumentError("tensorinv takes a positive ind", f"{ind}", "name how many axes are the rows")
    lead, tail = a.shape[:ind], a.shape[ind:]
    size = int(np.prod(lead, dtype=int))
    if size != np.prod(tail, dtype=int):
        raise ShapeError(
            f"tensorinv takes an array whose first {ind} axes hold as many elements as the others",
            f"{a._shape!r}",
            "check ind",
        )
    return reshape(inv(reshape(a, (size, size))), tail + lead)


def tensorsolve(a, b, axes=None):
    """x with tensordot(a, x, x.ndim) = b. axes: axes of a that are moved to its end first. Raises ShapeError.

    >>> hnp.linalg.tensorsolve(hnp.eye(4).reshape(2, 2, 4), hnp.ones((2, 2))).shape
    (4,)
    """
    a, b = as_operand(a, "tensorsolve"), as_operand(b, "tensorsolve")
    if axes is not None:
        moved = [canonical_axis(k, a.ndim, "tensorsolve") for k in axes]
        a = transpose(a, [k for k in range(a.ndim) if k not in moved] + moved)
    tail = a.shape[b.ndim :]
    if a.shape[: b.ndim] != b.shape or np.prod(tail, dtype=int) != b.size:
        raise ShapeError(
            "tensorsolve takes an array that begins with the sizes of the right side and holds as many after them",
            f"{a._shape!r} and {b._shape!r}",
            "check axes",
        )
    return reshape(solve(reshape(a, (b.size, b.size)), ravel(b)), tail)


# --- norms --------------------------------------------------------------------------------------------------------


def norm(x, ord=None, axis=None, keepdims: bool = False):
    """The norm of vectors (one axis) or matrices (two axes).

    ord of vectors: None or 2 (Euclidean), inf, -inf, 0 (nonzero elements), or any p; of matrices: None or 'fro',
    'nuc' (sum of the singular values), 1, -1 (columns), inf, -inf (rows), 2, -2 (singular values). Without axis and ord
    the flattened array is one vector. Raises ShapeError, ArgumentError, DTypeError.

    >>> hnp.linalg.norm(hnp.array([3.0, 4.0]))
    Array(5., dtype=float32)
    >>> hnp.linalg.norm(hnp.array([[3.0, 4.0], [5.0, 12.0]]), axis=1)
    Array([ 5., 13.], dtype=float32)
    """
    x = to_inexact(x, "norm")
    if axis is None and ord is None:
        return _length(x, tuple(range(x.ndim)), keepdims)
    axes = canonical_axes(axis, x.ndim, "norm")
    if len(axes) == 1:
        return _vector(x, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix(x, ord, axes, keepdims)
    raise ShapeError(
        "norm takes one axis for vectors or two for matrices", f"{len(axes)} axes of {x._shape!r}", "name one or two"
    )


def vector_norm(x, /, *, axis=None, keepdims: bool = False, ord=2):
    """The norm of vectors along an axis, several axes (as one vector) or all of them.

    ord: 2 by default, inf, -inf, 0 (elements that are not 0) or any p. Raises ShapeError, ArgumentError, DTypeError.

    >>> hnp.linalg.vector_norm(hnp.array([3.0, -4.0]), ord=1)
    Array(7., dtype=float32)
    """
    x = to_inexact(x, "vector_norm")
    return _vector(x, ord, canonical_axes(axis, x.ndim, "vector_norm"), keepdims)


def matrix_norm(x, /, *, keepdims: bool = False, ord="fro"):
    """The norm of matrices (the last two axes): ord 'fro', 'nuc', 1, -1, 2, -2, inf or -inf. Raises ShapeError.

    >>> hnp.linalg.matrix_norm(hnp.array([[3.0, 0.0], [0.0, 4.0]]))
    Array(5., dtype=float32)
    """
    x = matrices(to_inexact(x, "matrix_norm"), "matrix_norm")
    return _matrix(x, ord, (x.ndim - 2, x.ndim - 1), keepdims)


def _squares(x):
    return lax.real(x * lax.conj(x)) if x.dtype in COMPLEX else lax.square(x)


def _length(x, axes, keepdims):
    return lax.sqrt(reductions.sum(_squares(x), axis=axes, keepdims=keepdims))


def _vector(x, order, axes, keepdims):
    if order is None or order == 2:
        return _length(x, axes, keepdims)
    if isinstance(order, str):
        raise ArgumentError("the norm of a vector takes a number as ord", f"{order!r}", "'fro' and 'nuc' take two axes")
    size = lax.abs(x)
    if order == math.inf:
        return reductions.max(size, axis=axes, keepdims=keepdims, initial=0 if not x.size else None)
    if order == -math.inf:
        return reductions.min(size, axis=axes, keepdims=keepdims, initial=math.inf if not x.size else None)
    if order == 0:
        return reductions.sum(size != 0, axis=axes, keepdims=keepdims, dtype=size.dtype)
    if order == 1:
        return reductions.sum(size, axis=axes, keepdims=keepdims)
    power = reductions.sum(size**order, axis=axes, keepdims=keepdims)
    return power ** (1.0 / order)


_SUMS = {1: (0, True), -1: (0, False), math.inf: (1, True), -math.inf: (1, False)}


def _matrix(x, order, axes, keepdims):
    if order is None or order == "fro":
        return _length(x, axes, keepdims)
    row, column = axes
    if row == column:
        raise ShapeError("a matrix norm takes two different axes", f"axes {axes}", "name two axes")
    if order in _SUMS:
        which, largest = _SUMS[order]
        summed, kept = axes if which == 0 else axes[::-1]
        sums = reductions.sum(lax.abs(x), axis=summed, keepdims=True)
        extreme = reductions.max if largest else reductions.min
        result = extreme(sums, axis=kept, keepdims=True)
        return result if keepdims else squeeze(result, axis=axes)
    if order in (2, -2, "nuc"):
        s = svdvals(moveaxis(x, axes, (-2, -1)))
        if order == "nuc":
            result = reductions.sum(s, axis=-1)
        else:
            result = (reductions.max if order == 2 else reductions.min)(s, axis=-1)
        return expand_dims(result, axes) if keepdims else result
    raise ArgumentError(
        "the norm of a matrix takes ord 'fro', 'nuc', 1, -1, 2, -2, inf or -inf", f"{order!r}", "choose one of them"
    )


# --- functions of the Array API extension that differ from the main namespace -------------------------------------


def cross(x1, x2, /, *, axis: int = -1):
    """The cross product of vectors of size 3 along an axis. Raises ShapeError, DTypeError.

    >>> hnp.linalg.cross(hnp.array([1, 0, 0]), hnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    a, b = as_operand(x1, "cross"), as_operand(x2, "cross")
    for x in (a, b):
        if x.shape[canonical_axis(axis, x.ndim, "cross")] != 3:
            raise ShapeError("cross takes vectors of size 3", f"{a._shape!r} and {b._shape!r}", "check the axis")
    return general(a, b, axis=axis)


def outer(x1, x2, /):
    """The products of all elements of two vectors. Raises ShapeError, DTypeError.

    >>> hnp.linalg.outer(hnp.array([1, 2]), hnp.array([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int32)
    """
    a, b = as_operand(x1, "outer"), as_operand(x2, "outer")
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError("outer takes two vectors", f"{a._shape!r} and {b._shape!r}", "use hnp.outer, which flattens")
    return products.outer(a, b)


def diagonal(x, /, *, offset: int = 0):
    """The diagonals of matrices (the last two axes). Raises ShapeError.

    >>> hnp.linalg.diagonal(hnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    return diagonals.diagonal(matrices(x, "diagonal"), offset, -2, -1)


def trace(x, /, *, offset: int = 0, dtype=None):
    """The sums of the diagonals of matrices (the last two axes). Raises ShapeError.

    >>> hnp.linalg.trace(hnp.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]))
    Array([ 5, 13], dtype=int32)
    """
    return diagonals.trace(matrices(x, "trace"), offset, -2, -1, dtype=dtype)

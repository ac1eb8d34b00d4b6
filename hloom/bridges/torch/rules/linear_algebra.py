"""Linear algebra: products and factorizations of matrices, systems of equations, eigenvalues. Matrices are the last two
dimensions.

Derivatives use the factors of the forward: these have to equal torch's. Ops ending in `_ex` return
LAPACK's `info`, s32, for each matrix: 0, or the number of the first pivot that is zero (LU) or not positive (Cholesky).
torch raises its errors from it.
"""

from __future__ import annotations

import numpy as np

import hloom.numpy as hnp
import hloom.scipy.linalg as hsl
from hloom import lax
from hloom.bridges.torch.dtypes import F32, convert, operand
from hloom.bridges.torch.table import rule
from hloom.errors import UnsupportedError
from hloom.ir.types import COMPLEX, DTYPES, INEXACT, NARROW_FLOATS, real_dtype

S32 = DTYPES["s32"]


# --- products ---


def product(x, y):
    """x y, for narrow floats in f32, so that an addend is rounded together with the product."""
    if x.dtype in NARROW_FLOATS:
        return hnp.matmul(x, y, preferred_element_type=F32)
    return hnp.matmul(x, y)


def _of_one_dtype(*operands) -> None:
    """Raises UnsupportedError for operands of several dtypes: torch computes the op then, and refuses it."""
    if len({x.dtype for x in operands}) > 1:
        raise UnsupportedError(
            "a product", f"operands of dtypes {', '.join(str(x.dtype) for x in operands)}", "convert them to one dtype"
        )


@rule("mm.default", "bmm.default", "matmul.default")
def mm(x, y):
    _of_one_dtype(x, y)
    return hnp.matmul(x, y)


@rule("mv.default", "dot.default")
def mv(x, y):
    _of_one_dtype(x, y)
    return hnp.matmul(x, y)


def _scaled(x, factor):
    return x if factor == 1 else x * operand(factor if x.dtype in INEXACT else int(factor), x.dtype)


@rule("_int_mm.default")
def int_mm(x, y):
    """The product of s8 matrices in s32."""
    return hnp.matmul(x, y, preferred_element_type=S32)


@rule("_weight_int8pack_mm.default")
def weight_int8pack_mm(x, weight, scales):
    """x weight^T with a scale for each row of the weight, which is s8."""
    return product(x, _transposed(convert(weight, x.dtype))) * convert(scales, F32)


@rule("addmm.default", "baddbmm.default", "addmv.default")
def addmm(bias, x, y, *, beta=1, alpha=1):
    _of_one_dtype(bias, x, y)
    found = _scaled(product(x, y), alpha)
    return found if beta == 0 else found + _scaled(convert(bias, found.dtype), beta)


@rule("addr.default")
def addr(bias, x, y, *, beta=1, alpha=1):
    found = _scaled(hnp.outer(x, y), alpha)
    return found if beta == 0 else found + _scaled(bias, beta)


@rule("addbmm.default")
def addbmm(bias, x, y, *, beta=1, alpha=1):
    """The sum of the products of a batch."""
    _of_one_dtype(bias, x, y)
    found = _scaled(convert(hnp.sum(product(x, y), axis=0), x.dtype), alpha)
    return found if beta == 0 else found + _scaled(bias, beta)


@rule("_trilinear.default")
def trilinear(x, y, z, expand_x, expand_y, expand_z, sums, unroll_dim=1):
    """The products of three arrays, each with dimensions of 1 put in, summed over some dimensions."""
    rank = x.ndim + len(expand_x)
    letters = "abcdefghijklmnopqrstuvwxyz"[:rank]
    own = ["".join(c for k, c in enumerate(letters) if k not in missing) for missing in (expand_x, expand_y, expand_z)]
    kept = "".join(c for k, c in enumerate(letters) if k not in [d % rank for d in sums])
    return hnp.einsum(f"{','.join(own)}->{kept}", x, y, z)


# --- products of groups of rows, each with a matrix of its own: experts ---
#
# ends: for each group the number of rows up to its end, s32 or s64. Rows after the last group belong to none.

_BLOCK = 32  # rows of a group that are multiplied together
_FEW = 4  # rows for each matrix, up to which each row reads its matrix alone


def _bounded(ends, rows):
    """Ends that are within the rows, whatever the caller passed."""
    return hnp.clip(ends, operand(0, ends.dtype), operand(rows, ends.dtype))


def _starts(ends):
    return hnp.concatenate([hnp.zeros_like(ends[:1]), ends[:-1]])


def _group_of(positions, ends):
    """The number of the group that each position is in; the last one for positions after it."""
    behind = hnp.sum(hnp.expand_dims(positions, -1) >= ends, axis=-1, dtype=ends.dtype)
    return hnp.minimum(behind, operand(ends.shape[0] - 1, ends.dtype))


def _matrix(matrices, k):
    return lax.squeeze(lax.dynamic_slice_in_dim(matrices, k, 1), (0,))


def _rows_by_matrices(x, matrices, ends, contiguous: bool):
    """Each group of rows of x (s, k) by its matrix (g, k, n): (s, n), in f32 for narrow floats. Rows of no group are 0.

    contiguous: whether the matrices lie in memory as declared; otherwise as (g, n, k).
    """
    (s, k), (g, _, n) = x.shape, matrices.shape
    wide = F32 if x.dtype in NARROW_FLOATS else x.dtype
    if 0 in (s, k, g, n):
        return hnp.zeros((s, n), wide)
    ends = _bounded(ends, s)
    lying = matrices if contiguous else _transposed(matrices)
    number = hnp.arange(s, dtype=ends.dtype)
    if s <= _FEW * g:  # the gather is a part of the sum's loop
        rows = hnp.expand_dims(convert(x, wide), -1 if contiguous else -2)
        found = hnp.sum(rows * convert(lying[_group_of(number, ends)], wide), axis=1 if contiguous else 2)
    else:
        found = _by_blocks(x, lying, ends, contiguous)[:s]
    return hnp.where(hnp.expand_dims(number < ends[-1], -1), convert(found, wide), operand(0, wide))


def _by_blocks(x, lying, ends, contiguous: bool):
    """The product of `_rows_by_matrices`, followed by rows of any values. A block that reaches into the next group has
    wrong rows there, which the next group's first block, later, replaces."""
    s, g, n = x.shape[0], lying.shape[0], lying.shape[2 if contiguous else 1]
    starts, one = _starts(ends), operand(1, ends.dtype)
    counts = hnp.maximum((ends - starts + operand(_BLOCK - 1, ends.dtype)) // _BLOCK, operand(0, ends.dtype))
    last = hnp.cumsum(counts, dtype=ends.dtype)
    block = hnp.arange(s // _BLOCK + g, dtype=ends.dtype)
    group = _group_of(block, last)
    row = starts[group] + (block - (last - counts)[group]) * _BLOCK
    x = hnp.pad(x, ((0, _BLOCK), (0, 0)))

    def step(state):
        at, found = state
        rows = lax.dynamic_slice_in_dim(x, row[at], _BLOCK)
        matrix = _matrix(lying, group[at])
        part = product(rows, matrix if contiguous else _transposed(matrix))
        return at + one, lax.dynamic_update_slice_in_dim(found, convert(part, x.dtype), row[at], 0)

    first = (operand(0, ends.dtype), hnp.zeros((s + _BLOCK, n), x.dtype))
    return lax.while_loop(lambda state: state[0] < last[-1], step, first)[1]


def _products_of_groups(x, y, ends):
    """x^T y of each group of rows of x (s, m) and y (s, n): (g, m, n), in f32 for narrow floats."""
    (s, m), n = x.shape, y.shape[1]
    wide = F32 if x.dtype in NARROW_FLOATS else x.dtype
    if 0 in (s, m, n, ends.shape[0]):
        return hnp.zeros((ends.shape[0], m, n), wide)
    ends = _bounded(ends, s)
    x, y = (hnp.pad(v, ((0, _BLOCK), (0, 0))) for v in (x, y))
    inside = hnp.arange(_BLOCK, dtype=ends.dtype)

    def rows(v, start, end):
        own = hnp.expand_dims(start + inside < end, -1)
        return hnp.where(own, lax.dynamic_slice_in_dim(v, start, _BLOCK), operand(0, v.dtype))

    def group(_, bounds):
        start, end = bounds

        def step(state):
            at, total = state
            return at + _BLOCK, total + product(_transposed(rows(x, at, end)), rows(y, at, end))

        return None, lax.while_loop(lambda state: state[0] < end, step, (start, hnp.zeros((m, n), wide)))[1]

    return lax.scan(group, None, (_starts(ends), ends))[1]


@rule("_grouped_mm.default", lies=1)
def grouped_mm(x, y, offs=None, bias=None, out_dtype=None, *, contiguous):
    """x y by groups: of the rows of x, of the columns of y, or of what is summed, where both are matrices."""
    _of_one_dtype(x, y)
    if bias is not None:
        raise UnsupportedError("a product of groups", "a bias", "add the bias to the result")
    if offs is None:
        return product(x, y)
    if y.ndim == 3:
        return _rows_by_matrices(x, y, offs, contiguous)
    if x.ndim == 3:
        return _transposed(_rows_by_matrices(_transposed(y), _transposed(x), offs, False))
    return _products_of_groups(_transposed(x), y, offs)


@rule("transformers::grouped_mm_fallback.default", lies=1)
def library_grouped_mm(rows, matrices, offs, *, contiguous):
    """torch._grouped_mm in any dtype, which `transformers` has where torch's is of bf16 only."""
    _of_one_dtype(rows, matrices)
    return _rows_by_matrices(rows, matrices, offs, contiguous)


@rule("transformers::grouped_mm_fallback_backward.default", lies=1)
def library_grouped_mm_backward(rows, matrices, offs, grad, *, contiguous):
    _of_one_dtype(rows, matrices, grad)
    of_rows = _rows_by_matrices(grad, _transposed(matrices), offs, not contiguous)
    return of_rows, _products_of_groups(rows, grad, offs)


# --- parts of matrices, triangular systems ---


def _transposed(x):
    return hnp.swapaxes(x, -1, -2)


def _adjoint(x):
    return hnp.conj(_transposed(x))


def _triangle(x, upper: bool):
    return hnp.triu(x) if upper else hnp.tril(x)


def _solved(a, b, *, upper: bool, left: bool = True, unit: bool = False, adjoint: bool = False):
    """x with op(a) x = b or x op(a) = b for a triangular a; batches are broadcast against each other."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (hnp.broadcast_to(v, (*batch, *v.shape[-2:])) for v in (a, b))
    return lax.linalg.triangular_solve(
        a, b, left_side=left, lower=not upper, unit_diagonal=unit, transpose_a=adjoint, conjugate_a=adjoint
    )


# --- Cholesky ---


def _first_failure(x):
    """The number, from 1, of the first leading minor of each matrix that is not positive; 0 where all are."""
    n = x.shape[-1]
    numbers = lax.iota(S32, n)

    def step(k, state):
        x, info = state
        row = lax.dynamic_index_in_dim(x, k, x.ndim - 2, keepdims=False)
        pivot = hnp.real(lax.dynamic_index_in_dim(row, k, row.ndim - 1, keepdims=False))
        fails = hnp.logical_not(pivot > 0)
        info = hnp.where((info == 0) & fails, convert(k, S32) + operand(1, S32), info)
        pivot = hnp.where(fails, operand(1, pivot.dtype), pivot)
        row = hnp.where(numbers > k, row, operand(0, row.dtype))
        change = hnp.expand_dims(hnp.conj(row), -1) * hnp.expand_dims(row, -2)
        return x - change / convert(pivot, x.dtype)[..., None, None], info

    start = hnp.tril(x, -1)
    diagonal = hnp.where(hnp.eye(n, dtype=bool), x, operand(0, x.dtype))
    return lax.fori_loop(0, n, step, (start + _adjoint(start) + diagonal, lax.full(x.shape[:-2], 0, S32)))[1]


def _cholesky(x, upper: bool):
    """(the factor, info)."""
    if not x.size:
        return x, lax.full(x.shape[:-2], 0, S32)
    lower = lax.linalg.cholesky(_adjoint(x) if upper else x, symmetrize_input=False)
    fails = hnp.any(hnp.isnan(hnp.real(lower)))
    info = lax.cond(fails, _first_failure, lambda x: lax.full(x.shape[:-2], 0, S32), _adjoint(x) if upper else x)
    lower = hnp.tril(lower)
    return _adjoint(lower) if upper else lower, info


@rule("linalg_cholesky_ex.default", checks=True)
def cholesky_ex(x, *, upper=False, check_errors=False, check):
    factor, info = _cholesky(x, upper)
    if check_errors:
        check(info, "torch.linalg.cholesky_ex", is_matrix=x.ndim == 2)
    return factor, info


@rule("cholesky.default", checks=True)
def cholesky(x, upper=False, *, check):
    factor, info = _cholesky(x, upper)
    check(info, "cholesky", is_matrix=x.ndim == 2)
    return factor


@rule("_linalg_check_errors.default", checks=True)
def check_errors(info, name, *, is_matrix, check):
    check(info, name, is_matrix=is_matrix)


@rule("cholesky_solve.default", "_cholesky_solve_helper.default", result=True)
def cholesky_solve(b, factor, upper=False, *, result):
    if not b.size:
        return lax.full(result.dims, 0, b.dtype)
    return _solved(factor, _solved(factor, b, upper=upper, adjoint=upper), upper=upper, adjoint=not upper)


@rule("cholesky_inverse.default")
def cholesky_inverse(factor, upper=False):
    if not factor.size:
        return factor
    unit = hnp.eye(factor.shape[-1], dtype=factor.dtype)
    return _solved(factor, _solved(factor, unit, upper=upper, adjoint=upper), upper=upper, adjoint=not upper)


# --- LU ---


def _lu(x):
    """(factors, pivots from 1, the order of the rows, info)."""
    if not x.size:
        count = min(x.shape[-2:])
        rows = hnp.broadcast_to(lax.iota(S32, x.shape[-2]), x.shape[:-1])
        pivots = hnp.broadcast_to(lax.iota(S32, count) + operand(1, S32), (*x.shape[:-2], count))
        return x, pivots, rows, lax.full(x.shape[:-2], 0, S32)
    factors, pivots, order = lax.linalg.lu(x)
    diagonal = hnp.diagonal(factors, axis1=-2, axis2=-1)
    zero = hnp.equal(diagonal, operand(0, diagonal.dtype))
    info = hnp.where(hnp.any(zero, axis=-1), convert(hnp.argmax(zero, axis=-1), S32) + operand(1, S32), operand(0, S32))
    return factors, pivots + operand(1, S32), order, info


def _without_pivots(pivot: bool) -> None:
    if not pivot:
        raise UnsupportedError(
            "an LU factorization without exchanges of rows",
            "pivot=False",
            "leave pivot out: torch on the CPU has none",
            "",
        )


@rule("linalg_lu_factor_ex.default", checks=True)
def lu_factor_ex(x, *, pivot=True, check_errors=False, check):
    _without_pivots(pivot)
    factors, pivots, _, info = _lu(x)
    if check_errors:
        check(info, "torch.linalg.lu_factor_ex", is_matrix=x.ndim == 2)
    return factors, pivots, info


def _permutation(order):
    """The matrix P with A = P L U, of the order of A's rows in L U."""
    rows = lax.iota(order.dtype, order.shape[-1])
    return hnp.equal(hnp.expand_dims(rows, -1), hnp.expand_dims(order, -2))


def _unpacked(factors):
    """(L, U) of factors (..., m, n)."""
    count = min(factors.shape[-2:])
    left = hnp.tril(factors[..., :, :count], -1) + hnp.eye(factors.shape[-2], count, dtype=factors.dtype)
    return left, hnp.triu(factors[..., :count, :])


@rule("linalg_lu.default")
def lu(x, *, pivot=True):
    _without_pivots(pivot)
    factors, _, order, _ = _lu(x)
    return convert(_permutation(order), x.dtype), *_unpacked(factors)


@rule("lu_unpack.default", result=True)
def lu_unpack(factors, pivots, unpack_data=True, unpack_pivots=True, *, result):
    empty = [lax.full(shape.dims, 0, shape.dtype) for shape in result]
    left, right = _unpacked(factors) if unpack_data else empty[1:]
    if not unpack_pivots or not empty[0].size:
        return empty[0], left, right
    order = lax.linalg.lu_pivots_to_permutation(pivots - operand(1, pivots.dtype), factors.shape[-2])
    return convert(_permutation(order), factors.dtype), left, right


def _with_factors(factors, order, b, adjoint: bool = False):
    """x with A x = b, or A^H x = b, of A's factors and the order of its rows."""
    batch = np.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    b = hnp.broadcast_to(b, (*batch, *b.shape[-2:]))
    order = hnp.broadcast_to(order, (*batch, order.shape[-1]))
    if not adjoint:
        b = hnp.take_along_axis(b, hnp.expand_dims(order, -1), axis=-2)
        return _solved(factors, _solved(factors, b, upper=False, unit=True), upper=True)
    x = _solved(factors, _solved(factors, b, upper=True, adjoint=True), upper=False, unit=True, adjoint=True)
    return hnp.take_along_axis(x, hnp.expand_dims(hnp.argsort(order, axis=-1), -1), axis=-2)


@rule("linalg_lu_solve.default", result=True)
def lu_solve(factors, pivots, b, *, left=True, adjoint=False, result):
    if not b.size or not factors.size:
        return lax.full(result.dims, 0, b.dtype)
    order = lax.linalg.lu_pivots_to_permutation(pivots - operand(1, pivots.dtype), factors.shape[-1])
    if left:
        return _with_factors(factors, order, b, adjoint)
    return _adjoint(_with_factors(factors, order, _adjoint(b), not adjoint))


@rule("_linalg_solve_ex.default", checks=True, result=True)
def solve_ex(a, b, *, left=True, check_errors=False, check, result):
    factors, pivots, order, info = _lu(a)
    if check_errors:
        check(info, "torch.linalg.solve_ex", is_matrix=a.ndim == 2)
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    right = hnp.expand_dims(b, -1) if vector else b
    if not right.size:
        found = lax.full(result[0].dims, 0, a.dtype)
    elif left:
        found = _with_factors(factors, order, right)
    else:
        found = _adjoint(_with_factors(factors, order, _adjoint(right), True))
    return lax.reshape(found, result[0].dims), factors, pivots, info


@rule("linalg_inv_ex.default", checks=True)
def inv_ex(x, *, check_errors=False, check):
    factors, _, order, info = _lu(x)
    if check_errors:
        check(info, "torch.linalg.inv_ex", is_matrix=x.ndim == 2)
    if not x.size:
        return x, info
    return _with_factors(factors, order, hnp.eye(x.shape[-1], dtype=x.dtype)), info


def _sign_of_order(pivots):
    """1 or -1 for an even or odd number of exchanges of rows."""
    rows = lax.iota(pivots.dtype, pivots.shape[-1]) + operand(1, pivots.dtype)
    moved = hnp.sum(convert(hnp.not_equal(pivots, rows), S32), axis=-1)
    return operand(1, S32) - operand(2, S32) * (moved % operand(2, S32))


def _factors_of_det(x, contiguous: bool):
    """(factors, pivots): of the transposed matrix where ATen takes that one, which derivatives rely on."""
    return _lu(_transposed(x) if contiguous and x.dtype not in COMPLEX else x)[:2]


@rule("_linalg_det.default", lies=0)
def det(x, *, contiguous):
    factors, pivots = _factors_of_det(x, contiguous)
    diagonal = hnp.diagonal(factors, axis1=-2, axis2=-1)
    return hnp.prod(diagonal, axis=-1) * convert(_sign_of_order(pivots), x.dtype), factors, pivots


@rule("_linalg_slogdet.default", lies=0)
def slogdet(x, *, contiguous):
    factors, pivots = _factors_of_det(x, contiguous)
    diagonal = hnp.diagonal(factors, axis1=-2, axis2=-1)
    sign = hnp.prod(hnp.sign(diagonal), axis=-1) * convert(_sign_of_order(pivots), x.dtype)
    return sign, hnp.sum(hnp.log(hnp.abs(diagonal)), axis=-1), factors, pivots


# --- triangular systems ---


@rule("linalg_solve_triangular.default", result=True)
def solve_triangular(a, b, *, upper, left=True, unitriangular=False, result):
    if not b.size:
        return lax.full(result.dims, 0, b.dtype)
    return _solved(a, b, upper=upper, left=left, unit=unitriangular)


@rule("triangular_solve.default", result=True)
def triangular_solve(b, a, upper=True, transpose=False, unitriangular=False, *, result):
    given = hnp.broadcast_to(a, result[1].dims)
    if transpose:
        a, upper = _transposed(a), not upper
    return solve_triangular(a, b, upper=upper, unitriangular=unitriangular, result=result[0]), given


# --- QR ---


@rule("linalg_qr.default", result=True)
def qr(x, mode="reduced", *, result):
    if not x.size:
        return hnp.broadcast_to(hnp.eye(*result[0].dims[-2:], dtype=x.dtype) if mode == "complete" else
                                operand(0, x.dtype), result[0].dims), lax.full(result[1].dims, 0, x.dtype)  # fmt: skip
    q, r = lax.linalg.qr(x, full_matrices=mode == "complete")
    return lax.full(result[0].dims, 0, x.dtype) if mode == "r" else q, r


@rule("geqrf.default", result=True)
def geqrf(x, *, result):
    return lax.linalg.geqrf(x) if x.size else (x, lax.full(result[1].dims, 0, x.dtype))


@rule("linalg_householder_product.default")
def householder_product(x, tau):
    if not x.size:
        return x
    return lax.linalg.householder_product(x, tau)


@rule("ormqr.default")
def ormqr(x, tau, other, left=True, transpose=False):
    return lax.linalg.ormqr(x, tau, other, left=left, transpose=transpose) if other.size else other


# --- eigenvalues and singular values ---


@rule("_linalg_eigh.default", result=True)
def eigh(x, UPLO="L", compute_v=True, *, result):  # noqa: N803 - PyTorch's name
    if not x.size:
        return tuple(lax.full(shape.dims, 0, shape.dtype) for shape in result)
    vectors, values = lax.linalg.eigh(x, lower=UPLO.upper() == "L", symmetrize_input=False)
    return values, vectors if compute_v else lax.full(result[1].dims, 0, x.dtype)


@rule("linalg_eig.default", result=True)
def eig(x, *, result):
    if not x.size:
        return tuple(lax.full(shape.dims, 0, shape.dtype) for shape in result)
    return tuple(lax.linalg.eig(x, compute_left_eigenvectors=False))


@rule("_linalg_eigvals.default", "linalg_eigvals.default", result=True)
def eigvals(x, *, result):
    if not x.size:
        return lax.full(result.dims, 0, result.dtype)
    return lax.linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


def _identities(shape):
    return hnp.broadcast_to(hnp.eye(*shape.dims[-2:], dtype=shape.dtype), shape.dims)


@rule("_linalg_svd.default", result=True)
def svd(x, full_matrices=False, compute_uv=True, *, driver=None, result):
    nothing = [lax.full(shape.dims, 0, shape.dtype) for shape in result]
    if not x.size:
        return (_identities(result[0]), nothing[1], _identities(result[2])) if compute_uv else tuple(nothing)
    if not compute_uv:
        return nothing[0], lax.linalg.svd(x, compute_uv=False), nothing[2]
    return tuple(lax.linalg.svd(x, full_matrices=full_matrices))


@rule("linalg_pinv.atol_rtol_tensor")
def pinv(x, *, atol=None, rtol=None, hermitian=False):
    """V diag(1 / s) U^H of the singular values s above max(atol, rtol * the largest)."""
    if not x.size:
        return hnp.swapaxes(x, -1, -2)
    real = real_dtype(x.dtype)
    if rtol is None:
        rtol = operand(float(hnp.finfo(x.dtype).eps) * max(x.shape[-2:]), real)
        if atol is not None:
            rtol = hnp.where(atol > 0, operand(0, real), rtol)
    if hermitian:
        right, values = lax.linalg.eigh(x, symmetrize_input=False)
        left, size = right, hnp.abs(values)
    else:
        left, values, right = lax.linalg.svd(x, full_matrices=False)
        right, size = _adjoint(right), values
    limit = convert(rtol, real) * hnp.max(size, axis=-1)
    if atol is not None:
        limit = hnp.maximum(convert(atol, real), limit)
    kept = size > hnp.expand_dims(limit, -1)
    one = operand(1, real)
    inverse = hnp.where(kept, one / hnp.where(kept, values, one), operand(0, real))
    return hnp.matmul(right * convert(hnp.expand_dims(inverse, -2), x.dtype), _adjoint(left))


@rule("linalg_matrix_exp.default")
def matrix_exp(x):
    return hsl.expm(x) if x.size and x.shape[-1] > 1 else hnp.exp(x)

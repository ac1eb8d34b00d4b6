"""Derivatives of decompositions of matrices.

Sources: M. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation" (2008)
(eigenvalues, singular values); S. Walter and L. Lehmann, "Algorithmic differentiation of linear algebra functions"
(2010) (qr); J. Townsend, "Differentiating the singular value decomposition" (2016); F. de Hoog, R. Anderssen and
M. Lukas, "Differentiation of matrix functionals using triangular factorization" (2011) (lu).

Factors that are unique up to a phase (singular vectors, eigenvectors of hermitian matrices) have the tangent of one
smooth choice. For coinciding eigenvalues or singular values, the tangents of the vectors do not exist and are infinite.
"""

from __future__ import annotations

from hloom.ir.errors import DifferentiationError
from hloom.ir.ops.linalg.matrices import (
    S32,
    adjoint,
    call,
    columns,
    conjugate,
    diagonal_of,
    diagonal_part,
    dot,
    elements,
    hermitian,
    identity,
    imaginary,
    inverse_differences,
    lower_part,
    places,
    real,
    resized,
    rows,
    solve,
    upper_part,
)
from hloom.ir.types import COMPLEX, Shape


def _no_derivative(instruction, found: str, repair: str):
    return DifferentiationError(
        f"the derivative of {instruction.opcode} was asked for", found, repair, source=instruction.source
    )


def qr_jvp(build, instruction, primals, tangents):
    """With dA R^-1 = Q dW + ...: dW is skew, and determined by the part of Q^H dA R^-1 below the diagonal."""
    m, n = instruction.operands[0].dims[-2:]
    if instruction.attributes.get("full_matrices") and m > n:
        raise _no_derivative(
            instruction,
            f"full_matrices=True of a matrix {m} x {n}: the added columns of Q are not determined",
            "use the reduced form: mode='reduced' or full_matrices=False",
        )
    q, r, *rest = elements(build.primal)
    change = tangents[0]
    if rest:
        change = permuted(change, rest[0], of_columns=True)
    wide = m < n
    # The first columns of a wide matrix determine Q, and thus R.
    square = resized(r, m, m) if wide else r
    change_square = resized(change, m, m) if wide else change
    turned = solve(square, change_square, left_side=False, lower=False)
    inner = dot(adjoint(q), turned)
    below = lower_part(inner, strict=True)
    skew = below - adjoint(below)
    if inner.dtype in COMPLEX:
        skew = skew + imaginary(diagonal_part(inner))  # the diagonal of R is real
    d_q = dot(q, skew - inner) + turned
    d_r = dot(inner - skew, square) if not wide else dot(adjoint(d_q), dot(q, r)) + dot(adjoint(q), change)
    return [d_q, d_r, *[None] * len(rest)]


def permuted(a, permutation, of_columns: bool = False):
    """a[permutation, :], or a[:, permutation], by a product with a permutation matrix, which is linear and supports
    batches."""
    rank, size = len(a.dims), a.dims[-1 if of_columns else -2]
    dims = (*a.dims[:-2], size, size)
    # chosen[i, j] = (permutation[i] == j)
    order = permutation.broadcast(dims, range(rank - 1))
    number = a.numbers(Shape(S32, dims), rank - 1)
    chosen = order.compare("EQ", number).convert(a.dtype)
    if of_columns:
        return dot(a, chosen.transpose((*range(rank - 2), rank - 1, rank - 2)))
    return dot(chosen, a)


def lu_jvp(build, instruction, primals, tangents):
    """P dA = L M U: dL = L tril(M, -1), dU = triu(M) U, with L and U completed to square matrices by parts of the
    identity."""
    factors, _, permutation = elements(build.primal)
    m, n = factors.dims[-2:]
    change = permuted(tangents[0], permutation)
    left = lower_part(resized(factors, m, m), strict=True)
    left = left + identity(left)
    right = upper_part(resized(factors, n, n))
    if n > m:
        one = identity(right)
        right = right + one - resized(resized(one, m, m), n, n)
    middle = solve(left, change, unit_diagonal=True)
    middle = solve(right, middle, left_side=False, lower=False)
    d_left = dot(left, lower_part(middle, strict=True))
    d_right = dot(upper_part(middle), right)
    return [d_left + d_right, None, None]


def eigh_jvp(build, instruction, primals, tangents):
    """dw = diag(V^H dA V), dV = V (F o V^H dA V) with F[i, j] = 1 / (w[j] - w[i]) off the diagonal."""
    values, vectors = elements(build.primal)
    change = hermitian(tangents[0], bool(instruction.attributes.get("lower")))
    inner = dot(adjoint(vectors), dot(change, vectors))
    factor = inverse_differences(values, real(inner)).convert(inner.dtype)
    return [real(diagonal_of(inner)), dot(vectors, factor * inner)]


def eig_jvp(build, instruction, primals, tangents):
    """dw = diag(V^-1 dA V); dV = V (F o V^-1 dA V), then normalized to length 1 with a real largest component."""
    if instruction.attributes.get("left"):
        raise _no_derivative(
            instruction,
            "left eigenvectors",
            "ask for right eigenvectors only: those of the transposed matrix are the left ones",
        )
    (a,) = primals
    wide = instruction.shape.elements[0].dtype
    change = tangents[0].convert(wide)
    if instruction.attributes.get("right"):
        values, vectors = elements(build.primal)
    else:
        # The vectors are needed anyway.
        values, vectors = call(a, "eig", right=True)
    inner = general_solve(vectors, dot(change, vectors))
    d_values = diagonal_of(inner)
    if not instruction.attributes.get("right"):
        return [d_values]
    d_vectors = dot(vectors, inverse_differences(values, inner) * inner)
    # The tangent of v is unique up to a multiple of v. LAPACK's vectors have length 1 and a real largest component.
    along = real(conjugate(vectors) * d_vectors).sum((len(vectors.dims) - 2,))
    d_vectors = d_vectors - vectors * columns(along.convert(wide), vectors)
    largest, d_largest = _largest_component(vectors, d_vectors)
    turn = (d_largest.op("imag") / largest.op("real")).convert(wide)
    turn = turn * turn.like(1j)
    return [d_values, d_vectors - vectors * columns(turn, vectors)]


def _largest_component(vectors, d_vectors):
    """The component of largest magnitude in each column (the first of them), and its tangent."""
    rank = len(vectors.dims)
    size = vectors.op("abs")
    peak = size.reduce("maximum", 0, (rank - 2,))
    reached = size.compare("EQ", columns(peak, size))
    number = size.numbers(Shape(S32, size.dims), rank - 2)
    number = reached.where(number, number.like(vectors.dims[-2]))
    first = number.reduce("minimum", vectors.dims[-2], (rank - 2,))
    chosen = number.compare("EQ", columns(first, number))
    return (chosen.where(v, v.like(0)).sum((rank - 2,)) for v in (vectors, d_vectors))


def general_solve(a, b):
    """a^-1 b, by lu; linear in b."""
    factors, _, permutation = call(a, "lu")
    lower = solve(factors, permuted(b, permutation), unit_diagonal=True)
    return solve(factors, lower, lower=False)


def svd_jvp(build, instruction, primals, tangents):
    """dS = diag(U^H dA V); dU and dV from its other elements and from the component of dA outside of the ranges of U
    and V."""
    attributes = instruction.attributes
    (a,), (change,) = primals, tangents
    m, n = a.dims[-2:]
    if attributes.get("compute_uv"):
        if attributes.get("full_matrices") and m != n:
            raise _no_derivative(
                instruction,
                f"full_matrices=True of a matrix {m} x {n}: the added singular vectors are not determined",
                "pass full_matrices=False",
            )
        u, s, vh = elements(build.primal)
    else:
        u, s, vh = call(a, "svd", compute_uv=True)
    v = adjoint(vh)
    inner = dot(adjoint(u), dot(change, v))
    d_s = real(diagonal_of(inner))
    if not attributes.get("compute_uv"):
        return [d_s]
    scale = inner.dtype
    in_rows, in_columns = rows(s, real(inner)).convert(scale), columns(s, real(inner)).convert(scale)
    squared = s * s
    factor = inverse_differences(squared, real(inner)).convert(scale)
    inner_adjoint = adjoint(inner)
    turn_u = factor * (inner * in_columns + in_rows * inner_adjoint)
    turn_v = factor * (in_rows * inner + inner_adjoint * in_columns)
    positive = s.compare("GT", 0)
    inverse = positive.where(1 / positive.where(s, s.like(1)), s.like(0)).convert(scale)
    if scale in COMPLEX:
        turn_u = turn_u + imaginary(diagonal_part(inner)) * columns(inverse, inner)
    d_u, d_v = dot(u, turn_u), dot(v, turn_v)
    if m > n:
        outside = dot(change, v)
        outside = outside - dot(u, inner)
        d_u = d_u + outside * columns(inverse, outside)
    elif n > m:
        outside = dot(adjoint(change), u)
        outside = outside - dot(v, inner_adjoint)
        d_v = d_v + outside * columns(inverse, outside)
    return [d_u, d_s, adjoint(d_v)]


def householder_jvp(build, instruction, primals, tangents):
    """The product of the reflections I - tau v v^H, accumulated from last to first, and its tangent."""
    a, taus = primals
    d_a, d_taus = tangents
    *batch, m, n = a.dims
    count = taus.dims[-1]
    rank = len(a.dims)

    def column(x, k):
        """Column k below its diagonal."""
        whole = x.op("slice", slice=(*((0, d, 1) for d in batch), (0, m, 1), (k, k + 1, 1)))
        number = x.numbers(Shape(S32, whole.dims), rank - 2)
        return number.compare("GT", k).where(whole, whole.like(0)), number.compare("EQ", k)

    def scale(x, k):
        return x.op("slice", slice=(*((0, d, 1) for d in batch), (k, k + 1, 1))).reshape((*batch, 1, 1))

    product = places(a, "EQ").convert(a.dtype)
    change = product.like(0)
    for k in reversed(range(count)):
        below, at = column(a, k)
        v = at.where(below.like(1), below)
        tau = scale(taus, k)
        row = dot(adjoint(v), product)
        d_row = dot(adjoint(v), change)
        spread = tau.reshape(tuple(batch)).broadcast(row.dims, range(rank - 2))
        scaled = spread * row
        d_scaled = spread * d_row
        d_product = change
        if d_a is not None:
            d_v, _ = column(d_a, k)
            d_scaled = d_scaled + spread * dot(adjoint(d_v), product)
            d_product = d_product - dot(d_v, scaled)
        if d_taus is not None:
            d_tau = scale(d_taus, k).reshape(tuple(batch)).broadcast(row.dims, range(rank - 2))
            d_scaled = d_scaled + d_tau * row
        change = d_product - dot(v, d_scaled)
        product = product - dot(v, scaled)
    return change

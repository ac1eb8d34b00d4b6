"""Helpers of linear algebra entries: checks of matrices, loops over batches, and matrix algebra on Values.

A matrix is the last two dimensions of an array; leading dimensions are a batch of independent matrices. Derivative
rules are written with the functions on Values: `dot(a, b)`, `adjoint(a)`, `lower_part(a)`, ...
"""

from __future__ import annotations

import math

import numpy as np

from hloom.ir.build import Value
from hloom.ir.errors import DTypeError, ShapeError
from hloom.ir.op_table import No, op
from hloom.ir.ops.batching import batched_shape
from hloom.ir.ops.rules import conjugate, require_count, require_kind
from hloom.ir.spmd.factors import FactorRule, RuleBuilder, leading
from hloom.ir.types import COMPLEX, DTYPES, NARROW_FLOATS, Shape, TupleShape, real_dtype, result_shapes

S32 = DTYPES["s32"]
ON_HOST = No("LAPACK computes it on the host")
NOT_LINEAR = No("it is not linear")


def zero(like: Value) -> Value:
    """The scalar zero of the dtype of `like`."""
    return like.scalar(0)


# --- shape rules --------------------------------------------------------------------------------------------------


def require_lapack(name: str, shape, narrow: bool = False) -> None:
    """Elements of f32, f64, c64 or c128 (and f16, bf16 where `narrow`)."""
    require_kind(name, shape, ("float", "complex"))
    if not narrow and shape.dtype in NARROW_FLOATS:
        raise DTypeError(
            f"{name} takes f32, f64, c64 or c128 elements, as LAPACK does",
            f"{shape!r}",
            "convert the operand first with astype('f32')",
        )


def require_matrix(name: str, shape: Shape, what: str = "operand") -> None:
    if shape.rank < 2:
        raise ShapeError(
            f"{name} takes a matrix, or a batch of matrices, as its {what}",
            f"{shape!r}, of rank {shape.rank}",
            "reshape the operand to (..., rows, columns)",
        )


def require_square(name: str, shape: Shape, what: str = "operand") -> None:
    require_matrix(name, shape, what)
    if shape.dims[-1] != shape.dims[-2]:
        raise ShapeError(
            f"{name} takes a square matrix, or a batch of them, as its {what}",
            f"{shape!r}: {shape.dims[-2]} rows and {shape.dims[-1]} columns",
            "pass as many rows as columns",
        )


def one_matrix(name: str, operands, square: bool = False) -> Shape:
    """The checked shape of an op of one matrix."""
    require_count(name, operands, 1)
    require_lapack(name, operands[0])
    (require_square if square else require_matrix)(name, operands[0])
    return operands[0]


# --- references ---------------------------------------------------------------------------------------------------


def stack(array: np.ndarray, rank: int = 2) -> np.ndarray:
    """The array with all batch dimensions merged into the first; `rank` dimensions belong to one batch element."""
    lead = array.shape[: array.ndim - rank]
    return array.reshape(math.prod(lead), *array.shape[array.ndim - rank :])


def each(function, shape, *arrays, ranks=None):
    """function(one element of each array's batch) -> one array or a tuple of them, for every batch element, into
    arrays of `shape` (a Shape or TupleShape). The result is NaN (-1 for integers) for an element for which it raises
    LinAlgError, or with non-finite values, for which LAPACK might not terminate."""
    results = [np.empty(s.dims, s.dtype) for s in result_shapes(shape)]
    ranks = ranks or [2] * len(arrays)
    stacked = [stack(a, r) for a, r in zip(arrays, ranks, strict=True)]
    lead = arrays[0].ndim - ranks[0]
    views = [r.reshape(len(stacked[0]), *r.shape[lead:]) for r in results]
    for k in range(len(stacked[0])):
        try:
            with np.errstate(all="ignore"):
                found = function(*(a[k] for a in stacked))
        except (np.linalg.LinAlgError, ValueError):
            for view in views:
                view[k] = np.nan if view.dtype.kind in "fc" else -1
            continue
        for view, value in zip(views, found if isinstance(shape, TupleShape) else (found,), strict=True):
            view[k] = value
    return tuple(results) if isinstance(shape, TupleShape) else results[0]


def all_or_each(function, shape, *arrays):
    """function on the whole batch (NumPy's loops over LAPACK), or on one element at a time if one of them fails."""
    try:
        with np.errstate(all="ignore"):
            found = function(*arrays)
    except np.linalg.LinAlgError:
        with np.errstate(all="ignore"):
            return each(function, shape, *arrays)
    if isinstance(shape, TupleShape):
        return tuple(
            np.asarray(f).astype(s.dtype, copy=False) for f, s in zip(found, result_shapes(shape), strict=True)
        )
    return np.asarray(found).astype(shape.dtype, copy=False)


def exponents(*arrays: np.ndarray) -> np.ndarray:
    """The power of two that scales the largest element of matrices to about 1, per batch element: integers (..., 1, 1).
    0 for zero and non-finite matrices."""
    parts = [p for a in arrays for p in ((a.real, a.imag) if a.dtype.kind == "c" else (a,))]
    largest = np.stack([np.abs(p).max(axis=(-1, -2), keepdims=True, initial=0) for p in parts]).max(axis=0)
    return np.where(np.isfinite(largest), np.frexp(np.where(np.isfinite(largest), largest, 0))[1], 0)


def raising(*arrays: np.ndarray) -> np.ndarray:
    """The power of two that scales matrices whose inverse pivots might overflow, 0 for all others."""
    low = np.finfo(arrays[0].dtype).minexp // 2
    power = exponents(*arrays)
    return np.where(power < low, -low, 0)


def times_power(a: np.ndarray, power: np.ndarray) -> np.ndarray:
    """a * 2**power, exact unless it overflows or becomes denormal."""
    if not power.any():
        return a
    if a.dtype.kind != "c":
        with np.errstate(all="ignore"):
            return np.ldexp(a, power)
    result = np.empty(np.broadcast_shapes(a.shape, np.shape(power)), a.dtype)
    with np.errstate(all="ignore"):
        result.real, result.imag = np.ldexp(a.real, power), np.ldexp(a.imag, power)
    return result


# --- batching -----------------------------------------------------------------------------------------------------


def library_batch(build, instruction, operands, mapped):
    """All operands get the new dimension: these ops support any number of leading batch dimensions."""
    first, *rest = build.spread_all(operands, mapped)
    if isinstance(instruction.shape, TupleShape):
        return elements(first.op(instruction.opcode, *rest, **instruction.attributes))
    shape = batched_shape(build, instruction)
    return first.op(instruction.opcode, *rest, shape=shape, **instruction.attributes)


def matrix_factors(core: int = 2, columns: int | None = None, dimension: int = -1):
    """The factor rule of an op on matrices: batch dimensions pass through, those of a matrix are needed as a whole.

    core: the rank of one batch element of the first operand. columns: an operand whose `dimension` (counted from the
    last one) passes through to the result, such as independent right sides.
    """

    def factors(instruction) -> FactorRule:
        batch = len(instruction.operands[0].shape.dims) - core
        if columns is None:
            return leading(instruction, batch)
        rule = RuleBuilder(instruction)
        for d in (*range(batch), len(instruction.shape.dims) + dimension):
            rule.add({k: d for k in range(len(rule.operands)) if d < batch or k == columns}, {0: d})
        return rule.finish()

    return factors


MATRICES = matrix_factors()


def library_op(name: str, infer, reference, jvp, **parts) -> None:
    """Declares an op on matrices that LAPACK computes on the host, not linear unless it has a `transpose`."""
    defaults = {"code": ON_HOST, "transpose": NOT_LINEAR, "batch": library_batch, "factors": MATRICES}
    op(name, family="library", infer=infer, reference=reference, jvp=jvp, **{**defaults, **parts})


# --- algebra of matrices on Values --------------------------------------------------------------------------------


def elements(value: Value) -> list[Value]:
    """The elements of a tuple."""
    return [value.op("get-tuple-element", index=k) for k in range(len(value.instruction.shape.elements))]


def call(first: Value, opcode: str, *others: Value, **attributes) -> list[Value]:
    """The elements of an op with a tuple result."""
    return elements(first.op(opcode, *others, **attributes))


def dot(a: Value, b: Value) -> Value:
    """The product of matrices with the same batch dimensions."""
    rank = len(a.dims)
    batch = tuple(range(rank - 2))
    attributes: dict[str, tuple[int, ...]] = {"lhs_contracting_dims": (rank - 1,), "rhs_contracting_dims": (rank - 2,)}
    if batch:
        attributes |= {"lhs_batch_dims": batch, "rhs_batch_dims": batch}
    return a.op("dot", b, **attributes)


def transposed(a: Value) -> Value:
    rank = len(a.dims)
    return a.transpose((*range(rank - 2), rank - 1, rank - 2))


def adjoint(a: Value) -> Value:
    return conjugate(transposed(a))


def real(a: Value) -> Value:
    return a.op("real") if a.dtype in COMPLEX else a


def imaginary(a: Value) -> Value:
    """i times the imaginary part, of the same dtype; of a complex Value."""
    part = a.op("imag")
    return part.like(0).op("complex", part)


def places(a: Value, direction: str, offset: int = 0) -> Value:
    """pred of the shape of a: the comparison of row + offset with column ('GE': on and below the diagonal)."""
    dims = a.dims[-2:]
    builder = a.builder
    row, column = (Value(a.builder, builder.emit("iota", shape=Shape(S32, dims), iota_dimension=k)) for k in (0, 1))
    if offset:
        row = row + offset
    mask = row.compare(direction, column)
    rank = len(a.dims)
    return mask if rank == 2 else mask.broadcast(a.dims, (rank - 2, rank - 1))


def lower_part(a: Value, strict: bool = False) -> Value:
    """The elements on and below the diagonal (only below, if strict), zero elsewhere."""
    return places(a, "GT" if strict else "GE").where(a, a.like(0))


def upper_part(a: Value, strict: bool = False) -> Value:
    return places(a, "LT" if strict else "LE").where(a, a.like(0))


def diagonal_part(a: Value) -> Value:
    """The elements on the diagonal, zero elsewhere."""
    return places(a, "EQ").where(a, a.like(0))


def diagonal_of(a: Value) -> Value:
    """The diagonal of square matrices, as vectors."""
    return diagonal_part(a).sum((len(a.dims) - 1,))


def half_lower(a: Value) -> Value:
    """The part below the diagonal, and half of the diagonal."""
    strict = lower_part(a, strict=True)
    return strict + diagonal_part(a) * 0.5


def identity(a: Value) -> Value:
    """Identity matrices of the shape of a."""
    return places(a, "EQ").convert(a.dtype)


def columns(vector: Value, like: Value) -> Value:
    """vector[..., j] in each row of a matrix of the shape of `like`."""
    rank = len(like.dims)
    return vector.broadcast(like.dims, (*range(rank - 2), rank - 1))


def rows(vector: Value, like: Value) -> Value:
    """vector[..., i] in each column of a matrix of the shape of `like`."""
    rank = len(like.dims)
    return vector.broadcast(like.dims, range(rank - 1))


def hermitian(a: Value, lower: bool) -> Value:
    """The hermitian matrix with this triangle of a, for ops that read one triangle only."""
    half = lower_part(a, strict=True) if lower else upper_part(a, strict=True)
    middle = diagonal_part(a)
    if a.dtype in COMPLEX:
        part = real(middle)
        middle = part.op("complex", part.like(0))
    return half + adjoint(half) + middle


def solve(a: Value, b: Value, **attributes) -> Value:
    """triangular-solve with HLO's defaults spelled out."""
    given = {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"} | attributes
    return a.op("triangular-solve", b, **given)


def inverse_differences(values: Value, like: Value) -> Value:
    """1 / (values[j] - values[i]) as a matrix of the shape of like, zero on its diagonal."""
    difference = columns(values, like) - rows(values, like)
    # The diagonal is filled before the division to avoid infinities there.
    off = places(difference, "NE")
    return off.where(1 / off.where(difference, difference.like(1)), difference.like(0))


def resized(a: Value, row_count: int, column_count: int) -> Value:
    """a with rows and columns truncated or zero-padded at the end."""
    m, n = a.dims[-2:]
    if (m, n) == (row_count, column_count):
        return a
    lead = ((0, 0, 0),) * (len(a.dims) - 2)
    return a.op("pad", zero(a), padding=(*lead, (0, row_count - m, 0), (0, column_count - n, 0)))


def real_shape(shape: Shape) -> Shape:
    return shape.with_dtype(real_dtype(shape.dtype))

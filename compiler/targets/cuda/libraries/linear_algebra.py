"""Linear algebra on GPUs: factorizations as routines of cuSOLVER and cuBLAS with ordinary ops around them.

A routine is a custom call with a `Routine` as its target. Its arrays are what the libraries read: a row-major array
(..., c, r) is a batch of column-major matrices of r rows and c columns. What is left for kernels (transposing, taking a
triangle, NaN where a factorization failed or an element was not finite) is said in ops, which fuse.

    pass "routines"                 cholesky, triangular-solve, solve, det, lu, qr, eigh, svd, ... become routines
    has_routine(instruction)        whether it takes an instruction

Routines and their results; M is the matrix of the operand, `info` has an s32 for each matrix, 0 where it went well:

    potrf/T             M -> factor in the triangle T ('U': M = U^H U, 'L': M = L L^H), the other left as it was; info
    trsm/STHD           A, B -> X of op(A) X = B (S 'L') or X op(A) = B ('R'); T: A's triangle; H: 'N', 'T' or 'C', what
                        op is; D: 'U' where the diagonal of A is taken for ones, else 'N'
    getrf               M -> L and U in one matrix; pivots, from 1; info
    getrs/H             what getrf made, pivots, B -> X of op(M) X = B (H as of trsm); info
    laswp               vectors of f64, pivots -> their elements exchanged as getrf exchanged rows
    geqrf               M -> R and the reflectors in one matrix; their factors; info
    orgqr               reflectors in as many columns as are wanted, factors -> Q; info
    syevd/T             M, of which T is read -> eigenvectors; eigenvalues, ascending; info
    gesvd/J             M with at least as many rows as columns -> U, values, V^H; info. J: 'S' or 'A', reduced or full;
                        'N': the values only
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloom.compiler.passes.walk import change_computations, replaced
from hloom.compiler.targets.cuda.simulator.routines import REFERENCES
from hloom.ir.build import Builder, Value, tuple_elements
from hloom.ir.module import Instruction, Module
from hloom.ir.ops import OPS
from hloom.ir.ops.linalg.matrices import (
    S32,
    adjoint,
    diagonal_of,
    lower_part,
    places,
    real_shape,
    resized,
    transposed,
    upper_part,
)
from hloom.ir.ops.programs.structure import HostFunction
from hloom.ir.types import COMPLEX, DTYPES, NARROW_FLOATS, Shape, TupleShape

NAME = "routines"


class Routine(HostFunction):
    """The target of a custom call that is a routine. name, options: of the list above; `function` computes it on the
    host, for the reference interpreter and for devices without the libraries."""

    name: str
    options: str
    method = None

    def __new__(cls, name: str, options: str = ""):
        made = super().__new__(cls, f"routine.{name}" + (f"/{options}" if options else ""))
        made.name, made.options = name, options
        made.function = lambda *arrays: REFERENCES[name](*arrays, *options)
        return made


def routine_of(instruction: Instruction) -> Routine | None:
    """The routine that an instruction is a call of."""
    target = instruction.attributes.get("custom_call_target") if instruction.opcode == "custom-call" else None
    return target if isinstance(target, Routine) else None


def has_routine(instruction: Instruction) -> bool:
    """Whether the pass makes routines of an instruction."""
    if instruction.opcode not in _EXPANSIONS or any(0 in operand.dims for operand in instruction.operands):
        return False
    return not (instruction.opcode == "qr" and instruction.attributes.get("pivoting"))


def routines(module: Module) -> Module:
    """Factorizations as calls of routines, with the ops around them."""
    return change_computations(module, lambda computation: replaced(computation, NAME, has_routine, _expand))


def _expand(builder: Builder, instruction: Instruction, _) -> Instruction | list[Instruction]:
    """What the instruction becomes, or the elements of the tuple that it does."""
    operands = [Value(builder, operand) for operand in instruction.operands]
    shape = {"shape": instruction.shape} if OPS[instruction.opcode].shaped else {}
    made = _EXPANSIONS[instruction.opcode](*operands, **instruction.attributes, **shape)
    return [value.instruction for value in made] if isinstance(made, list) else made.instruction


def _call(routine: Routine, operands: list[Value], *shapes: Shape) -> list[Value]:
    """The results of a routine."""
    shape = TupleShape(shapes) if len(shapes) > 1 else shapes[0]
    builder = operands[0].builder
    call = builder.emit("custom-call", *(o.instruction for o in operands), shape=shape, custom_call_target=routine)
    return [Value(builder, element) for element in tuple_elements(builder, call)]


def _batch(a: Value) -> tuple[int, ...]:
    return a.dims[:-2]


def _info(a: Value) -> Shape:
    return Shape(S32, _batch(a))


def _spread(flags: Value, like: Value) -> Value:
    """A pred of each matrix, for each of its elements."""
    return flags.broadcast(like.dims, range(len(flags.dims)))


def _nan_unless(flags: Value, value: Value) -> Value:
    return _spread(flags, value).where(value, value.like(np.nan))


def _finite(a: Value) -> Value:
    """pred of each matrix: whether all of its elements are finite."""
    parts = [a.op("real"), a.op("imag")] if a.dtype in COMPLEX else [a]
    rank = len(a.dims)
    found = [part.op("is-finite").reduce("and", True, (rank - 2, rank - 1)) for part in parts]
    return found[0] if len(found) == 1 else found[0].op("and", found[1])


def _cholesky(a: Value, lower=False) -> Value:
    # Row-major, the factor of the other triangle is the one that is wanted.
    factor, info = _call(Routine("potrf", "U" if lower else "L"), [a], a.shape, _info(a))
    triangle = lower_part(factor) if lower else upper_part(factor)
    went_well = info.compare("EQ", 0).op("and", _finite(triangle))
    return places(a, "GE" if lower else "LE").where(_nan_unless(went_well, triangle), a.like(0))


def _triangular_solve(
    a: Value, b: Value, left_side=False, lower=False, unit_diagonal=False, transpose_a="NO_TRANSPOSE"
):
    # op(A) X = B is X.T op(A.T) = B.T: the other side and the other triangle, nothing is moved.
    if b.dtype in NARROW_FLOATS:
        wide = _triangular_solve(a.convert("f32"), b.convert("f32"), left_side, lower, unit_diagonal, transpose_a)
        return wide.convert(b.dtype)
    how = {"NO_TRANSPOSE": "N", "TRANSPOSE": "T", "ADJOINT": "C"}[transpose_a]
    options = ("R" if left_side else "L") + ("U" if lower else "L") + how + ("U" if unit_diagonal else "N")
    (x,) = _call(Routine("trsm", options), [a, b], b.shape)
    return x


def _lu(a: Value) -> list[Value]:
    factors, pivots, _ = _factorized(transposed(a))
    return [transposed(factors), pivots - 1, _permutation(pivots, a.dims[-2]).convert(S32)]


def _factorized(a: Value) -> list[Value]:
    """getrf of the transposed matrix."""
    *batch, m, n = a.dims
    return _call(Routine("getrf"), [a], a.shape, Shape(S32, (*batch, min(m, n))), _info(a))


def _permutation(pivots: Value, size: int) -> Value:
    """The order of so many rows that exchanging them by pivots (from 1) gives."""
    batch = pivots.dims[:-1]
    shape = Shape(DTYPES["f64"], (*batch, size))
    rows = Value(pivots.builder, pivots.builder.emit("iota", shape=shape, iota_dimension=len(batch)))
    return _call(Routine("laswp"), [rows, pivots], rows.shape)[0]


def _pivots_to_permutation(pivots: Value, shape: Shape) -> Value:
    return _permutation(pivots.convert(S32) + 1, shape.dims[-1]).convert(shape.dtype)


def _solve(a: Value, b: Value) -> Value:
    # A is factorized as it lies there, that is transposed; an exact zero among the pivots is a failure.
    factors, pivots, info = _factorized(a)
    right = transposed(b)
    x, _ = _call(Routine("getrs", "T"), [factors, pivots, right], right.shape, _info(a))
    return _nan_unless(info.compare("EQ", 0), transposed(x))


def _det(a: Value) -> Value:
    factors, pivots, _ = _factorized(a)  # the transposed matrix has the same determinant
    rank = len(a.dims)
    own = Value(a.builder, a.builder.emit("iota", shape=pivots.shape, iota_dimension=rank - 2)) + 1
    diagonal = diagonal_of(factors)
    signed = pivots.compare("EQ", own).where(diagonal, -diagonal)  # each exchange of two rows changes the sign
    return signed.reduce("multiply", 1, (rank - 2,))


def _geqrf(a: Value) -> list[Value]:
    *batch, m, n = a.dims
    turned = transposed(a)
    shape = a.shape.with_dims((*batch, min(m, n)))
    packed, factors, _ = _call(Routine("geqrf"), [turned], turned.shape, shape, _info(a))
    return [transposed(packed), factors]


def _householder_product(a: Value, factors: Value) -> Value:
    turned = transposed(a)
    q, _ = _call(Routine("orgqr"), [turned, factors], turned.shape, _info(a))
    return transposed(q)


def _qr(a: Value, full_matrices=False, pivoting=False) -> list[Value]:
    m, n = a.dims[-2:]
    columns = m if full_matrices else min(m, n)
    packed, factors = _geqrf(a)
    return [_householder_product(resized(packed, m, columns), factors), upper_part(resized(packed, columns, n))]


def _eigh(a: Value, lower=False) -> list[Value]:
    finite = _finite(a)
    given = _spread(finite, a).where(a, a.like(0))  # numbers that are not finite may keep the library from returning
    vectors, values, info = _call(
        Routine("syevd", "U" if lower else "L"), [given], a.shape, real_shape(a.shape).with_dims(a.dims[:-1]), _info(a)
    )  # fmt: skip
    # The library sees the conjugate of a Hermitian matrix, whose eigenvectors are conjugated.
    went_well = finite.op("and", info.compare("EQ", 0))
    return [_nan_unless(went_well, values), _nan_unless(went_well, adjoint(vectors))]


def _svd(a: Value, full_matrices=False, compute_uv=False) -> list[Value]:
    *batch, m, n = a.dims
    k = min(m, n)
    finite = _finite(a)
    given = _spread(finite, a).where(a, a.like(0))
    tall = m >= n
    given = transposed(given) if tall else given  # cuSOLVER takes no more columns than rows: those of the transposed
    job = ("A" if full_matrices else "S") if compute_uv else "N"
    rows = max(m, n)
    u_shape = a.shape.with_dims((*batch, rows if full_matrices else k, rows))
    results = [u_shape, real_shape(a.shape).with_dims((*batch, k)), a.shape.with_dims((*batch, k, k)), _info(a)]
    if compute_uv:
        u, values, vh, info = _call(Routine("gesvd", job), [given], *results)
    else:
        values, info = _call(Routine("gesvd", job), [given], results[1], results[3])
    went_well = finite.op("and", info.compare("EQ", 0))
    if not compute_uv:
        return [_nan_unless(went_well, values)]
    u, vh = (transposed(u), transposed(vh)) if tall else (vh, u)
    return [_nan_unless(went_well, value) for value in (u, values, vh)]


_EXPANSIONS: dict[str, Callable[..., Value | list[Value]]] = {
    "cholesky": _cholesky,
    "triangular-solve": _triangular_solve,
    "solve": _solve,
    "det": _det,
    "lu": _lu,
    "lu-pivots-to-permutation": _pivots_to_permutation,
    "geqrf": _geqrf,
    "householder-product": _householder_product,
    "qr": _qr,
    "eigh": _eigh,
    "svd": _svd,
}

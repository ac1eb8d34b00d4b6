"""Custom calls of other libraries in JAX's programs, as ops: LAPACK's (`lapack_spotrf_ffi`, ...) and XLA's own.

Sources: the signatures in jaxlib/cpu/lapack_kernels (the FFI's attributes: characters as their ASCII codes, 1-based
pivots, and the status `info`, 0 for success), and XLA's custom calls Qr, LuDecomposition, Eigh, TopK, ApproxTopK. The
result of a batch element for which LAPACK fails is NaN, with info 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from hloom.ir.build import Builder, Value, tuple_elements
from hloom.ir.module import Computation, Instruction
from hloom.ir.types import COMPLEX, PRED, Shape


class Call(NamedTuple):
    """A custom call: the builder for its ops, its operands, its options, the shapes of its results, and the
    computations that it calls, `computation(k)`."""

    builder: Builder
    operands: tuple[Instruction, ...]
    options: dict
    shapes: Sequence[Shape]
    computation: Callable[[int], Computation] | None = None

    def emit(self, opcode: str, *operands: Instruction, shape=None, **attributes) -> list[Instruction]:
        """The results of an op of the table, by default on the call's operands."""
        made = self.builder.emit(opcode, *(operands or self.operands), shape=shape, **attributes)
        return tuple_elements(self.builder, made)

    def splat(self, k: int, value) -> Instruction:
        return self.builder.splat(value, self.shapes[k])

    def info(self) -> Instruction:
        return self.splat(-1, 0)

    def character(self, name: str, default: str = "") -> str:
        value = self.options.get(name, default)
        return chr(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)


def expand(target: str, call: Call) -> list[Instruction]:
    """The results of a custom call for which `is_library_call` holds, in ops of the table.

    Raises ValueError for options that the ops do not support, and the errors of the ops.
    """
    return _CALLS[target](call)


def is_library_call(target: str) -> bool:
    return target in _CALLS


def parse_options(text: str) -> dict:
    """The numbers and flags of `{mode = 86 : ui8, lower = true}` or its JSON equivalent."""
    words = {"true": True, "false": False}
    found = _OPTION.findall(text)
    return {key: words[value] if value in words else int(value) for key, value in found}


_OPTION = re.compile(r'(\w{1,60})\\?"?\s*[=:]\s*\\?"?(-?[0-9]{1,18}|true|false)\b', re.ASCII)


# --- LAPACK -------------------------------------------------------------------------------------------------------


def _potrf(call):
    return [*call.emit("cholesky", call.operands[0], lower=call.character("uplo", "L") == "L"), call.info()]


def _geqrf(call):
    return call.emit("geqrf", call.operands[0])


def _geqp3(call):
    """The factors of the columns in the order of the pivots: the second operand marks all of them as free."""
    a = call.operands[0]
    *batch, m, _ = a.shape.dims
    pivots = call.emit("qr", a, full_matrices=False, pivoting=True)[2]
    rank, count = len(a.shape.dims), len(batch)
    columns = call.emit("reshape", pivots, shape=pivots.shape.with_dims((*pivots.shape.dims, 1)))[0]
    (ordered,) = call.emit(
        "gather", a, columns, offset_dims=(rank - 2,), collapsed_slice_dims=(rank - 1,), start_index_map=(rank - 1,),
        operand_batching_dims=tuple(range(count)), start_indices_batching_dims=tuple(range(count)),
        index_vector_dim=count + 1, slice_sizes=(*[1] * count, m, 1),
    )  # fmt: skip
    packed, scales = call.emit("geqrf", ordered)
    return [packed, (Value(call.builder, pivots) + 1).instruction, scales]


def _orgqr(call):
    return call.emit("householder-product")


def _getrf(call):
    factors, pivots, _ = call.emit("lu", call.operands[0])
    return [factors, (Value(call.builder, pivots) + 1).instruction, call.info()]


def _syevd(call):
    values, vectors = call.emit("eigh", call.operands[0], lower=call.character("uplo", "L") == "L")
    return [vectors, values, call.info()]


def _gesdd(call):
    """mode: 'A' all singular vectors, 'S' as many as values, 'N' none, which are then zeros."""
    mode = call.character("mode", "A")
    if mode not in ("A", "S", "N"):
        raise ValueError(f"a singular value decomposition in mode '{mode}' writes over its operand, hloom's do not")
    found = call.emit("svd", call.operands[0], compute_uv=mode != "N", full_matrices=mode == "A")
    if mode == "N":
        found = [call.splat(2, 0), found[0], call.splat(3, 0)]
    u, s, vh = found
    return [call.operands[0], s, u, vh, call.info()]


def _geev(call):
    """For real matrices the eigenvalues' real and imaginary parts are two results. Vectors that are not requested are
    zeros."""
    a = call.operands[0]
    left, right = (call.character(f"compute_{side}", "V") == "V" for side in ("left", "right"))
    values, *vectors = call.emit("eig", a, left=left, right=right)
    parts = [values]
    if a.shape.dtype not in COMPLEX:
        parts = [*call.emit("real", values), *call.emit("imag", values)]
    first = len(parts)
    made = iter(vectors)
    sides = [next(made) if asked else call.splat(first + k, 0) for k, asked in enumerate((left, right))]
    return [*parts, *sides, call.info()]


def _diagonal(builder: Builder, a: Instruction, offset: int) -> Value:
    """Element (i, i + offset) of matrices, 0 if out of bounds."""
    dims = a.shape.dims
    *batch, n, _ = dims
    mask = builder.constant(np.eye(n, k=offset, dtype=bool), PRED)
    mask = builder.emit(
        "broadcast", mask, shape=Shape(PRED, dims), dimensions=(len(dims) - 2, len(dims) - 1)
    )  # fmt: skip
    kept = builder.emit("select", mask, a, builder.splat(0, a.shape))
    return Value(builder, kept).sum((len(dims) - 1,))


def _gees(call):
    """The Schur form. LAPACK's 2 x 2 blocks have equal diagonal elements, which are the real parts of the eigenvalues,
    and off-diagonal ones of opposite signs; the imaginary parts are +-sqrt(-b c)."""
    a = call.operands[0]
    if call.character("sort", "N") != "N":
        raise ValueError("eigenvalues in an order of their own: hloom's schur leaves them where they are")
    vectors = call.character("mode", "V") == "V"
    is_complex = a.shape.dtype in COMPLEX
    found = call.emit("schur", a, vectors=vectors, complex=is_complex)
    form = found[0]
    basis = found[1] if vectors else call.splat(1, 0)
    values = [_diagonal(call.builder, form, 0)]
    if not is_complex:
        upper = _diagonal(call.builder, form, 1)
        n = a.shape.dims[-1]
        lower = call.builder.emit("transpose", form, dimensions=(*range(form.shape.rank - 2), *_last_two(form)))
        lower = _diagonal(call.builder, lower, 1)
        size = lower.op("abs").op("sqrt") * upper.op("abs").op("sqrt")
        size = lower.compare("EQ", 0).where(0, size)
        shift = tuple((0, 0, 0) for _ in size.dims[:-1])
        zero = size.scalar(0)
        if n:
            size = size - size.op("pad", zero, padding=(*shift, (1, -1, 0)))
        values.append(size)
    return [form, basis, *(v.instruction for v in values), call.splat(-2, 0), call.info()]


def _last_two(a: Instruction) -> tuple[int, int]:
    return a.shape.rank - 1, a.shape.rank - 2


def _trsm(call):
    return call.emit(
        "triangular-solve",
        left_side=call.character("side", "L") == "L",
        lower=call.character("uplo", "L") == "L",
        unit_diagonal=call.character("diag", "N") == "U",
        transpose_a={"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[call.character("trans_x", "N")],
    )


def _gehrd(call):
    low, high = call.options.get("low", 1), call.options.get("high")
    n = call.operands[0].shape.dims[-1]
    if low != 1 or high not in (n, None):
        raise ValueError(f"gehrd of rows {low} to {high}: hloom reduces whole matrices")
    return [*call.emit("hessenberg", call.operands[0]), call.info()]


def _sytrd(call):
    lower = call.character("uplo", "L") == "L"
    return [*call.emit("tridiagonal", call.operands[0], lower=lower), call.info()]


def _gtsv(call):
    """The factors that LAPACK leaves in the diagonals are never read: the diagonals are returned unchanged."""
    return [*call.operands[:3], *call.emit("tridiagonal-solve"), call.info()]


def _perturbed_tridiagonal(call):
    return call.emit("tridiagonal-solve", perturb_singular=True)


# --- XLA ----------------------------------------------------------------------------------------------------------


def _placed(call):
    """The layout of an array: a no-op on one device."""
    return call.emit("copy")


def _lu(call):
    return call.emit("lu", call.operands[0])


def _eigh(call):
    values, vectors = call.emit("eigh", call.operands[0], lower=bool(call.options.get("lower", True)))
    return [vectors, values]


def _top_k(call):
    return call.emit("topk", call.operands[0], k=call.shapes[0].dims[-1], largest=True)


def _approximate_top_k(call):
    """Exactly the first k in the comparator's order, as on every backend except TPUs."""
    count = len(call.shapes)
    dimension = call.options["reduction_dim"]
    sorted_ = call.emit(
        "sort", *call.operands[:count], dimensions=(dimension,), is_stable=True, to_apply=call.computation(0)
    )
    results = []
    for x, shape in zip(sorted_, call.shapes, strict=True):
        results += call.emit("slice", x, slice=tuple((0, d, 1) for d in shape.dims))
    return results


_LAPACK = {
    ("potrf", "sdcz"): _potrf,
    ("geqrf", "sdcz"): _geqrf,
    ("geqp3", "sdcz"): _geqp3,
    ("orgqr", "sd"): _orgqr,
    ("ungqr", "cz"): _orgqr,
    ("getrf", "sdcz"): _getrf,
    ("syevd", "sd"): _syevd,
    ("heevd", "cz"): _syevd,
    ("gesdd", "sdcz"): _gesdd,
    ("gesvd", "sdcz"): _gesdd,
    ("geev", "sdcz"): _geev,
    ("gees", "sdcz"): _gees,
    ("trsm", "sdcz"): _trsm,
    ("gehrd", "sdcz"): _gehrd,
    ("sytrd", "sd"): _sytrd,
    ("hetrd", "cz"): _sytrd,
    ("gtsv", "sdcz"): _gtsv,
}
_CALLS: dict[str, Callable[[Call], list[Instruction]]] = {
    f"lapack_{letter}{name}_ffi": function for (name, letters), function in _LAPACK.items() for letter in letters
}
_CALLS |= {
    "tridiagonal_solve_perturbed_ffi": _perturbed_tridiagonal,
    "annotate_device_placement": _placed,
    "Qr": _geqrf,
    "ProductOfElementaryHouseholderReflectors": _orgqr,
    "LuDecomposition": _lu,
    "Eigh": _eigh,
    "TopK": _top_k,
    "ApproxTopK": _approximate_top_k,
}

"""The custom calls of LAPACK that JAX's programs for CPUs hold (`lapack_spotrf_ffi`, ...), as ops of linear algebra.

Source: the signatures in jaxlib/cpu/lapack_kernels (the FFI's attributes: characters as their ASCII codes, pivots from
1, and the number `info`, 0 where all went well). A problem that LAPACK fails for has NaN as its result, and info 0.
"""

from __future__ import annotations

from hloom.ir.build import Value
from hloom.ir.stablehlo.attributes import Number
from hloom.ir.stablehlo.convert import Item, number
from hloom.ir.stablehlo.convert_structure import _KNOWN_TARGETS
from hloom.ir.types import COMPLEX


def _options(op) -> dict:
    """The attributes of the call, characters as text."""
    given = op.attributes.get("mhlo.backend_config", {})
    values = {key: number(value) if isinstance(value, Number) else value for key, value in given.items()}
    return {k: chr(v) if isinstance(v, int) and not isinstance(v, bool) and v > 31 else v for k, v in values.items()}


def _splat(scope, op, k: int, value) -> Item:
    return Item(scope.builder.splat(value, scope.result_shape(op, k)))


def _info(scope, op) -> Item:
    return _splat(scope, op, len(op.result_types) - 1, 0)


def _potrf(scope, op, items):
    factor = scope.emit("cholesky", items[0], lower=_options(op)["uplo"] == "L")
    return [factor, _info(scope, op)]


def _geqrf(scope, op, items):
    return scope.elements(scope.emit("geqrf", items[0]))


def _orgqr(scope, op, items):
    return scope.emit("householder-product", *items)


def _getrf(scope, op, items):
    factors, pivots, _ = scope.elements(scope.emit("lu", items[0]))
    from_one = Value(scope.builder, pivots.instruction) + 1
    return [factors, Item(from_one.instruction), _info(scope, op)]


def _syevd(scope, op, items):
    values, vectors = scope.elements(scope.emit("eigh", items[0], lower=_options(op)["uplo"] == "L"))
    return [vectors, values, _info(scope, op)]


def _gesdd(scope, op, items):
    """mode: 'A' all singular vectors, 'S' as many as values, 'N' none: their places are then zeros."""
    mode = _options(op)["mode"]
    if mode not in "ASN":
        raise ValueError(f"gesdd in mode '{mode}' writes over its operand, which hloom has not")
    found = scope.elements(scope.emit("svd", items[0], compute_uv=mode != "N", full_matrices=mode == "A"))
    if mode == "N":
        found = [_splat(scope, op, 2, 0), found[0], _splat(scope, op, 3, 0)]
    u, s, vh = found
    return [items[0], s, u, vh, _info(scope, op)]


def _geev(scope, op, items):
    """Real matrices have the parts of the eigenvalues as two results. Vectors that are not asked for are zeros."""
    options = _options(op)
    left, right = options["compute_left"] == "V", options["compute_right"] == "V"
    values, *vectors = scope.elements(scope.emit("eig", items[0], left=left, right=right))
    parts = [values]
    if items[0].shape.dtype not in COMPLEX:
        parts = [scope.emit("real", values), scope.emit("imag", values)]
    first = len(parts)
    made = iter(vectors)
    sides = [next(made) if asked else _splat(scope, op, first + k, 0) for k, asked in enumerate((left, right))]
    return [*parts, *sides, _info(scope, op)]


def _trsm(scope, op, items):
    options = _options(op)
    return scope.emit(
        "triangular-solve",
        *items,
        left_side=options["side"] == "L",
        lower=options["uplo"] == "L",
        unit_diagonal=options["diag"] == "U",
        transpose_a={"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[options["trans_x"]],
    )


def _gehrd(scope, op, items):
    options = _options(op)
    n = items[0].shape.dims[-1]
    if (options["low"], options["high"]) != (1, n):
        raise ValueError(f"gehrd of rows {options['low']} to {options['high']}: hloom reduces whole matrices")
    return [*scope.elements(scope.emit("hessenberg", items[0])), _info(scope, op)]


def _sytrd(scope, op, items):
    lower = _options(op)["uplo"] == "L"
    return [*scope.elements(scope.emit("tridiagonal", items[0], lower=lower)), _info(scope, op)]


_CALLS = {
    ("potrf", "sdcz"): _potrf,
    ("geqrf", "sdcz"): _geqrf,
    ("orgqr", "sd"): _orgqr,
    ("ungqr", "cz"): _orgqr,
    ("getrf", "sdcz"): _getrf,
    ("syevd", "sd"): _syevd,
    ("heevd", "cz"): _syevd,
    ("gesdd", "sdcz"): _gesdd,
    ("geev", "sdcz"): _geev,
    ("trsm", "sdcz"): _trsm,
    ("gehrd", "sdcz"): _gehrd,
    ("sytrd", "sd"): _sytrd,
    ("hetrd", "cz"): _sytrd,
}
for (_name, _letters), _call in _CALLS.items():
    for _letter in _letters:
        _KNOWN_TARGETS[f"lapack_{_letter}{_name}_ffi"] = _call

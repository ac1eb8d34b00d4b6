"""dot: general dimension numbers (HLO's DotGeneral). Result dimensions: batch, free of the left, free of the right."""

from __future__ import annotations

import numpy as np

from hloom.ir.errors import AttributeValueError, ShapeError
from hloom.ir.op_table import No, op
from hloom.ir.ops.batching import dot_batch
from hloom.ir.ops.bounding import dot_bounded
from hloom.ir.ops.rules import require_count, require_kind
from hloom.ir.spmd.factors import FactorRule, RuleBuilder
from hloom.ir.types import PRED, Shape, wide_dtype

DOT_ATTRIBUTES = ("lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims")


def dot_dims(attributes) -> tuple[tuple[int, ...], ...]:
    """(lhs_batch, rhs_batch, lhs_contracting, rhs_contracting)."""
    return tuple(tuple(attributes.get(name, ())) for name in DOT_ATTRIBUTES)


def free_dims(rank: int, batch, contracting) -> tuple[int, ...]:
    return tuple(k for k in range(rank) if k not in batch and k not in contracting)


def _dot_infer(operands, attributes, shape):
    require_count("dot", operands, 2)
    left, right = operands
    require_kind("dot", left, ())
    require_kind("dot", right, ())
    lb, rb, lc, rc = dot_dims(attributes)
    for name, operand, batch, contracting in (("left", left, lb, lc), ("right", right, rb, rc)):
        dims = batch + contracting
        if len(set(dims)) != len(dims) or any(not 0 <= d < operand.rank for d in dims):
            raise AttributeValueError(
                f"dot takes distinct batch and contracting dimensions of its {name} operand",
                f"batch {batch}, contracting {contracting} of {operand!r}",
                "check the dimension numbers",
            )
    if len(lb) != len(rb) or len(lc) != len(rc):
        raise AttributeValueError(
            "dot pairs the dimensions of its operands",
            f"{len(lb)} and {len(rb)} batch, {len(lc)} and {len(rc)} contracting dimensions",
            "name as many on both sides",
        )
    for a, b in zip(lb + lc, rb + rc, strict=True):
        if left.dims[a] != right.dims[b]:
            raise ShapeError(
                "dot takes operands whose paired dimensions have one size",
                f"{left!r} dimension {a} is {left.dims[a]}, {right!r} dimension {b} is {right.dims[b]}",
                "transpose or reshape an operand",
            )
    dims = tuple(left.dims[k] for k in lb)
    dims += tuple(left.dims[k] for k in free_dims(left.rank, lb, lc))
    dims += tuple(right.dims[k] for k in free_dims(right.rank, rb, rc))
    if shape is None:
        require_same_dtype(left, right)
        return left.with_dims(dims)
    if shape.dims != dims:
        raise ShapeError("dot's result has another shape", f"{shape!r}, expected {dims}", "leave the shape out")
    return shape


def require_same_dtype(left: Shape, right: Shape, name: str = "dot") -> None:
    if left.dtype != right.dtype:
        raise AttributeValueError(
            f"{name} of two dtypes needs the dtype of its result",
            f"{left!r} and {right!r}",
            "convert one of them, or pass shape= (preferred_element_type)",
        )


def _dot_reference(left, right, shape, **attributes):
    lb, rb, lc, rc = dot_dims(attributes)
    lf, rf = free_dims(left.ndim, lb, lc), free_dims(right.ndim, rb, rc)
    dtype = shape.dtype
    compute = wide_dtype(dtype)
    batch = [left.shape[k] for k in lb]
    m, n = (int(np.prod([x.shape[k] for k in f], dtype=int)) for x, f in ((left, lf), (right, rf)))
    k = int(np.prod([left.shape[d] for d in lc], dtype=int))
    a = np.transpose(left, (*lb, *lf, *lc)).reshape(*batch, m, k)
    b = np.transpose(right, (*rb, *rc, *rf)).reshape(*batch, k, n)
    with np.errstate(all="ignore"):
        if shape.dtype == PRED:
            return (np.matmul(a.astype(np.int32), b.astype(np.int32)) > 0).reshape(shape.dims)
        return (
            np.matmul(a.astype(compute, copy=False), b.astype(compute, copy=False))
            .astype(dtype, copy=False)
            .reshape(shape.dims)
        )


def _dot_jvp(build, instruction, primals, tangents):
    (left, right), (t_left, t_right) = primals, tangents
    total = None
    for a, b in ((t_left, right), (left, t_right)):
        if a is not None and b is not None:
            term = a.op("dot", b, shape=instruction.shape, **instruction.attributes)
            total = term if total is None else total + term
    return total


def _dot_transpose(build, instruction, g, operands):
    lb, rb, lc, rc = dot_dims(instruction.attributes)
    left, right = instruction.operands
    lf, rf = free_dims(len(left.dims), lb, lc), free_dims(len(right.dims), rb, rc)
    nb = len(lb)
    batch = tuple(range(nb))
    if operands[0] is None:
        # g has (batch, left free, right free): contract its right free dimensions with the right operand's.
        other, own_batch, own_free, own_contract = operands[1], lb, lf, lc
        other_batch, other_free, other_contract = rb, rf, rc
        g_contract = tuple(range(nb + len(lf), nb + len(lf) + len(rf)))
    else:
        other, own_batch, own_free, own_contract = operands[0], rb, rf, rc
        other_batch, other_free, other_contract = lb, lf, lc
        g_contract = tuple(range(nb, nb + len(lf)))
    target = instruction.operands[0 if operands[0] is None else 1].shape
    # Operands of different dtypes (a product accumulated in a wider one) are converted to the result's, as kernels take
    # a single dtype.
    other = other.convert(g.dtype)
    # The product's dimensions: batch, own free, then the other's contracting dimensions in their order there.
    remaining = tuple(d for d in range(len(other.dims)) if d in other_contract)
    source_order = own_batch + own_free + tuple(own_contract[other_contract.index(d)] for d in remaining)
    dims = tuple(target.dims[d] for d in source_order)
    product = g.op(
        "dot",
        other,
        shape=Shape(g.dtype, dims),
        lhs_batch_dims=batch,
        rhs_batch_dims=other_batch,
        lhs_contracting_dims=g_contract,
        rhs_contracting_dims=other_free,
    )
    result = product.convert(target.dtype).transpose(tuple(int(k) for k in np.argsort(source_order)))
    return [result, None] if operands[0] is None else [None, result]


def _dot_factors(instruction) -> FactorRule:
    lb, rb, lc, rc = dot_dims(instruction.attributes)
    rule = RuleBuilder(instruction, "or" if instruction.shape.dtype == PRED else "add")
    left, right = (len(dims) for dims in rule.operand_dims)
    for k, (a, b) in enumerate(zip(lb, rb, strict=True)):
        rule.add({0: a, 1: b}, {0: k})
    free = [(0, d) for d in free_dims(left, lb, lc)] + [(1, d) for d in free_dims(right, rb, rc)]
    for k, (operand, d) in enumerate(free, len(lb)):
        rule.add({operand: d}, {0: k})
    for a, b in zip(lc, rc, strict=True):
        rule.add({0: a, 1: b}, {}, "reduction")
    return rule.finish()


op(
    "dot",
    family="contraction",
    infer=_dot_infer,
    reference=_dot_reference,
    code=No("a contraction nest, or a multiplication and a reduction"),
    jvp=_dot_jvp,
    transpose=_dot_transpose,
    batch=dot_batch,
    factors=_dot_factors,
    bounded=dot_bounded,
    # In XLA's printing order.
    attributes={
        "lhs_batch_dims": "ints?",
        "lhs_contracting_dims": "ints?",
        "rhs_batch_dims": "ints?",
        "rhs_contracting_dims": "ints?",
    },
    flops=2,
    dialects="hlo",
)

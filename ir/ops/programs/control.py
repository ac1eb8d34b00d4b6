"""Ops that run computations as programs: while, conditional, scan; and map, a computation on the elements of arrays."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hloom.ir.errors import AttributeValueError, DTypeError, ShapeError
from hloom.ir.interpret import evaluate
from hloom.ir.op_table import No, op
from hloom.ir.ops.bounding import nested_bounded
from hloom.ir.spmd.factors import pointwise
from hloom.ir.types import DTYPES, PRED, Shape, TupleShape

PROGRAM = No("it runs programs")
WALKED = No("propagation walks through the computations that it runs")
S32 = DTYPES["s32"]


# Rules of differentiation and batching, which change called computations: registered here by
# `hloom.compiler.transforms` before its first use.
RULES: dict[str, Callable] = {}


def _control(name: str, **parts) -> None:
    """Declares an op that runs programs; its rules are RULES["NAME_jvp"], "NAME_transpose" and "NAME_batch"."""

    def transform(part: str):
        return lambda build, instruction, *given: RULES[f"{name}_{part}"](build, instruction, *given)

    rules = {part: transform(part) for part in ("jvp", "transpose", "batch")}
    op(
        name,
        family="control",
        code=PROGRAM,
        factors=WALKED,
        bounded=nested_bounded,
        flops=0,
        dialects="hlo",
        **rules,
        **parts,
    )


def _callee(name: str, attributes, attribute: str):
    computation = attributes.get(attribute)
    if computation is None:
        raise AttributeValueError(f"{name} runs a computation", "none", f"pass {attribute}=")
    return computation


def _require_parameters(name: str, what: str, computation, shapes) -> None:
    found = [p.shape for p in computation.parameters]
    if found == list(shapes):
        return
    for k, (have, wanted) in enumerate(zip(found, shapes, strict=False)):
        if have is not wanted:
            kind = ShapeError if getattr(have, "dims", None) != getattr(wanted, "dims", None) else DTypeError
            raise kind(
                f"{name}: parameter {k} of {what} '{computation.name}' has the shape of its argument",
                f"{have!r}, given {wanted!r}",
                "make the computation for these shapes",
            )
    raise ShapeError(
        f"{name}: {what} '{computation.name}' takes {len(shapes)} parameter{'s' * (len(shapes) != 1)}",
        f"it has {len(found)}",
        "make the computation for these operands",
    )


def _require_result(name: str, what: str, computation, shape) -> None:
    if computation.shape is shape:
        return
    found = computation.shape
    detail = f"{found!r}, expected {shape!r}"
    if isinstance(found, TupleShape) and isinstance(shape, TupleShape) and len(found.elements) == len(shape.elements):
        pairs = zip(found.elements, shape.elements, strict=True)
        detail = "; ".join(f"element {k} is {a!r}, expected {b!r}" for k, (a, b) in enumerate(pairs) if a is not b)
    raise ShapeError(f"{name}: the result of {what} '{computation.name}'", detail, "convert or reshape the result")


# --- while ----------------------------------------------------------------------------------------------------------


def _while_infer(operands, attributes, shape):
    if len(operands) != 1:
        raise ShapeError(
            "while takes one operand, the state (a tuple for several)",
            f"{len(operands)} operands",
            "put the values into one tuple",
        )
    condition, body = _callee("while", attributes, "condition"), _callee("while", attributes, "body")
    _require_parameters("while", "the condition", condition, operands)
    _require_parameters("while", "the body", body, operands)
    _require_result("while", "the condition", condition, Shape(PRED, ()))
    _require_result("while", "the body", body, operands[0])
    return operands[0]


def _while_reference(state, shape, condition, body):
    while bool(evaluate(condition, [state])):
        state = evaluate(body, [state])
    return state


_control(
    "while",
    infer=_while_infer,
    reference=_while_reference,
    attributes={"condition": "computation", "body": "computation"},
)


# --- conditional ----------------------------------------------------------------------------------------------------


def _conditional_infer(operands, attributes, shape):
    branches = attributes.get("branch_computations")
    if not branches:
        raise AttributeValueError("conditional runs one of its computations", "none", "pass branch_computations=")
    if not operands or operands[0] not in (Shape(PRED, ()), Shape(S32, ())):
        found = repr(operands[0]) if operands else "no operand"
        raise DTypeError("conditional chooses by a scalar of pred or s32", found, "convert and reshape the selector")
    if operands[0].dtype == PRED and len(branches) != 2:
        raise AttributeValueError(
            "conditional on a pred has two computations, the first for true",
            f"{len(branches)} computations",
            "give two, or choose by an s32",
        )
    if len(operands) != 1 + len(branches):
        raise ShapeError(
            f"conditional takes the selector and one argument for each of its {len(branches)} computations",
            f"{len(operands)} operands",
            "pass a tuple where a computation needs several values, and an empty one where it needs none",
        )
    for k, branch in enumerate(branches):
        _require_parameters("conditional", f"branch {k},", branch, [operands[k + 1]])
    for k, branch in enumerate(branches):
        _require_result("conditional", f"branch {k},", branch, branches[0].shape)
    return branches[0].shape


def _conditional_reference(selector, *arguments, shape, branch_computations):
    if np.asarray(selector).dtype == np.bool_:
        chosen = 0 if selector else 1
    else:
        last = len(branch_computations) - 1
        chosen = int(selector) if 0 <= int(selector) <= last else last
    return evaluate(branch_computations[chosen], [arguments[chosen]])


# In HLO text a conditional on a pred has true_computation= and false_computation=; here it has branch_computations
# (true, false). An index out of range selects the last branch.
_control(
    "conditional",
    infer=_conditional_infer,
    reference=_conditional_reference,
    attributes={"branch_computations": "computations"},
)


# --- scan -----------------------------------------------------------------------------------------------------------


def split_scan(attributes, values):
    """(consts, carry, xs) of a scan's operands, or of its body's parameters."""
    first = attributes["num_consts"]
    second = first + attributes["num_carry"]
    return list(values[:first]), list(values[first:second]), list(values[second:])


def _scan_infer(operands, attributes, shape):
    body = _callee("scan", attributes, "body")
    length = attributes.get("length", -1)
    if length < 0 or attributes.get("num_consts", -1) < 0 or attributes.get("num_carry", -1) < 0:
        raise AttributeValueError(
            "scan takes num_consts, num_carry and length", f"{attributes}", "give numbers that are not negative"
        )
    consts, carry, xs = split_scan(attributes, operands)
    if len(consts) + len(carry) < attributes["num_consts"] + attributes["num_carry"]:
        raise ShapeError("scan takes constants, carry and xs", f"{len(operands)} operands", "pass all of them")
    for x in xs:
        if not isinstance(x, Shape) or not x.dims or x.dims[0] != length:
            raise ShapeError(
                f"scan walks over the first axis, of size {length}, of each of its xs",
                repr(x),
                "give all xs the same size along the first axis",
            )
    slices = [x.with_dims(x.dims[1:]) for x in xs]
    _require_parameters("scan", "the body", body, [*consts, *carry, *slices])
    if not isinstance(body.shape, TupleShape) or len(body.shape.elements) < len(carry):
        raise ShapeError("scan: the body returns a tuple of the carry and the ys", f"{body.shape!r}", "make it a tuple")
    ys = [y for y in body.shape.elements[len(carry) :] if isinstance(y, Shape)]  # the next line rejects tuples
    _require_result("scan", "the body", body, TupleShape([*carry, *ys]))
    return TupleShape([*carry, *(y.with_dims((length, *y.dims)) for y in ys)])


def _scan_reference(*operands, shape, body, num_consts, num_carry, length, reverse=False):
    consts, carry, xs = split_scan({"num_consts": num_consts, "num_carry": num_carry}, operands)
    ys = [np.zeros(y.dims, y.dtype) for y in shape.elements[num_carry:]]
    for k in reversed(range(length)) if reverse else range(length):
        results = evaluate(body, [*consts, *carry, *(x[k] for x in xs)])
        carry = list(results[:num_carry])
        for y, value in zip(ys, results[num_carry:], strict=True):
            y[k] = value
    return (*carry, *ys)


# An hloom op: a loop of static length whose structure is preserved until differentiation and batching are done.
# Operands: the constants, the carry, the xs. The body takes constants, carry and the slices of the xs at one index of
# their first axis, and returns a tuple: the new carry, then the slices of the ys. The result is always a tuple: the
# last carry, then the ys, stacked along a new first axis. `reverse` runs from the last index to the first.
# `ir.loops.lower_scan` lowers it to a while loop, which HLO text shows.
_control(
    "scan",
    infer=_scan_infer,
    reference=_scan_reference,
    attributes={"num_consts": "int", "num_carry": "int", "length": "int", "reverse": "flag", "body": "computation"},
)


# --- map ------------------------------------------------------------------------------------------------------------


def _map_infer(operands, attributes, shape):
    computation = _callee("map", attributes, "to_apply")
    if not operands:
        raise ShapeError("map takes arrays", "no operand", "pass at least one")
    dims = getattr(operands[0], "dims", None)
    if dims is None or any(getattr(o, "dims", None) != dims for o in operands):
        raise ShapeError("map takes arrays of one shape", ", ".join(map(repr, operands)), "broadcast them")
    dimensions = attributes.get("dimensions", tuple(range(len(dims))))
    if tuple(dimensions) != tuple(range(len(dims))):
        raise AttributeValueError(
            f"map goes over all dimensions, {tuple(range(len(dims)))}", f"{tuple(dimensions)}", "name all, in order"
        )
    _require_parameters("map", "the computation", computation, [o.with_dims(()) for o in operands])
    if not isinstance(computation.shape, Shape) or computation.shape.dims:
        raise ShapeError("map: the computation returns a scalar", repr(computation.shape), "return one scalar")
    return Shape(computation.shape.dtype, dims)


def _map_reference(*arrays, shape, to_apply, dimensions=()):
    if any(i.called() for i in to_apply.instructions):  # programs of scalars: one element at a time
        flat = [np.asarray(a).reshape(-1) for a in arrays]
        values = [evaluate(to_apply, [f[k] for f in flat]) for k in range(math.prod(shape.dims))]
        return np.array(values, shape.dtype).reshape(shape.dims)
    return np.ascontiguousarray(evaluate(to_apply, list(arrays), lifted=shape.dims or None)).reshape(shape.dims)


MAPPED = No("the pass inline-calls replaces it by its computation on whole arrays")
op(
    "map",
    family="structure",
    infer=_map_infer,
    reference=_map_reference,
    code=MAPPED,
    jvp=No("calls are inlined before differentiation"),
    transpose=No("calls are inlined before differentiation"),
    batch=No("calls are inlined before batching"),
    factors=pointwise,
    attributes={"dimensions": "ints?", "to_apply": "computation"},
    dialects="hlo",
)

"""Shape rules, references and derivative helpers shared by several families."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from hloom.ir.errors import AttributeValueError, DTypeError, ShapeError
from hloom.ir.types import COMPLEX, NARROW_FLOATS, PRED, Shape, TupleShape, are_equal, kind, real_dtype


def names(kinds) -> str:
    return " or ".join(kinds)


def require_count(op_name: str, operands, count: int) -> None:
    if len(operands) != count:
        raise ShapeError(
            f"{op_name} takes {count} operand{'s' * (count != 1)}",
            f"{len(operands)} given: {', '.join(map(repr, operands))}",
            "pass as many operands as the op has",
        )


def require_kind(op_name: str, shape: Shape, kinds) -> None:
    if not isinstance(shape, Shape):
        raise ShapeError(f"{op_name} takes arrays", f"a tuple {shape!r}", "take an element of the tuple")
    if kinds and kind(shape.dtype) not in kinds:
        raise DTypeError(
            f"{op_name} takes {names(kinds)} elements",
            f"{shape!r}",
            "convert the operand first with astype",
        )


def require_shape(name: str, shape) -> None:
    """Raises unless the result's shape was passed."""
    if not isinstance(shape, Shape):
        raise AttributeValueError(f"{name} needs the shape of its result", f"{shape!r}", "pass shape=")


def require_same(op_name: str, shapes) -> None:
    first = shapes[0]
    for other in shapes[1:]:
        if are_equal(other, first):
            continue
        if getattr(other, "dtype", None) != getattr(first, "dtype", None):
            raise DTypeError(
                f"{op_name} takes operands of one dtype",
                ", ".join(map(repr, shapes)),
                "convert one of them with astype, or use hloom.numpy, which promotes",
            )
        raise ShapeError(
            f"{op_name} takes operands of one shape",
            ", ".join(map(repr, shapes)),
            "broadcast or reshape one of them, or use hloom.numpy, which broadcasts",
        )


def elementwise(op_name: str, arity: int, kinds=(), result=None):
    """The rule: `arity` operands of equal shape, dtypes among `kinds`; a result of that shape, dtype
    `result(dtype)`."""

    def infer(operands, attributes, shape):
        require_count(op_name, operands, arity)
        require_kind(op_name, operands[0], kinds)
        require_same(op_name, operands)
        return operands[0] if result is None else operands[0].with_dtype(result(operands[0].dtype))

    return infer


def to_pred(dtype):
    return PRED


to_real = real_dtype


def in_float32(function):
    """The reference, computed in float32 for narrow floats and then rounded."""

    @functools.wraps(function)
    def reference(*arrays, shape, **attributes):
        dtype = arrays[0].dtype
        with np.errstate(all="ignore"):
            if dtype in NARROW_FLOATS:
                result = function(*(a.astype(np.float32) for a in arrays), **attributes)
            else:
                result = function(*arrays, **attributes)
            return np.asarray(result).astype(shape.dtype, copy=False)

    return reference


def partials(*derivatives):
    """jvp from one derivative per operand: each is f(g, y, *primals) -> the tangent's term, or None for zero."""

    def jvp(build, instruction, primals, tangents):
        total = None
        for derivative, tangent in zip(derivatives, tangents, strict=True):
            if tangent is None or derivative is None:
                continue
            term = derivative(tangent, build.primal, *primals)
            total = term if total is None else total + term
        return total

    return jvp


def linear_jvp(build, instruction, primals, tangents):
    """jvp of an op that is jointly linear in all of its operands: the op itself on the tangents."""
    filled = [p.like(0) if t is None else t for p, t in zip(primals, tangents, strict=True)]
    first = filled[0]
    return first.op(instruction.opcode, *filled[1:], shape=instruction.shape, **instruction.attributes)


def zero_jvp(build, instruction, primals, tangents):
    """jvp of an op whose derivative is zero wherever it has one (integers, comparisons, roundings)."""
    return


def conjugate(x):
    """The complex conjugate of a Value; the identity for real ones."""
    if x.dtype not in COMPLEX:
        return x
    return x.op("real").op("complex", -x.op("imag"))


# --- reductions ---------------------------------------------------------------------------------------------------


def arrays_and_initial_values(op_name: str, operands) -> tuple[list[Shape], list[Shape]]:
    """The two halves of a reduction's operands: arrays of equal shape, and a scalar of each array's dtype."""
    if len(operands) < 2 or len(operands) % 2:
        raise ShapeError(
            f"{op_name} takes arrays and as many initial scalars",
            f"{len(operands)} operands: {', '.join(map(repr, operands))}",
            "pass one initial value for each array",
        )
    for operand in operands:
        require_kind(op_name, operand, ())
    count = len(operands) // 2
    arrays, initial = list(operands[:count]), list(operands[count:])
    for array, start in zip(arrays, initial, strict=True):
        if array.dims != arrays[0].dims:
            raise ShapeError(f"{op_name} takes arrays of one shape", ", ".join(map(repr, arrays)), "broadcast them")
        if start.dims != ():
            raise ShapeError(f"{op_name} takes scalar initial values", repr(start), "reshape it to a scalar")
        if start.dtype != array.dtype:
            raise DTypeError(
                f"{op_name} takes an initial value of its array's dtype", f"{array!r} and {start!r}", "convert it"
            )
    return arrays, initial


def require_combiner(op_name: str, attribute: str, combiner, scalars) -> None:
    """Raises unless a computation accepts two groups of these scalars and returns one."""
    if combiner is None:
        raise AttributeValueError(f"{op_name} takes a computation {attribute}", "none", f"pass {attribute}=")
    expected = [*scalars, *scalars]
    found = [p.shape for p in combiner.parameters]
    if found != expected:
        raise DTypeError(
            f"{op_name} takes a combiner of (accumulators, elements) to accumulators",
            f"parameters {found}, expected {expected}",
            "make the combiner's parameters scalars of the arrays' dtypes",
        )
    result = scalars[0] if len(scalars) == 1 else TupleShape(scalars)
    if combiner.shape is not result:
        raise DTypeError(
            f"{op_name} takes a combiner that returns accumulators",
            f"{combiner.shape!r}, expected {result!r}",
            "convert the combiner's result",
        )


# NumPy's functions for the combiners of one op.
UFUNCS = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def combined_precisely(compute: Callable[[np.dtype], np.ndarray], x: np.ndarray, opcode: str, wide: np.dtype):
    """`compute(wide)`, except where combining in x's dtype overflows, or a product underflows to zero: there the result
    in x's dtype.

    Sums and products of f32 and c64 are combined in double precision, but must match compiled code and NumPy on
    overflow, rather than continue with the wider range.
    """
    result = np.asarray(compute(wide))
    if x.dtype not in (np.float32, np.complex64):
        return result
    if opcode == "add" and not _may_overflow(x):
        return result
    narrow = np.asarray(compute(x.dtype))
    lost = ~np.isfinite(narrow)
    if opcode == "multiply":
        lost |= narrow == 0
    return np.where(lost, narrow.astype(wide), result) if lost.any() else result


def _may_overflow(x: np.ndarray) -> bool:
    """Whether any partial sum of elements may exceed the range of f32."""
    if not x.size:
        return False
    parts = (x.real, x.imag) if x.dtype.kind == "c" else (x,)
    largest = max(float(extreme) for part in parts for extreme in (np.max(part), -np.min(part)))
    return bool(largest * x.size > np.finfo(np.float32).max)

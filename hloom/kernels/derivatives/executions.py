"""How often the innermost of nested loops runs, where its bounds depend on the loops around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hloom.compiler.kernel_ir.nodes import Binary, Call, Cast, Const, Expr, For, Unary, Var

__all__ = ["executions"]

MOST = 1 << 21  # iterations of the outer loops that are counted one by one

_OPS: dict[str, Callable] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod,
}  # fmt: skip
_CALLS: dict[str, Callable] = {"min": np.minimum, "max": np.maximum}


class _Unknown(Exception):
    """An expression whose value depends on data."""


def executions(loops: Sequence[For], sizes: Mapping[Var, int], definitions: Mapping[Var, Expr]) -> int | None:
    """The number of iterations of the last loop in all iterations of those around it, outermost first; None where it
    depends on data, or the outer loops have too many iterations to count. sizes: variables that are constants.
    definitions: of variables with one value."""
    known = {var: np.array([value]) for var, value in sizes.items()}
    points = 1
    try:
        for number, loop in enumerate(loops):
            start, stop, step = [
                np.broadcast_to(_value(e, known, definitions), points) for e in (loop.start, loop.stop, loop.step)
            ]
            counts = np.maximum(0, -((start - stop) // step))
            total = int(counts.sum())
            if number == len(loops) - 1:
                return total
            if total > MOST:
                return None
            rows = np.repeat(np.arange(points), counts)
            passed = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
            known = {var: value if len(value) == 1 else value[rows] for var, value in known.items()}
            known[loop.var] = start[rows] + step[rows] * passed
            points = total
    except _Unknown:
        pass
    return None


def _value(e: Expr, known: Mapping[Var, np.ndarray], definitions: Mapping[Var, Expr]) -> np.ndarray:
    def value(part: Expr) -> np.ndarray:
        return _value(part, known, definitions)

    match e:
        case Const(value=int(number)):
            return np.array([number])
        case Var() if e in known:
            return known[e]
        case Var() if e in definitions:
            return value(definitions[e])
        case Unary(op="-", operand=operand):
            return -value(operand)
        case Cast(type="s64", operand=operand) if operand.type in ("s8", "s16", "s32", "s64"):
            return value(operand)
        case Binary(op=op, left=left, right=right) if op in ("//", "%"):
            divisor = value(right)
            if not divisor.all():
                raise _Unknown
            return _OPS[op](value(left), divisor)
        case Binary(op=op, left=left, right=right) if op in _OPS:
            return _OPS[op](value(left), value(right))
        case Call(function=function, arguments=(left, right)):
            name = function.partition("_")[0]
            if name in _CALLS:
                return _CALLS[name](value(left), value(right))
    raise _Unknown

"""The digits beyond the default width of values computed eagerly from Python numbers alone (`hloom.tracing.exact`)."""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

from hloom.arrays.array import Array
from hloom.ir.op_table import No
from hloom.ir.ops import OPS
from hloom.ir.types import DTYPES

# The dtype of Python numbers -> the one that holds every value a trace computes from them.
DOUBLE = {DTYPES["f32"]: DTYPES["f64"], DTYPES["c64"]: DTYPES["c128"], DTYPES["s32"]: DTYPES["s64"]}
WIDE = frozenset(DOUBLE.values())
_INTEGER = DTYPES["s32"]
# Ops whose results depend on the width of their operands, and a number from a table of constants.
_BY_WIDTH = frozenset(
    ("reduce-precision", "bitcast-convert", "popcnt", "count-leading-zeros", "shift-right-logical", "iota")
)
_FIRST_ONLY = frozenset(("gather", "dynamic-slice"))  # their other operands are positions


def with_digits(result: Array, opcode: str, operands: list[Array], attributes: dict) -> Array:
    """The result with its value in double width, since it is computed from Python numbers alone."""
    if not is_repeated(opcode):
        return result
    wanted = widened_operands(opcode, tuple([o._shape.dtype for o in operands]), result._shape.dtype)
    values = []
    for operand, widens in zip(operands, wanted, strict=True):
        value = operand._value()
        if widens:
            wide = DOUBLE[operand._shape.dtype]
            exact = getattr(operand, "_exact", None)
            exact = np.asarray(value if exact is None else exact, wide)
            value = exact if exact.shape == value.shape else np.broadcast_to(exact, value.shape)
        values.append(value)
    reference = OPS[opcode].reference
    assert not isinstance(reference, No)
    with np.errstate(all="ignore"):
        result._exact = reference(*values, shape=result._shape.with_dtype(DOUBLE[result._shape.dtype]), **attributes)
    return result


def has_twin(x) -> bool:
    """Whether an Array has more digits than its dtype holds, which ops keep and a function of NumPy arrays does not."""
    return x.weak and getattr(x, "_exact", None) is not None


@cache
def is_repeated(opcode: str) -> bool:
    """Whether an op computes the same in double width, so that no digit is lost before it."""
    return opcode not in _BY_WIDTH and (OPS[opcode].family in ("elementwise", "index") or opcode == "dot")


@lru_cache(maxsize=1024)
def widened_operands(opcode: str, dtypes: tuple[np.dtype, ...], result: np.dtype) -> list[bool]:
    """For each operand of an op that is repeated in double width, whether it takes part in double width.

    dtypes: of the operands. result: the dtype of the result, in single width. Positions and conditions stay.
    """
    if opcode == "convert":
        return [dtype in DOUBLE for dtype in dtypes]
    if result == _INTEGER:
        wanted = [dtype == _INTEGER for dtype in dtypes]
    else:
        wanted = [dtype in DOUBLE and dtype != _INTEGER for dtype in dtypes]
    if opcode in _FIRST_ONLY:
        return [wanted[0], *[False] * (len(dtypes) - 1)]
    if opcode == "dynamic-update-slice":
        return [*wanted[:2], *[False] * (len(dtypes) - 2)]
    return wanted

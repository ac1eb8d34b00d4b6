"""The digits beyond single precision of what is computed eagerly of Python numbers alone (`hloom.tracing.exact`)."""

from __future__ import annotations

import numpy as np

from hloom.arrays.array import Array
from hloom.ir.op_table import No
from hloom.ir.ops import OPS
from hloom.ir.types import DTYPES

DOUBLE = {DTYPES["f32"]: DTYPES["f64"], DTYPES["c64"]: DTYPES["c128"]}


def with_digits(result: Array, opcode: str, operands: list[Array], attributes: dict) -> Array:
    """The result with its value in double precision, as it is computed of Python numbers alone."""
    if not is_repeated(opcode):
        return result
    values = []
    for operand in operands:
        wide = DOUBLE.get(operand._shape.dtype)
        exact = getattr(operand, "_exact", None)
        value = operand._value()
        if wide is not None:
            exact = np.asarray(value if exact is None else exact, wide)
            value = exact if exact.shape == value.shape else np.broadcast_to(exact, value.shape)
        values.append(value)
    reference = OPS[opcode].reference
    assert not isinstance(reference, No)
    with np.errstate(all="ignore"):
        result._exact = reference(*values, shape=result._shape.with_dtype(DOUBLE[result._shape.dtype]), **attributes)
    return result


def is_repeated(opcode: str) -> bool:
    """Whether an op computes the same in double precision, element by element, so that no digit is lost before it."""
    if opcode in ("reduce-precision", "bitcast-convert"):
        return False
    return opcode == "broadcast" or OPS[opcode].family == "elementwise"

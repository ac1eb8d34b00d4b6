"""The value of a size: what a program computes with a dimension that is known when it is called."""

from __future__ import annotations

import numpy as np

from hloom.ir.errors import AttributeValueError
from hloom.ir.op_table import No, op
from hloom.ir.ops.rules import require_count, require_kind, require_shape, zero_jvp
from hloom.ir.sizes.expressions import Size, SizeExpression
from hloom.ir.types import Shape


def _infer(operands, attributes, shape):
    require_count("size", operands, 0)
    require_shape("size", shape)
    require_kind("size", shape, ("signed", "unsigned"))
    if shape.dims or not isinstance(attributes.get("value"), (int, SizeExpression)):
        raise AttributeValueError(
            "size is the scalar value of a size", f"{shape!r} of {attributes.get('value')!r:.60}", "give it a size"
        )
    return shape


def size_value(shape: Shape, value: Size) -> np.ndarray:
    """The scalar that a size is. Raises AttributeValueError for one that is not known, or has no room in the dtype."""
    if isinstance(value, SizeExpression):
        raise AttributeValueError(
            f"the value of the size {value}", "it is known when the program is called", "put sizes in first"
        )
    check_room(shape, value)
    return np.asarray(value, shape.dtype)


def check_room(shape: Shape, value: Size) -> None:
    """Raises AttributeValueError for a size that has no room in the dtype. Of one that is open it is a decision."""
    limits = np.iinfo(shape.dtype)
    if not limits.min <= value <= limits.max:
        raise AttributeValueError(
            f"a size as {shape.dtype.name}",
            f"it is {value:,}, and {limits.max:,} at most has room",
            "use smaller arrays",
        )


op(
    "size",
    family="index",
    infer=_infer,
    reference=size_value,
    code=No("it is a constant where the sizes are known"),
    jvp=zero_jvp,
    transpose=No("it has no operands"),
    batch=No("it has no operands, so it is the same for all batch elements"),
    factors=No("it is a scalar"),
    attributes={"value": "frontend_size"},
    shaped=True,
    flops=0,
    doc="The value of a size.",
)

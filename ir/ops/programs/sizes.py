"""The value of a size that is known when a program is called or has run, and the op that sets an array's size."""

from __future__ import annotations

import numpy as np

from hloom.ir.errors import AttributeValueError, ShapeError
from hloom.ir.module import Computation, below
from hloom.ir.op_table import No, op
from hloom.ir.ops.rules import require_count, require_kind, require_shape, zero_jvp
from hloom.ir.sizes.counted import counted_scopes
from hloom.ir.sizes.expressions import Size, SizeExpression, highest, single
from hloom.ir.types import DTYPES, Shape


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
    """The scalar value of a size. Raises AttributeValueError for an unknown one, or one that overflows the dtype."""
    if isinstance(value, SizeExpression):
        raise AttributeValueError(
            f"the value of the size {value}", "it is known when the program is called", "put sizes in first"
        )
    check_room(shape, value)
    return np.asarray(value, shape.dtype)


def check_room(shape: Shape, value: Size) -> None:
    """Raises AttributeValueError for a size that overflows the dtype. For an open size this is a decision."""
    limits = np.iinfo(shape.dtype)
    if not limits.min <= value <= limits.max:
        raise AttributeValueError(
            f"a size as {shape.dtype.name}",
            f"it is {value:,}, and {limits.max:,} at most has room",
            "use smaller arrays",
        )


def _size_bounded(build, instruction, operands):
    size = instruction["value"]
    check_room(instruction.shape, int(highest(size)))
    return build.size(size).convert(instruction.dtype)


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
    bounded=_size_bounded,
    attributes={"value": "frontend_size"},
    shaped=True,
    flops=0,
    doc="The value of a size.",
)


def computes_sizes(computation: Computation) -> bool:
    """Whether a computation, or one that it calls, computes sizes."""
    return any([i.opcode == "set-dimension-size" for i in below(computation.instructions)])


def _set_infer(operands, attributes, shape):
    require_count("set-dimension-size", operands, 2)
    require_shape("set-dimension-size", shape)
    operand, count = operands
    dimensions = attributes.get("dimensions", ())
    if len(dimensions) != 1 or not 0 <= dimensions[0] < operand.rank or count is not Shape(DTYPES["s32"]):
        raise AttributeValueError(
            "set-dimension-size takes an array, one of its dimensions, and a scalar s32",
            f"{operand!r}, {count!r}, dimensions={tuple(dimensions)}", "pass these",
        )  # fmt: skip
    (d,) = dimensions
    size = shape.dims[d] if shape.rank == operand.rank else None
    named = single(size)
    if named is None or not counted_scopes(named) or shape is not operand.with_dims(
        named if k == d else n for k, n in enumerate(operand.dims)
    ) or highest(named) != operand.dims[d]:  # fmt: skip
        raise ShapeError(
            "set-dimension-size sets a dimension's size, computed by the program, up to its present size",
            f"{operand!r} to {shape!r}", "take such a size for the dimension",
        )  # fmt: skip
    return shape


def _set_bounded(build, instruction, operands):
    build.define(instruction.dims[instruction["dimensions"][0]], operands[1])
    return operands[0]


op(
    "set-dimension-size",
    family="index",
    infer=_set_infer,
    reference=No("its result has the shape of the bound, and what lies beyond the size is arbitrary"),
    code=No("programs of fixed shapes have no such array"),
    jvp=zero_jvp,
    transpose=No("it makes positions, which are integers"),
    batch=No("the elements of a batch would have sizes of their own; pass size= to what selects elements"),
    factors=No("its elements are counted in the whole array"),
    bounded=_set_bounded,
    effects=True,  # shapes contain the size even if the array is not read
    attributes={"dimensions": "ints"},
    shaped=True,
    flops=0,
    dialects="hlo",
    doc="An array of indices whose size along a dimension is computed by the program.",
)

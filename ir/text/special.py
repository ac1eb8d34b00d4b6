"""HLO ops that are not in the table: those expanded to others, and those rejected by name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np

from hloom.ir.module import Instruction
from hloom.ir.types import DTYPES, Shape


def _bitcast(instruction: Instruction, source, target) -> list[Instruction]:
    """The elements in memory order, reinterpreted as another shape: transpose, reshape, transpose."""
    (x,) = instruction.operands
    shape = instruction.shape
    source = source or tuple(reversed(range(len(x.dims))))
    target = target or tuple(reversed(range(shape.rank)))
    steps: list[Instruction] = []

    def add(opcode: str, operand: Instruction, result: Shape, **attributes) -> Instruction:
        steps.append(Instruction(opcode, (operand,), result, attributes))
        return steps[-1]

    order = source[::-1]
    value = x
    if order != tuple(range(len(order))):
        value = add("transpose", value, x.shape.with_dims(x.dims[d] for d in order), dimensions=order)
    if shape.dtype != x.dtype:
        if shape.dtype.itemsize != x.dtype.itemsize:
            raise ValueError("elements of another size")
        value = add("bitcast-convert", value, value.shape.with_dtype(shape.dtype))
    lying = tuple(shape.dims[d] for d in target[::-1])
    if math.prod(lying) != x.shape.size:
        raise ValueError("the number of elements changes")
    if lying != value.dims:
        value = add("reshape", value, shape.with_dims(lying))
    back = tuple(int(k) for k in np.argsort(target[::-1]))
    if back != tuple(range(len(back))):
        value = add("transpose", value, shape, dimensions=back)
    return steps or [Instruction("copy", (x,), shape, {})]


def _dimension_size(instruction: Instruction, source, target) -> list[Instruction]:
    (dimension,) = instruction.attributes.get("dimensions", ())
    size = instruction.operands[0].dims[dimension]
    return [Instruction("constant", (), Shape(DTYPES["s32"]), {"value": np.asarray(size, np.int32)})]


# opcode -> function (the instruction as read, layout of its first operand, its own) -> the instructions for it.
SPECIAL: dict[str, Callable] = {"bitcast": _bitcast, "get-dimension-size": _dimension_size}

_ASYNC = re.compile(r"(async|copy|call|send|recv|slice|collective-permute|all-gather|all-reduce|reduce-scatter|fusion)-"
                    r"(start|done|update)")  # fmt: skip
_REFUSED = {
    ("infeed", "outfeed", "send", "recv", "after-all"): (
        "hloom's programs have no channels to a host or to other programs",
        "pass the values as arguments and return them as results",
    ),
    ("rng", "rng-get-and-update-state"): (
        "it draws numbers from a hidden state, and hloom's programs are pure functions",
        "use rng-bit-generator, which takes its state",
    ),
    ("set-dimension-size", "dynamic-reshape"): (
        "sizes are known when a program is compiled", "use arrays of fixed sizes and a mask",
    ),
    ("add-dependency", "domain", "partial-reduce", "stochastic-convert", "ragged-dot"): (
        "hloom has no such op", "compile the program without it",
    ),
}  # fmt: skip


def refused(opcode: str) -> tuple[str, str] | None:
    """(reason, repair) for an unsupported XLA op."""
    if _ASYNC.fullmatch(opcode) and opcode not in ("send-done", "recv-done"):
        return (
            "asynchronous steps are not explicit in hloom's programs",
            "print the program before scheduling",
        )
    for names, reason in _REFUSED.items():
        if opcode.removesuffix("-done") in names:
            return reason
    return None

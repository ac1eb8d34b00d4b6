"""Analysis of the mesh axes along which values of a manual computation vary between devices.

An argument varies along the axes that split it. The result of an op varies if an operand does; collectives over named
axes make values equal (all-reduce, all-gather, broadcast) or varying (partition-id, all-to-all, permute,
reduce-scatter) along them. Conditions of loops and branches count as operands of their results.

Source: the varying manual axes (vma) of JAX's shard_map.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.ir.module import Computation, Instruction
from hloom.ir.types import TupleShape

Axes = frozenset[str]
NONE: Axes = frozenset()
_EQUAL = ("all-reduce", "all-gather", "collective-broadcast")
_DIFFERENT = ("reduce-scatter", "all-to-all", "collective-permute", "partition-id", "replica-id")


def varying_axes(computation: Computation, arguments: Sequence[Axes]) -> list[Axes]:
    """For each output the axes along which it may vary; `arguments`: for each parameter those along which it does."""
    found = _run(computation, list(arguments))
    return list(found) if isinstance(found, list) else [found]


def _run(computation: Computation, arguments: list):
    """A set of axes for an array, a list of them for a tuple."""
    values: dict[Instruction, list | Axes] = dict(zip(computation.parameters, arguments, strict=True))
    for instruction in computation.instructions:
        if instruction not in values:
            values[instruction] = _value(instruction, [values[o] for o in instruction.operands])
    return values[computation.root]


def _all(value) -> Axes:
    """The axes of an array, or of all elements of a tuple."""
    return value if isinstance(value, frozenset) else NONE.union(*map(_all, value))


def _like(shape, axes: Axes):
    return [_like(e, axes) for e in shape.elements] if isinstance(shape, TupleShape) else axes


def _joined(a, b):
    if isinstance(a, frozenset) or isinstance(b, frozenset):
        return _all(a) | _all(b)
    return [_joined(x, y) for x, y in zip(a, b, strict=True)]


def _with(value, axes: Axes):
    return value | axes if isinstance(value, frozenset) else [_with(v, axes) for v in value]


def _value(instruction: Instruction, operands: list):
    opcode, attributes = instruction.opcode, instruction.attributes
    if opcode == "tuple":
        return list(operands)
    if opcode == "get-tuple-element":
        return operands[0][attributes["index"]] if isinstance(operands[0], list) else operands[0]
    if opcode == "call":
        return _run(attributes["to_apply"], operands)
    if opcode == "while":
        return _while(instruction, operands[0])
    if opcode == "conditional":
        results = [_run(b, [o]) for b, o in zip(attributes["branch_computations"], operands[1:], strict=True)]
        total = results[0]
        for result in results[1:]:
            total = _joined(total, result)
        return _with(total, _all(operands[0]))
    if opcode == "scan":
        return _scan(instruction, operands)
    axes = _all(operands)
    names = frozenset(attributes.get("axis_name") or ())
    if opcode in _EQUAL and not attributes.get("axis_groups"):
        axes -= names
    elif opcode in _DIFFERENT:
        axes |= names
    return _like(instruction.shape, axes)


def _while(instruction: Instruction, state):
    while True:
        decides = _all(_run(instruction["condition"], [state]))
        after = _with(_joined(state, _run(instruction["body"], [state])), decides)
        if after == state:
            return state
        state = after


def _scan(instruction: Instruction, operands: list):
    consts, carries = instruction["num_consts"], instruction["num_carry"]
    fixed, state, xs = operands[:consts], operands[consts : consts + carries], operands[consts + carries :]
    while True:
        found = _run(instruction["body"], [*fixed, *state, *xs])
        found = found if isinstance(found, list) else [found]
        after = [_joined(a, b) for a, b in zip(state, found[:carries], strict=True)]
        if after == state:
            break
        state = after
    results = [*state, *found[carries:]]
    return results if isinstance(instruction.shape, TupleShape) else results[0]


__all__ = ["varying_axes"]

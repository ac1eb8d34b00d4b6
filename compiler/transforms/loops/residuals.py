"""Residuals of linearized computations: what the backward pass needs of the forward pass, and which of it is kept.

Counters and what follows from them in a few cheap steps are computed again; the rest is kept for each step of a loop.
"""

from __future__ import annotations

import math

import numpy as np

from hloom.compiler.transforms.flat import place
from hloom.ir.build import Builder, Value
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops import OPS
from hloom.ir.records import record
from hloom.ir.rewrite import sweep


@record(frozen=True)
class Counter:
    """A carried integer that changes by a constant in each step, so that its values need not be kept.

    start: its value before the first step. first: what is added to it at index 0 of what the steps stack; in a loop in
    reverse the last step is there. change: from one index to the next.
    """

    start: Instruction
    first: int
    change: int

    def at(self, start: Value, number: Value) -> Value:
        """The value before the step that stacks at this index."""
        found = start + (number if self.change == 1 else number * self.change)
        return found + self.first if self.first else found


def counters(forward: Computation, own_carry, carry, like: Instruction) -> dict[Instruction, Counter]:
    """The counters among the carried values of a loop, by their parameters."""
    found: dict[Instruction, Counter] = {}
    length, reverse = like["length"], like.attributes.get("reverse", False)
    if reverse and not isinstance(length, int):
        return found
    for parameter, after, start in zip(own_carry, forward.outputs(), carry, strict=False):
        if after.opcode not in ("add", "subtract") or parameter.shape.dims or parameter.dtype.kind not in "iu":
            continue
        left, right = after.operands
        if after.opcode == "add" and right is parameter:
            left, right = right, left
        if left is parameter and right.opcode == "constant":
            change = int(right["value"]) if after.opcode == "add" else -int(right["value"])
            ends = (change * (length - 1), -change) if reverse else (0, change)
            wrapped = np.array(ends, np.int64).astype(parameter.dtype)  # as the counter is, in a narrow dtype
            found[parameter] = Counter(start.instruction, *wrapped.tolist())
    return found


def unchanged(body: Computation, attributes) -> list[int]:
    """The numbers of the carried parameters that are the same in each step."""
    first, outputs = attributes["num_consts"], body.outputs()
    return [first + k for k in range(attributes["num_carry"]) if outputs[k] is body.parameters[first + k]]


def sources(residuals: list[Instruction], known: set[Instruction]) -> list[Instruction]:
    """The known instructions from which all residuals are computed."""
    found: dict[Instruction, None] = {}
    seen: set[Instruction] = set()
    stack = list(reversed(residuals))
    while stack:
        one = stack.pop()
        if one in known:
            found[one] = None
        elif one not in seen:
            seen.add(one)
            stack += one.operands
    return list(found)


CHEAP = 4.0  # flops below which a value is recomputed rather than stacked for each step
STEPS = 12  # maximum number of operations for recomputation
FEW = 64  # maximum number of elements that are read again, or put together
_READS = ("slice", "dynamic-slice", "gather")


def worth_stacking(
    forward: Computation, residuals, given: set[Instruction], readable: set[Instruction]
) -> list[Instruction]:
    """The residuals that are not given and cannot be recomputed in a few cheap steps from given ones and the others.

    An LSTM needs i, 1 - i, i (1 - i), tanh c, 1 - tanh^2 c, ...: half of them suffice. Indices that counters decide,
    and elements of lasting arrays at such indices, are never stacked.
    """
    places = {i: k for k, i in enumerate(forward.instructions)}
    known = {*residuals, *given}
    stacked = [r for r in dict.fromkeys(residuals) if r not in given]
    for residual in sorted(stacked, key=places.__getitem__, reverse=True):
        if _is_cheap_again(residual, known - {residual}, readable):
            stacked.remove(residual)
    return stacked


def _is_cheap_again(wanted: Instruction, known: set[Instruction], readable: set[Instruction]) -> bool:
    """Whether cheap operations on known values compute the wanted one. Known ones precede it."""
    seen: set[Instruction] = set()
    stack = [wanted]
    while stack:
        one = stack.pop()
        if one in known or one in seen:
            continue
        if not _is_cheap(one, readable):
            return False
        seen.add(one)
        if len(seen) > STEPS:
            return False
        stack += one.operands
    return True


def _is_cheap(instruction: Instruction, readable: set[Instruction]) -> bool:
    """Of arrays that do not last, a loop around this one would have to keep all elements for a few."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode in ("broadcast", "constant", "iota"):
        return True
    if opcode in ("reshape", "concatenate") or (opcode in _READS and operands[0] in readable):
        return not instruction.shape.is_open and math.prod(instruction.dims) <= FEW
    op = OPS[opcode]
    return op.family == "elementwise" and op.flops < CHEAP


def invariant(builder: Builder, computation: Computation, given: dict, wanted) -> dict[Instruction, Instruction]:
    """Emits the wanted instructions that depend only on given ones."""
    same: set[Instruction] = set(given)
    for instruction in computation.instructions:
        if instruction.opcode != "parameter" and all(o in same for o in instruction.operands):
            same.add(instruction)
    needed = {w for w in wanted if w in same}
    for instruction in reversed(computation.instructions):
        if instruction in needed and instruction not in given:
            needed.update(instruction.operands)
    mapped = dict(given)
    builder.add_copies([i for i in computation.instructions if i in needed], mapped)
    return {w: mapped[w] for w in wanted if w in same}


def with_few_residuals(
    forward: Computation, linear: Computation, count: int, readable: set[Instruction]
) -> tuple[Computation, Computation]:
    """The two parts of a linearized branch with the residuals that are worth keeping, and parameters of the branch.

    count: of the results in front of the residuals.
    """
    residuals, parameters = forward.outputs()[count:], linear.parameters
    given = {p for p in forward.parameters if not p.shape.dims or p in readable}
    kept = worth_stacking(forward, residuals, given, readable)
    needed = sources(residuals, {*given, *kept})
    inner = Builder(linear.name)
    known = {s: inner.parameter(s.shape, s.hint, s.source) for s in needed}
    tangents = [inner.parameter(p.shape, p.hint, p.source) for p in parameters[len(residuals) :]]
    again = invariant(inner, forward, known, residuals)
    second = inner.finish(inner.tuple(place(inner, linear, [*(again[r] for r in residuals), *tangents])))
    first = Builder(forward.name)
    first.parameters, first.instructions = list(forward.parameters), list(forward.instructions)
    return sweep(first.finish(first.tuple([*forward.outputs()[:count], *needed]))), sweep(second)

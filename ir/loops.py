"""Lowering of scan to a while loop, HLO's form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hloom.ir.build import Builder, tuple_elements
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops.programs.control import split_scan
from hloom.ir.rewrite import sweep
from hloom.ir.sizes.expressions import Size, is_known
from hloom.ir.types import DTYPES, Shape

INDEX = DTYPES["s32"]
WIDE_INDEX = DTYPES["s64"]


def lower_scans(module: Module) -> Module:
    """The module with every scan, at any depth, as a while loop; the same object when there is none."""
    if not any(i.opcode == "scan" for i in module.instructions()):
        return module
    done: dict[int, Computation] = {}
    for computation in module.computations():  # callees first
        lowered = _lowered(computation, done)
        if lowered is not computation:
            done[id(computation)] = lowered
    return module.with_entry(done[id(module.entry)])


def _lowered(computation: Computation, done: dict[int, Computation]) -> Computation:
    """The computation with its scans lowered, and called computations replaced by those in `done`."""
    builder = Builder(computation.name)
    mapped: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        current = instruction.replaced(mapped, done)
        if instruction.opcode == "scan":
            with builder.provenance(instruction, "lower-scans"):
                mapped[instruction] = lower_scan(builder, current)
            continue
        if current is not instruction:
            mapped[instruction] = current
        builder.add(current)
    if not mapped:
        return computation
    root = mapped.get(computation.root, computation.root)
    return Computation(computation.name, computation.parameters, builder.instructions, root)


def lower_scan(builder: Builder, scan: Instruction) -> Instruction:
    """Emits the loop of a scan; returns a tuple of the scan's shape.

    A scan of one step becomes its body. The state of the loop: the counter, constants, carry, ys, xs.
    """
    length, body = scan["length"], scan["body"]
    consts, carry, xs = split_scan(scan.attributes, scan.operands)
    ys_shapes = scan.shape.elements[len(carry) :]
    if is_known(length == 0):
        return builder.tuple([*carry, *(builder.splat(0, s) for s in ys_shapes)])
    if is_known(length == 1):
        slices = [builder.emit("reshape", x, shape=x.shape.with_dims(x.dims[1:])) for x in xs]
        results = tuple_elements(builder, builder.inline(body, [*consts, *carry, *slices]))
        ys = [builder.emit("reshape", y, shape=s) for y, s in zip(results[len(carry) :], ys_shapes, strict=True)]
        return builder.tuple([*results[: len(carry)], *ys])
    numbered = [_is_numbers(x) for x in xs]
    xs = [x for x, n in zip(xs, numbered, strict=True) if not n]
    reverse = scan.attributes.get("reverse", False)
    index = INDEX if is_known(length < 2**31 - 1) else WIDE_INDEX
    start = builder.splat(length - 1 if reverse else 0, Shape(index))
    ys = [builder.splat(0, s) for s in ys_shapes]
    state = builder.tuple([start, *consts, *carry, *ys, *xs])
    name = scan.hint or "scan"
    loop = builder.emit(
        "while",
        state,
        condition=_condition(f"{name}_condition", state.shape, length, reverse, builder),
        body=_body(f"{name}_body", state.shape, scan, numbered, reverse, builder),
        hint=scan.hint,
    )
    first = 1 + len(consts)
    return builder.tuple(
        [builder.emit("get-tuple-element", loop, index=first + k) for k in range(len(carry) + len(ys))]
    )


def _inner(name: str, outer: Builder) -> Builder:
    builder = Builder(name)
    builder.source, builder.made_by = outer.source, outer.made_by
    return builder


def _condition(name: str, shape, length: Size, reverse: bool, outer: Builder) -> Computation:
    builder = _inner(name, outer)
    count = builder.emit("get-tuple-element", builder.parameter(shape, "state"), index=0)
    limit = builder.splat(0 if reverse else length, Shape(count.dtype))
    return builder.finish(builder.emit("compare", count, limit, direction="GE" if reverse else "LT"))


def _is_numbers(x: Instruction) -> bool:
    """Whether an input is the numbers of the steps, which the loop counts anyway."""
    return x.opcode == "iota" and len(x.dims) == 1


def _body(name: str, shape, scan: Instruction, numbered: list[bool], reverse: bool, outer: Builder) -> Computation:
    builder = _inner(name, outer)
    parameter = builder.parameter(shape, "state")
    count, *rest = [builder.emit("get-tuple-element", parameter, index=k) for k in range(len(shape.elements))]
    consts, carry, both = split_scan(scan.attributes, rest)
    _, _, given = split_scan(scan.attributes, scan.operands)
    ys, xs = both[: len(scan.shape.elements) - len(carry)], both[len(scan.shape.elements) - len(carry) :]
    zero = builder.constant(np.array(0, count.dtype))
    one = builder.constant(np.array(1, count.dtype))
    slices = []
    stored = iter(xs)
    for x, is_number in zip(given, numbered, strict=True):
        if is_number:
            number = count if count.dtype == x.dtype else builder.emit("convert", count, shape=Shape(x.dtype))
            slices.append(number)
            continue
        x = next(stored)
        sizes = (1, *x.dims[1:])
        row = builder.emit("dynamic-slice", x, count, *[zero] * (len(x.dims) - 1), dynamic_slice_sizes=sizes)
        slices.append(builder.emit("reshape", row, shape=x.shape.with_dims(x.dims[1:])))
    results = tuple_elements(builder, builder.inline(scan["body"], [*consts, *carry, *slices]))
    updated = []
    for y, value in zip(ys, results[len(carry) :], strict=True):
        row = builder.emit("reshape", value, shape=y.shape.with_dims((1, *y.dims[1:])))
        updated.append(builder.emit("dynamic-update-slice", y, row, count, *[zero] * (len(y.dims) - 1)))
    following = builder.emit("subtract" if reverse else "add", count, one)
    return sweep(builder.finish(builder.tuple([following, *consts, *results[: len(carry)], *updated, *xs])))


class _Value(NamedTuple):
    """An instruction as seen by the caller of its computation: looks through calls, including fused kernels."""

    instruction: Instruction
    given: dict[Instruction, _Value]  # values of its computation's parameters, at the call

    @property
    def opcode(self) -> str:
        return self.instruction.opcode

    def operand(self, number: int) -> _Value:
        return _value(self.instruction.operands[number], self.given)


def _value(instruction: Instruction, given: dict[Instruction, _Value] | None = None) -> _Value:
    given = given or {}
    while True:
        if instruction in given:
            instruction, given = given[instruction]
        elif instruction.opcode in ("call", "fusion"):
            callee = instruction["to_apply" if instruction.opcode == "call" else "calls"]
            values = [_value(operand, given) for operand in instruction.operands]
            instruction, given = callee.root, dict(zip(callee.parameters, values, strict=True))
        elif instruction.opcode == "get-tuple-element":
            pair = _value(instruction.operands[0], given)
            if pair.opcode != "tuple":
                return _Value(instruction, given)
            instruction, given = pair.instruction.operands[instruction["index"]], pair.given
        else:
            return _Value(instruction, given)


def _state_index(value: _Value) -> int | None:
    """The index of a value in a loop's state."""
    is_element = value.opcode == "get-tuple-element" and value.operand(0).opcode == "parameter"
    return value.instruction["index"] if is_element else None


def counted_trips(loop: Instruction) -> int | None:
    """The trip count of a while loop that counts an element of its state up to a constant; None if unknown.

    It recognizes loops from `lower_scan` and loops of the same form from front ends.
    """
    start, condition = loop.operands[0], _value(loop["condition"].root)
    if condition.opcode != "compare" or start.opcode != "tuple":
        return None
    count, limit = condition.operand(0), condition.operand(1)
    position = _state_index(count)
    if limit.opcode != "constant" or position is None:
        return None
    initial, body = start.operands[position], _value(loop["body"].root)
    if body.opcode != "tuple" or initial.opcode != "constant" or initial.shape.dims:
        return None
    following = body.operand(position)
    if following.opcode not in ("add", "subtract") or _state_index(following.operand(0)) != position:
        return None
    change = following.operand(1)
    if change.opcode != "constant":
        return None
    step = int(change.instruction["value"]) * (1 if following.opcode == "add" else -1)
    first, last = int(initial["value"]), int(limit.instruction["value"])
    # Only towards the limit, so that the counter cannot wrap around.
    if condition.instruction["direction"] == "LT" and step > 0:
        return max(0, -(-(last - first) // step))
    if condition.instruction["direction"] == "LE" and step > 0:
        return max(0, (last - first) // step + 1)
    if condition.instruction["direction"] == "GT" and step < 0:
        return max(0, -(-(first - last) // -step))
    if condition.instruction["direction"] == "GE" and step < 0:
        return max(0, (first - last) // -step + 1)
    return None


__all__ = ["counted_trips", "lower_scan", "lower_scans"]

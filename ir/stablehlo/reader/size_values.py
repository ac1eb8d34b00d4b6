"""Symbolic evaluation of sizes: the values of instructions that depend only on constants and sizes.

Ops with sizes as operands take vectors of integers, which a program computes from `get_dimension_size` by arithmetic,
slices and concatenations. Their elements are tracked here as sizes: integers, or expressions of the dimensions of
arguments. Integers of a dtype wrap around. Whether a size fits in its dtype is a decision (`n <= 2147483647`), and so
are the sign of a divided size and a comparison of sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from hloom.ir.interpret import evaluate_instruction
from hloom.ir.module import Computation, Instruction
from hloom.ir.op_table import OPS
from hloom.ir.sizes.expressions import Size, SizeExpression, greatest, least
from hloom.ir.types import PRED, Shape

__all__ = ["Given", "Values"]

_LARGEST = 1 << 16  # maximum elements of values that are evaluated during conversion
_MOST_SIZES = 256  # maximum elements of values that are tracked as sizes


class Given:
    """Arguments whose values are sizes, each a scalar integer. sizes: by parameter. asked: those that the conversion
    depends on."""

    def __init__(self) -> None:
        self.sizes: dict[Instruction, Size] = {}
        self.asked: set[Instruction] = set()


class Values:
    """The values of instructions of one computation. given: sizes among the arguments."""

    def __init__(self, given: Given | None = None):
        self._given = given or Given()
        self._outer: dict[Instruction, tuple[Values, Instruction]] = {}
        self._constants: dict[int, tuple[Instruction, Any]] = {}  # by id
        self._sizes: dict[int, tuple[Instruction, np.ndarray | None]] = {}

    def constant(self, instruction: Instruction) -> np.ndarray | None:
        """The value of an instruction that depends on no parameter, evaluated by the references; otherwise None."""
        return _evaluated(instruction, self._constants, self._constant)

    def _constant(self, instruction: Instruction, operands: list) -> Any:
        opcode, shape = instruction.opcode, instruction.shape
        if opcode == "constant":
            return instruction["value"]
        if opcode in ("parameter", "custom-call") or OPS[opcode].effects or any(o is None for o in operands):
            return None
        if opcode == "size" and isinstance(instruction["value"], SizeExpression):
            return None
        if isinstance(shape, Shape) and (shape.is_open or shape.size > _LARGEST):
            return None
        return evaluate_instruction(instruction, operands)

    def same(self, instruction: Instruction, values: Values, outside: Instruction) -> None:
        """Records that an instruction is the value of another one in another computation."""
        self._outer[instruction] = values, outside

    def sizes(self, instruction: Instruction) -> np.ndarray | None:
        """The value of an instruction as an array of objects: sizes, or booleans of comparisons of sizes. None if it
        depends on the values of arguments."""
        return _evaluated(instruction, self._sizes, self._sizes_of)

    def _sizes_of(self, instruction: Instruction, operands: list) -> Any:
        """The value of an instruction, or those of the elements of a tuple in a list."""
        shape, is_complete = instruction.shape, all(o is not None for o in operands)
        if instruction.opcode == "tuple":
            return operands
        if instruction.opcode == "call" and is_complete:
            return self._called(instruction["to_apply"], operands)
        if instruction.opcode == "get-tuple-element" and instruction not in self._outer:
            return operands[0][instruction["index"]] if is_complete else None
        if not isinstance(shape, Shape) or shape.is_open or shape.size > _MOST_SIZES or shape.dtype.kind not in "iub":
            return None
        constant = self.constant(instruction)
        if constant is not None:
            return constant.astype(object)
        if instruction in self._given.sizes:
            self._given.asked.add(instruction)
            return _array([self._given.sizes[instruction]], shape)
        if instruction in self._outer:
            values, outside = self._outer[instruction]
            return values.sizes(outside)
        rule = _RULES.get(instruction.opcode)
        return None if rule is None or not is_complete else rule(instruction, operands)

    def _called(self, computation: Computation, operands: list) -> Any:
        inner = Values()
        inner._sizes = {id(p): (p, o) for p, o in zip(computation.parameters, operands, strict=True)}
        return inner.sizes(computation.root)


def _evaluated(instruction: Instruction, found: dict[int, tuple[Instruction, Any]], value_of: Callable) -> Any:
    """The value of an instruction from its operands' values. found: values by id, with their instructions."""
    stack = [instruction]
    while stack:
        top = stack[-1]
        if id(top) in found:
            stack.pop()
            continue
        waiting = [o for o in top.operands if id(o) not in found]
        if waiting:
            stack.extend(waiting)
            continue
        found[id(top)] = (top, value_of(top, [found[id(o)][1] for o in top.operands]))
    return found[id(instruction)][1]


def _array(elements: list, shape: Shape) -> np.ndarray:
    made = np.empty(math.prod(shape.dims), object)
    made[:] = elements
    return made.reshape(shape.dims)


def _rows(operands: Sequence[np.ndarray]) -> Iterable[tuple]:
    """The corresponding elements of operands, with scalars broadcast."""
    return zip(*[o.reshape(-1).tolist() for o in np.broadcast_arrays(*operands)], strict=True)


# --- ops ----------------------------------------------------------------------------------------------------------

_RULES: dict[str, Callable[[Instruction, list], np.ndarray | None]] = {}


def _rule(*opcodes: str) -> Callable:
    def register(function: Callable) -> Callable:
        _RULES.update(dict.fromkeys(opcodes, function))
        return function

    return register


def _each(opcode: str, function: Callable, takes_pred: bool = False) -> None:
    """The rule of an element-wise op, whose results wrap around in their dtype."""

    def rule(instruction: Instruction, operands: list) -> np.ndarray | None:
        shape = instruction.shape
        if any(i.shape.dtype == PRED for i in instruction.operands) and not takes_pred:
            return None
        elements = []
        for row in _rows(operands):
            element = function(*row)
            if element is None:
                return None
            elements.append(bool(element) if shape.dtype == PRED else _wrapped(element, shape.dtype))
        return _array(elements, shape)

    _RULES[opcode] = rule


def _wrapped(value: Size, dtype: np.dtype) -> Size:
    """An integer in a dtype. Whether it fits is a decision."""
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    return value if value >= low and value <= high else (value - low) % (high - low + 1) + low


def _divided(a: Size, b: Size) -> Size | None:
    """The quotient, rounded towards 0; None for a quotient by 0."""
    if b == 0:
        return None
    a, b = (a, b) if b > 0 else (-a, -b)
    return a // b if a >= 0 else -(-a // b)


def _remainder(a: Size, b: Size) -> Size | None:
    quotient = _divided(a, b)
    return None if quotient is None else a - b * quotient


def _sign(a: Size) -> int:
    return 0 if a == 0 else 1 if a > 0 else -1


_each("add", lambda a, b: a + b)
_each("subtract", lambda a, b: a - b)
_each("multiply", lambda a, b: a * b)
_each("divide", _divided)
_each("remainder", _remainder)
_each("negate", lambda a: -a)
_each("abs", lambda a: greatest(a, -a))
_each("sign", _sign)
_each("maximum", greatest)
_each("minimum", least)
_each("clamp", lambda low, a, high: least(greatest(a, low), high))
_each("convert", lambda a: int(a) if isinstance(a, bool) else a, takes_pred=True)
_each("select", lambda chosen, a, b: a if chosen else b, takes_pred=True)
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "GE": lambda a, b: a >= b,
    "GT": lambda a, b: a > b,
    "LE": lambda a, b: a <= b,
    "LT": lambda a, b: a < b,
}
_BOOLEAN: dict[str, Callable[[Sequence], bool]] = {
    "and": all,
    "or": any,
    "xor": lambda bits: bits[0] != bits[1],
    "not": lambda bits: not bits[0],
}


@_rule("compare")
def _compare(instruction: Instruction, operands: list) -> np.ndarray:
    compared = _COMPARED[instruction["direction"]]
    return _array([bool(compared(a, b)) for a, b in _rows(operands)], instruction.shape)


@_rule(*_BOOLEAN)
def _boolean(instruction: Instruction, operands: list) -> np.ndarray | None:
    if instruction.shape.dtype != PRED:
        return None
    return _array([_BOOLEAN[instruction.opcode](row) for row in _rows(operands)], instruction.shape)


@_rule("size")
def _size(instruction: Instruction, operands: list) -> np.ndarray:
    return _array([_wrapped(instruction["value"], instruction.shape.dtype)], instruction.shape)


@_rule("reshape")
def _reshape(instruction: Instruction, operands: list) -> np.ndarray:
    return operands[0].reshape(instruction.shape.dims)


@_rule("broadcast")
def _broadcast(instruction: Instruction, operands: list) -> np.ndarray:
    shape, dimensions = instruction.shape, instruction["dimensions"]
    spread = [operands[0].shape[dimensions.index(k)] if k in dimensions else 1 for k in range(shape.rank)]
    return np.broadcast_to(operands[0].reshape(spread), shape.dims)


@_rule("concatenate")
def _concatenate(instruction: Instruction, operands: list) -> np.ndarray:
    return np.concatenate(operands, instruction["dimensions"][0])


@_rule("slice")
def _slice(instruction: Instruction, operands: list) -> np.ndarray:
    return operands[0][tuple([slice(*part) for part in instruction["slice"]])]


@_rule("transpose")
def _transpose(instruction: Instruction, operands: list) -> np.ndarray:
    return operands[0].transpose(instruction["dimensions"])

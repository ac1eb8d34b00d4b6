"""Patterns of instructions, for rewrite rules (`rewrite`).

Arithmetic on patterns makes patterns of the HLO ops: `x - x`, `sqrt(x) * c`. A pattern matches, captures instructions
by name, and builds the instruction that it describes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from hloom.ir.module import Instruction
from hloom.ir.types import Shape


class Emitter(Protocol):
    """The builder interface for results of rules."""

    def emit(self, opcode: str, *operands: Instruction, **attributes: object) -> Instruction:
        """`opcode(operands)` with its inferred shape."""

    def splat(self, number: object, shape: Shape) -> Instruction:
        """A number broadcast to a shape."""


_SPLATS = frozenset(("constant", "broadcast"))


class Pattern(ABC):
    """A predicate on instructions. Arithmetic on patterns makes patterns of the HLO ops.

    Numbers in patterns match splats: scalar constants or broadcasts of them, compared bit for bit (0 is not -0).
    """

    __slots__ = ()

    @abstractmethod
    def match(self, instruction: Instruction, captures: dict[str, Instruction]) -> bool:
        """Whether the instruction matches; instructions matched by names in the pattern are added to `captures`."""

    @abstractmethod
    def build(self, rewriter: Emitter, root: Instruction, captures: dict[str, Instruction]) -> Instruction:
        """The instruction that the pattern describes, as the result of a rule that matched `root`."""

    def names(self) -> Iterator[str]:
        return iter(())

    def opcodes_matched(self) -> frozenset[str] | None:
        """The opcodes of matching instructions; None: any."""
        return None

    def __add__(self, other):
        return Op("add", self, other)

    def __radd__(self, other):
        return Op("add", other, self)

    def __sub__(self, other):
        return Op("subtract", self, other)

    def __rsub__(self, other):
        return Op("subtract", other, self)

    def __mul__(self, other):
        return Op("multiply", self, other)

    def __rmul__(self, other):
        return Op("multiply", other, self)

    def __truediv__(self, other):
        return Op("divide", self, other)

    def __rtruediv__(self, other):
        return Op("divide", other, self)

    def __pow__(self, other):
        return Op("power", self, other)

    def __neg__(self):
        return Op("negate", self)


class Any(Pattern):
    """Matches any instruction; a name that occurs twice matches the same instruction twice."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def match(self, instruction, captures):
        return captures.setdefault(self.name, instruction) is instruction

    def build(self, rewriter, root, captures):
        return captures[self.name]

    def names(self):
        yield self.name


class Splat(Pattern):
    """Matches a scalar constant or a broadcast of one, and captures it under `name`."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def opcodes_matched(self):
        return _SPLATS

    def match(self, instruction, captures):
        return splat_value(instruction) is not None and captures.setdefault(self.name, instruction) is instruction

    def build(self, rewriter, root, captures):
        return captures[self.name]

    def names(self):
        yield self.name


class Number(Pattern):
    """Matches the splats of one number; as a result, that number in the shape and dtype of the root."""

    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number

    def opcodes_matched(self):
        return _SPLATS

    def match(self, instruction, captures):
        value = splat_value(instruction)
        return value is not None and same_bits(value, self.number)

    def build(self, rewriter, root, captures):
        return rewriter.splat(self.number, root.shape)


class Op(Pattern):
    """Matches an instruction with one of some opcodes whose operands match; `name` captures it.

    `Op("reshape | transpose", x)`: one opcode or several. Without operand patterns, any operands match. `some`,
    `every`: at least one operand, or every operand (of at least one), has one of these opcodes. `where`: attribute name
    -> required value.
    """

    __slots__ = ("opcodes", "operands", "name", "some", "every", "where")

    def __init__(self, opcodes: str, *operands, name: str | None = None, some: str = "", every: str = "", **where):
        self.opcodes = tuple(opcodes.split(" | "))
        self.operands = tuple(o if isinstance(o, Pattern) else Number(o) for o in operands)
        self.name = name
        self.some = frozenset(some.split(" | ")) if some else None
        self.every = frozenset(every.split(" | ")) if every else None
        self.where = where

    def opcodes_matched(self):
        return None if "*" in self.opcodes else frozenset(self.opcodes)

    def may_match(self, operands: tuple[str, ...]) -> bool:
        """Whether an instruction whose operands have these opcodes can match, regardless of its own opcode."""
        if self.some is not None and self.some.isdisjoint(operands):
            return False
        if self.every is not None and not (operands and self.every.issuperset(operands)):
            return False
        if not self.operands:
            return True
        if len(self.operands) != len(operands):
            return False
        wanted = [pattern.opcodes_matched() for pattern in self.operands]
        return all(opcodes is None or o in opcodes for opcodes, o in zip(wanted, operands, strict=True))

    def match(self, instruction, captures):
        if instruction.opcode not in self.opcodes:
            return False
        if (self.some or self.every) and not self.may_match(tuple(o.opcode for o in instruction.operands)):
            return False
        return self.match_operands(instruction, captures)

    def match_operands(self, instruction, captures):
        """As `match`, for an instruction with one of the opcodes for whose operands `may_match` holds."""
        if self.operands:
            if len(self.operands) != len(instruction.operands):
                return False
            for pattern, operand in zip(self.operands, instruction.operands, strict=True):
                if not pattern.match(operand, captures):
                    return False
        for attribute, value in self.where.items():
            if instruction.attributes.get(attribute) != value:
                return False
        return self.name is None or captures.setdefault(self.name, instruction) is instruction

    def build(self, rewriter, root, captures):
        """The op on the built operands. A number takes the shape of the first operand that is not a number."""
        shape = root.shape
        for operand in self.operands:
            if not isinstance(operand, Number):
                shape = operand.build(rewriter, root, captures).shape
                break
        operands = [
            rewriter.splat(o.number, shape) if isinstance(o, Number) else o.build(rewriter, root, captures)
            for o in self.operands
        ]
        return rewriter.emit(self.opcodes[0], *operands, **self.where)

    def names(self):
        if self.name:
            yield self.name
        for operand in self.operands:
            yield from operand.names()


def as_op(opcode: str) -> Callable[..., Op]:
    """A function that makes patterns of the opcode: `sqrt = as_op("sqrt")`, then `sqrt(x)`."""
    return lambda *operands, name=None, **where: Op(opcode, *operands, name=name, **where)


def splat_value(instruction: Instruction) -> np.ndarray | None:
    """The rank-0 value of a scalar constant or of a broadcast of one; None for anything else."""
    if instruction.opcode == "broadcast":
        instruction = instruction.operands[0]
    if instruction.opcode == "constant":
        value = instruction.attributes["value"]
        if value.ndim == 0:
            return value
    return None


def is_splat_of(instruction: Instruction, number) -> bool:
    """Whether every element is exactly this number, compared by `same_bits`."""
    value = splat_value(instruction)
    return value is not None and same_bits(value, number)


def same_bits(value: np.ndarray, number) -> bool:
    """Whether a rank-0 array is exactly this number: 0 is not -0, NaN is NaN, 0.5 is not an integer."""
    with np.errstate(all="ignore"):
        try:
            wanted = np.asarray(number).astype(value.dtype)
        except (OverflowError, TypeError):
            return False
        if wanted.tobytes() != value.tobytes():
            return False
        return bool(wanted == np.asarray(number)) or bool(number != number)

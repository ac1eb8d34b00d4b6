"""Specializes a program for given sizes of its named dimensions: sizes in shapes and attributes become numbers, or
sizes of other dimensions, and every shape is inferred again, so that impossible sizes are an error at the user's
line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hloom.ir.base_error import HloomError
from hloom.ir.errors import ShapeError
from hloom.ir.module import Computation, Instruction
from hloom.ir.op_table import OPS, RULE_ERRORS
from hloom.ir.ops.programs.sizes import check_room, size_value
from hloom.ir.sizes.expressions import Dim, Size, SizeExpression, size_at, size_with
from hloom.ir.types import Shape, TupleShape

__all__ = ["Renaming", "Specialization"]


class Specialization:
    """Computations for given sizes of dimensions, by name; shared computations are specialized once."""

    def __init__(self, sizes: Mapping[str, Size]):
        self.sizes = dict(sizes)
        numbers = {name: size for name, size in sizes.items() if not isinstance(size, SizeExpression)}
        self._numbers = numbers if len(numbers) == len(sizes) else None
        self._computations: dict[int, tuple[Computation, Computation]] = {}

    def computation(self, computation: Computation) -> Computation:
        """The computation for these sizes; itself if it does not depend on them.

        Raises ShapeError, at the user's line, if an operation cannot have these sizes.
        """
        known = self._computations.get(id(computation))
        if known is not None:
            return known[1]
        mapped: dict[Instruction, Instruction] = {}
        for instruction in computation.instructions:
            mapped[instruction] = self._instruction(instruction, mapped)
        result = computation
        if any(new is not old for old, new in mapped.items()):
            result = Computation(
                computation.name,
                [mapped[p] for p in computation.parameters],
                [mapped[i] for i in computation.instructions],
                mapped[computation.root],
            )
        self._computations[id(computation)] = computation, result
        return result

    def alone(self, instruction: Instruction) -> Instruction:
        """An instruction for these sizes whose operands are parameters. Raises ShapeError like `computation`."""
        parameters = {
            o: Instruction("parameter", (), self.shape(o.shape), {"index": k}, o.hint, o.source)
            for k, o in enumerate(dict.fromkeys(instruction.operands))
        }
        return self._instruction(instruction, parameters)

    def shape(self, shape: Any) -> Any:
        """A shape for these sizes. Raises ShapeError for a negative size."""
        if isinstance(shape, TupleShape):
            return TupleShape([self.shape(one) for one in shape.elements])
        return Shape(shape.dtype, tuple([self._size(d) for d in shape.dims]))

    def _number(self, size: Size) -> Size:
        return size_with(size, self.sizes) if self._numbers is None else size_at(size, self._numbers)

    def _size(self, size: Any) -> Size:
        found = self._number(size)
        if found < 0:
            raise ShapeError(f"a dimension of the size {size}", f"{self}: it is {found}", "pass larger arrays")
        return found

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, SizeExpression):
            return self._number(value)
        if isinstance(value, (Shape, TupleShape)):
            return self.shape(value)
        if isinstance(value, tuple):
            new = [self._attribute(v) for v in value]
            if all(a is b for a, b in zip(new, value, strict=True)):
                return value
            return type(value)(*new) if hasattr(value, "_fields") else tuple(new)
        if isinstance(value, list):
            return [self._attribute(v) for v in value]
        if isinstance(value, Computation):
            return self.computation(value)
        if hasattr(type(value), "__record_fields__"):
            fields = {name: getattr(value, name) for name in type(value).__record_fields__}
            changed = {name: self._attribute(v) for name, v in fields.items()}
            return type(value)(**changed) if any(changed[name] is not fields[name] for name in fields) else value
        return value

    def _instruction(self, instruction: Instruction, mapped: Mapping[Instruction, Instruction]) -> Instruction:
        opcode = instruction.opcode
        operands = tuple([mapped[o] for o in instruction.operands])
        try:
            shape = self.shape(instruction.shape)
            attributes = {name: self._attribute(value) for name, value in instruction.attributes.items()}
            if opcode == "size" and isinstance(attributes["value"], SizeExpression):
                check_room(shape, attributes["value"])
            elif opcode == "size":
                opcode, attributes = "constant", {"value": size_value(shape, **attributes)}
            same = all(attributes.get(name) is value for name, value in instruction.attributes.items())
            if same and shape is instruction.shape and operands == instruction.operands:
                return instruction
            if opcode not in ("parameter", "constant"):
                shape = OPS[opcode].infer([o.shape for o in operands], attributes, shape)
        except HloomError as error:
            raise self._refused(instruction, f"{error.asked}; {error.found}") from error
        except RULE_ERRORS as error:
            raise self._refused(instruction, str(error)) from error
        return _copy(instruction, operands, shape, attributes, opcode)

    def _refused(self, instruction: Instruction, found: str) -> ShapeError:
        return ShapeError(f"{instruction.opcode} for {self}", found, "pass arrays of other sizes", instruction.source)

    def __str__(self) -> str:
        return ", ".join(f"{name} = {size}" for name, size in self.sizes.items())


class Renaming(Specialization):
    """Computations with dimensions renamed to others of the same bounds, without new inference or decisions."""

    def __init__(self, dims: Mapping[str, Dim]):
        super().__init__(dims)

    def _size(self, size: Any) -> Size:
        return self._number(size)

    def _instruction(self, instruction: Instruction, mapped: Mapping[Instruction, Instruction]) -> Instruction:
        operands = tuple([mapped[o] for o in instruction.operands])
        shape = self.shape(instruction.shape)
        attributes = {name: self._attribute(value) for name, value in instruction.attributes.items()}
        same = all(attributes[name] is value for name, value in instruction.attributes.items())
        if same and shape is instruction.shape and operands == instruction.operands:
            return instruction
        return _copy(instruction, operands, shape, attributes)


def _copy(instruction: Instruction, operands: tuple, shape: Any, attributes: dict, opcode: str = "") -> Instruction:
    made = Instruction(
        opcode or instruction.opcode, operands, shape, attributes, instruction.hint, instruction.source,
        instruction.made_by,
    )  # fmt: skip
    made.sharding = instruction.sharding
    return made

"""cse: common subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops import OPS
from hloom.ir.rewrite import has_effects

# Constants up to this many bytes are compared by value, larger ones by identity.
COMPARED_BYTES = 4096


@module_pass("cse")
def eliminate_common_subexpressions(module: Module) -> Module:
    """Merges equal computations: same op, operands, attributes and called computations.

    The operands of commutative ops may be in either order.
    """
    keys = StructuralKeys()
    return change_computations(module, lambda computation: _eliminate(computation, keys))


class StructuralKeys:
    """Hashable keys of attributes and computations: equal keys mean equal semantics."""

    def __init__(self) -> None:
        self._computations: dict[int, tuple[Computation, Hashable]] = {}
        self._numbers: dict[tuple, int] = {}

    def attributes(self, instruction: Instruction) -> tuple:
        attributes = instruction.attributes
        return tuple([(name, self.value(attributes[name])) for name in sorted(attributes)]) if attributes else ()

    def value(self, value):
        if isinstance(value, np.ndarray):
            if value.nbytes > COMPARED_BYTES:
                return ("array", id(value))
            return (value.dtype.str, value.dtype.name, value.shape, value.tobytes())
        if isinstance(value, Computation):
            return self.computation(value)
        if isinstance(value, (list, tuple)):
            return tuple([self.value(v) for v in value])
        return (type(value).__name__, value)

    def computation(self, computation: Computation) -> Hashable:
        """The key of a computation, ignoring names and provenance."""
        known = self._computations.get(id(computation))
        if known is None:
            # The computation is stored with its key, so that its id is not reused.
            known = self._computations[id(computation)] = computation, self.shortened(self.rows(computation))
        return known[1]

    def shortened(self, rows: tuple) -> Hashable:
        """A number for the rows of a computation."""
        return self._numbers.setdefault(rows, len(self._numbers))

    def rows(self, computation: Computation) -> tuple:
        """The structure of a computation: an entry for each instruction, with operands by index, and the index of the
        root."""
        index: dict[Instruction, int] = {}
        rows = []
        for instruction in computation.instructions:
            index[instruction] = len(index)
            operands = tuple([index[o] for o in instruction.operands])
            rows.append((instruction.opcode, operands, instruction.shape, self.attributes(instruction)))
        return tuple(rows), index[computation.root]


class LastingKeys(StructuralKeys):
    """Keys that are valid across instances."""

    def shortened(self, rows: tuple) -> Hashable:
        return rows


def _eliminate(computation: Computation, keys: StructuralKeys) -> Computation:
    # Attributes are compared last.
    first: dict[tuple, Instruction | dict[tuple, Instruction]] = {}
    mapped: dict[Instruction, Instruction] = {}
    instructions: list[Instruction] = []
    for instruction in computation.instructions:
        current = instruction
        if mapped and any(o in mapped for o in instruction.operands):
            current = instruction.with_operands(tuple([mapped.get(o, o) for o in instruction.operands]))
            mapped[instruction] = current
        if instruction.opcode == "parameter" or has_effects(instruction):
            instructions.append(current)
            continue
        operands = tuple([id(o) for o in current.operands])
        if len(operands) == 2 and operands[0] > operands[1] and OPS[instruction.opcode].commutative:
            operands = operands[::-1]
        key = (instruction.opcode, operands, instruction.shape)
        found = first.setdefault(key, current)
        if found is not current:
            if isinstance(found, Instruction):
                found = first[key] = {keys.attributes(found): found}
            found = found.setdefault(keys.attributes(instruction), current)
        if found is current:
            instructions.append(current)
        else:
            mapped[instruction] = found
    if len(instructions) == len(computation.instructions):
        return computation
    root = mapped.get(computation.root, computation.root)
    return Computation(computation.name, computation.parameters, instructions, root)

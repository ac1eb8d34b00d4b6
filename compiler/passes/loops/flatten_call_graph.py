"""flatten-call-graph: makes computations of loops and branches unique, and orders them so that state can be
overwritten.

The schedule assigns storage to each instruction, so a computation with two callers is duplicated. Reads of an array
precede its updates wherever possible (`read_before_written`).
"""

from __future__ import annotations

from hloom.compiler.fusibility import IN_PLACE, is_control
from hloom.compiler.passes.loops.read_before_written import read_before_written
from hloom.compiler.passes.registry import module_pass
from hloom.compiler.transforms.inline import check_size
from hloom.ir.module import Computation, Instruction, Module


@module_pass("flatten-call-graph", "while", "conditional", *IN_PLACE)
def flatten_call_graph(module: Module) -> Module:
    """Makes the computations of loops and branches unique; orders reads of arrays before in-place updates."""
    check_size(module.entry)
    entry = read_before_written(_flattened(module.entry))
    return module if entry is module.entry else module.with_entry(entry)


def _flattened(computation: Computation) -> Computation:
    """The computation with copies of all computations that it runs, at any depth: computations may be shared, storage
    may not."""
    if not any(is_control(i) for i in computation.instructions):
        return computation
    mapped: dict[Instruction, Instruction] = {}
    instructions = []
    for instruction in computation.instructions:
        operands = tuple([mapped.get(o, o) for o in instruction.operands])
        if is_control(instruction):
            callees: dict[str, Computation | tuple[Computation, ...]] = {}
            for name, value in instruction.attributes.items():
                if isinstance(value, Computation):
                    callees[name] = _copied(value, is_body=name == "body")
                elif isinstance(value, tuple) and value and isinstance(value[0], Computation):
                    callees[name] = tuple([_copied(v, is_body=False) for v in value])
            new = instruction.with_operands(operands, **callees)
        elif operands != instruction.operands:
            new = instruction.with_operands(operands)
        else:
            new = instruction
        if new is not instruction:
            mapped[instruction] = new
        instructions.append(new)
    root = mapped.get(computation.root, computation.root)
    return Computation(computation.name, computation.parameters, instructions, root)


def _copied(computation: Computation, is_body: bool) -> Computation:
    mapped: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        mapped[instruction] = instruction.with_operands(tuple([mapped[o] for o in instruction.operands]))
    parameters = [mapped[p] for p in computation.parameters]
    copied = Computation(computation.name, parameters, list(mapped.values()), mapped[computation.root])
    return read_before_written(_flattened(copied), is_body)

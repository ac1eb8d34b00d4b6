"""Applying a change of one computation to all computations of a module that run as programs."""

from __future__ import annotations

from collections.abc import Callable

from hloom.ir.build import Builder
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops import OPS
from hloom.ir.rewrite import sweep

# Instructions whose computations are programs (call, while, conditional), as opposed to scalar combiners, which the
# kernel writer inlines, and fused computations, which are final.
RUNNING: frozenset[str] = frozenset(
    opcode
    for opcode, op in OPS.items()
    if opcode != "fusion" and op.family in ("structure", "control")
    if any(kind.startswith("computation") for kind in op.attributes.values())
)


def change_computations(module: Module, change: Callable[[Computation], Computation]) -> Module:
    """The module with `change` applied to its entry and all called computations, callees first; itself if nothing
    changed."""
    done: dict[int, Computation] = {}

    def visit(computation: Computation) -> Computation:
        found = done.get(id(computation))
        if found is None:
            found = done[id(computation)] = change(with_callees(computation, visit))
        return found

    entry = visit(module.entry)
    return module if entry is module.entry else module.with_entry(entry)


def with_callees(computation: Computation, visit: Callable[[Computation], Computation]) -> Computation:
    """The computation with each callee that is a program replaced by `visit(callee)`."""
    if not any([i.opcode in RUNNING for i in computation.instructions]):
        return computation
    mapped: dict[Instruction, Instruction] = {}
    instructions = []
    for instruction in computation.instructions:
        callees = {id(c): visit(c) for c in instruction.called()} if instruction.opcode in RUNNING else {}
        new = instruction.replaced(mapped, callees)
        if new is not instruction:
            mapped[instruction] = new
        instructions.append(new)
    if not mapped:
        return computation
    root = mapped.get(computation.root, computation.root)
    return Computation(computation.name, computation.parameters, instructions, root)


def replaced(
    computation: Computation,
    made_by: str,
    wanted: Callable[[Instruction], bool],
    make: Callable[[Builder, Instruction, Instruction], Instruction | list[Instruction] | None],
) -> Computation:
    """The computation with instructions replaced by those that `make` emits; itself if nothing changes.

    make(builder, instruction, original) -> the new instruction, the elements of a tuple, or None to keep the
    instruction. instruction: with new operands; original: unchanged.
    """
    if not any(wanted(i) for i in computation.instructions):
        return computation
    builder = Builder(computation.name)
    mapped: dict[Instruction, Instruction] = {}
    changed = False
    for original in computation.instructions:
        operands = tuple([mapped.get(o, o) for o in original.operands])
        current = original if operands == original.operands else original.with_operands(operands)
        made: Instruction | None = None
        if wanted(original):
            with builder.provenance(original, made_by):
                found = make(builder, current, original)
            made = builder.tuple(found) if isinstance(found, list) else found
            changed = changed or made is not None
            if made is not None and not made.hint and made.opcode not in ("parameter", "constant", "tuple"):
                made.hint = original.hint
        elif current is not original and current.opcode == "get-tuple-element" and operands[0].opcode == "tuple":
            made = operands[0].operands[current["index"]]
        made = made or builder.add(current)
        if made is not original:
            mapped[original] = made
    if not changed:
        return computation
    root = mapped.get(computation.root, computation.root)
    return sweep(Computation(computation.name, computation.parameters, builder.instructions, root))

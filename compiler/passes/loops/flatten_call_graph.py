"""flatten-call-graph: every loop and branch calls its own computations, whose order lets state be overwritten.

The schedule assigns storage to each instruction, so a computation that two instructions call stands twice. In the body
of a loop, what reads the old state precedes what computes the new one, wherever that is possible.
"""

from __future__ import annotations

import heapq

from hloom.compiler.fusibility import ALIASES, FREE, is_control
from hloom.compiler.passes.registry import module_pass
from hloom.compiler.transforms.inline import check_size
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.rewrite import has_effects


@module_pass("flatten-call-graph", "while", "conditional")
def flatten_call_graph(module: Module) -> Module:
    """Gives every loop and branch its own computations; in loop bodies, state is read before it is overwritten."""
    check_size(module.entry)
    entry = _flattened(module.entry)
    return module if entry is module.entry else module.with_entry(entry)


def _flattened(computation: Computation) -> Computation:
    """The computation with copies of all that it runs, at any depth: computations may be shared, storage may not."""
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
                    callees[name] = _copied(value, ordered=name == "body")
                elif isinstance(value, tuple) and value and isinstance(value[0], Computation):
                    callees[name] = tuple([_copied(v, ordered=False) for v in value])
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


def _copied(computation: Computation, ordered: bool) -> Computation:
    mapped: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        mapped[instruction] = instruction.with_operands(tuple([mapped[o] for o in instruction.operands]))
    parameters = [mapped[p] for p in computation.parameters]
    copied = Computation(computation.name, parameters, list(mapped.values()), mapped[computation.root])
    copied = _flattened(copied)
    return read_before_written(copied) if ordered else copied


def elements(computation: Computation) -> list[Instruction | None]:
    """What computes each element of a body's result, through elements of kernels with several; None for no work."""
    outputs = computation.root.operands if computation.root.opcode == "tuple" else (computation.root,)
    makers: list[Instruction | None] = []
    for output in outputs:
        while output.opcode in ALIASES or (output.opcode == "get-tuple-element"):
            output = output.operands[0]
        makers.append(None if output.opcode in FREE else output)
    return makers


def read_before_written(body: Computation) -> Computation:
    """The body in an order in which the readers of an element of the state precede the maker of its next value,
    wherever that is possible: the maker may then overwrite it."""
    order = {i: k for k, i in enumerate(body.instructions)}
    before: dict[Instruction, set[Instruction]] = {i: set(i.operands) for i in body.instructions}
    users = body.users()
    last_effect = None
    for instruction in body.instructions:
        if has_effects(instruction):
            if last_effect is not None:
                before[instruction].add(last_effect)
            last_effect = instruction
    (parameter,) = body.parameters
    if body.root.opcode != "tuple":
        return body
    makers = elements(body)
    moved = False
    readers: dict[int, set[Instruction]] = {}
    for user in users[parameter]:
        if user.opcode == "get-tuple-element":
            readers.setdefault(user["index"], set()).update(_readers(user, users))
    for k, maker in enumerate(makers):
        if maker is None:
            continue
        for reader in readers.get(k, ()):
            if reader is maker or reader in before[maker] or _depends(reader, maker, before):
                continue
            before[maker].add(reader)
            moved = moved or order[reader] > order[maker]
    return _sorted(body, before, order) if moved else body


def _readers(value: Instruction, users) -> set[Instruction]:
    """The work that reads a value, through reshapes and tuples."""
    found: set[Instruction] = set()
    stack, seen = [value], set()
    while stack:
        for user in users[stack.pop()]:
            if user in seen:
                continue
            seen.add(user)
            if user.opcode in FREE:
                stack.append(user)
            else:
                found.add(user)
    return found


def _depends(instruction: Instruction, other: Instruction, before) -> bool:
    """Whether `instruction` has to come after `other`."""
    stack, seen = [instruction], set()
    while stack:
        current = stack.pop()
        if current is other:
            return True
        for earlier in before[current]:
            if earlier not in seen:
                seen.add(earlier)
                stack.append(earlier)
    return False


def _sorted(body: Computation, before, order) -> Computation:
    """Topological, and otherwise as it was."""
    waiting = {i: len(needs) for i, needs in before.items()}
    after: dict[Instruction, list[Instruction]] = {i: [] for i in before}
    for instruction, needs in before.items():
        for need in needs:
            after[need].append(instruction)
    ready = [(order[i], i) for i, count in waiting.items() if not count]
    heapq.heapify(ready)
    instructions = []
    while ready:
        _, instruction = heapq.heappop(ready)
        instructions.append(instruction)
        for following in after[instruction]:
            waiting[following] -= 1
            if not waiting[following]:
                heapq.heappush(ready, (order[following], following))
    return Computation(body.name, body.parameters, instructions, body.root)

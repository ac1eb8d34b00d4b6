"""Module, Computation, Instruction: the graph.

SSA in program order: a computation's `instructions` are in a topological order that preserves the sequence of effects.
Instructions are immutable; passes build new computations and share unchanged instructions. The printer derives stable
and unique names from `hint`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hloom.ir.records import record
from hloom.ir.sizes.expressions import Comparison
from hloom.ir.source import Source
from hloom.ir.types import Shape, TupleShape

AnyShape = Shape | TupleShape


class Instruction:
    """One operation on the results of others.

    opcode: the HLO name, a key of the op table (`hloom.ir.ops.OPS`).
    attributes: as the op's entry declares them; including called computations (`to_apply`, `calls`). hint: its
    preferred name in text. source: the user's line. made_by: names of the rules and passes that created it. settled:
    bits of rule tables known not to change it (`rewrite`). opcodes: its own and its operands', for the lookup of rules;
    computed on first use. sharding: a `Sharding` (for a tuple, a tuple of them), or None if unspecified
    (`hloom.ir.spmd.sharding`).
    """

    __slots__ = (
        "opcode", "operands", "shape", "attributes", "hint", "source", "made_by", "settled", "opcodes", "sharding",
    )  # fmt: skip

    def __init__(
        self,
        opcode: str,
        operands: tuple[Instruction, ...],
        shape: AnyShape,
        attributes: dict[str, Any] | None = None,
        hint: str = "",
        source: Source | None = None,
        made_by: tuple[str, ...] = (),
    ):
        self.opcode = opcode
        self.operands = operands
        self.shape: Any = shape  # a Shape or a TupleShape, depending on the opcode
        self.attributes = attributes or {}
        self.hint = hint
        self.source = source
        self.made_by = made_by
        self.settled = 0
        self.opcodes: tuple[str, ...] | None = None
        self.sharding: Any = None

    def __getitem__(self, attribute: str):
        return self.attributes[attribute]

    @property
    def dtype(self):
        return self.shape.dtype

    @property
    def dims(self) -> tuple[int, ...]:
        return self.shape.dims

    @property
    def device(self) -> str:
        """The device that the user chose for it, or ''."""
        return self.source.device if self.source is not None else ""

    def called(self) -> list[Computation]:
        """The computations that this instruction calls, in the order of its attributes."""
        found = []
        for value in self.attributes.values():
            if isinstance(value, Computation):
                found.append(value)
            elif isinstance(value, tuple) and value and isinstance(value[0], Computation):
                found += value
        return found

    def replaced(
        self, operands: Mapping[Instruction, Instruction], computations: Mapping[int, Computation]
    ) -> Instruction:
        """The instruction with its operands and called computations (by id) replaced by the maps; itself if neither
        changes."""
        callees: dict[str, Any] = {}
        for name, value in self.attributes.items():
            new = value
            if isinstance(value, Computation):
                new = computations.get(id(value), value)
            elif isinstance(value, tuple) and value and isinstance(value[0], Computation):
                new = tuple([computations.get(id(v), v) for v in value])
                new = value if all(a is b for a, b in zip(new, value, strict=True)) else new
            if new is not value:
                callees[name] = new
        if not callees and not any([o in operands for o in self.operands]):
            return self
        return self.with_operands(tuple([operands.get(o, o) for o in self.operands]), **callees)

    def with_operands(self, operands: tuple[Instruction, ...], **attributes) -> Instruction:
        """A copy with other operands (and attributes), same provenance."""
        merged = {**self.attributes, **attributes} if attributes else self.attributes
        made = Instruction(self.opcode, operands, self.shape, merged, self.hint, self.source, self.made_by)
        made.sharding = self.sharding
        return made

    def __repr__(self) -> str:
        operands = ", ".join(o.hint or o.opcode for o in self.operands)
        return f"<{self.hint or '_'} = {self.shape} {self.opcode}({operands})>"


@record(frozen=True)
class Assumption:
    """A comparison of sizes that a program assumes, and the user's line that states it."""

    comparison: Comparison
    source: Source | None

    def __str__(self) -> str:
        return repr(self.comparison)


class Computation:
    """A function: parameters, instructions in program order, and the root whose value it returns."""

    __slots__ = ("name", "parameters", "instructions", "root")

    def __init__(self, name: str, parameters: list[Instruction], instructions: list[Instruction], root: Instruction):
        self.name = name
        self.parameters = parameters
        self.instructions = instructions
        self.root = root

    @property
    def shape(self) -> Any:
        return self.root.shape

    def outputs(self) -> list[Instruction]:
        """The instructions whose values are returned: the operands of a tuple root, or the root itself."""
        return list(self.root.operands) if self.root.opcode == "tuple" else [self.root]

    def users(self) -> dict[Instruction, list[Instruction]]:
        """The users of each instruction (once per operand position)."""
        users: dict[Instruction, list[Instruction]] = {i: [] for i in self.instructions}
        for instruction in self.instructions:
            for operand in instruction.operands:
                users[operand].append(instruction)
        return users

    def __repr__(self) -> str:
        return f"<computation {self.name}: {len(self.instructions)} instructions>"


class Module:
    """A whole program: an entry computation and, through its instructions, all called computations.

    `aliases`: output index to parameter index for donated inputs (HLO's input_output_alias). `replicas`, `partitions`:
    the number of devices (HLO's replica_count, num_partitions). An instruction's `sharding` is the layout of its value
    over the partitions; a module without shardings, or after partitioning, is the program of each device.
    `assumptions`: conditions on open sizes, to be checked by the caller.
    """

    __slots__ = ("name", "entry", "aliases", "replicas", "partitions", "assumptions")

    def __init__(
        self,
        name: str,
        entry: Computation,
        aliases: dict[int, int] | None = None,
        replicas: int = 1,
        partitions: int = 1,
        assumptions: tuple[Assumption, ...] = (),
    ):
        self.name = name
        self.entry = entry
        self.aliases = aliases or {}
        self.replicas, self.partitions, self.assumptions = replicas, partitions, assumptions

    @property
    def jaxpr(self) -> Module:
        """The module itself, for programs that print the jaxpr of a trace."""
        return self

    @property
    def eqns(self) -> list[Instruction]:
        """The instructions of the entry, without parameters."""
        return [i for i in self.entry.instructions if i.opcode != "parameter"]

    def computations(self) -> list[Computation]:
        """All computations, callees before callers, the entry last."""
        return callees_first(self.entry, Instruction.called)

    def with_entry(self, entry: Computation) -> Module:
        return Module(self.name, entry, self.aliases, self.replicas, self.partitions, self.assumptions)

    def instructions(self) -> Iterator[Instruction]:
        for computation in self.computations():
            yield from computation.instructions

    def __repr__(self) -> str:
        return f"<module {self.name}>"


def callees_first(entry: Computation, called: Callable[[Instruction], list[Computation]]) -> list[Computation]:
    """The computations below an entry, callees before callers, the entry last. called: the computations that an
    instruction calls, in the order of the walk."""
    order: list[Computation] = []
    seen = {id(entry)}
    stack = [(entry, iter([c for i in entry.instructions for c in called(i)]))]
    while stack:
        computation, callees = stack[-1]
        for callee in callees:
            if id(callee) not in seen:
                seen.add(id(callee))
                stack.append((callee, iter([c for i in callee.instructions for c in called(i)])))
                break
        else:
            order.append(computation)
            stack.pop()
    return order


def below(instructions: Iterable[Instruction]) -> Iterator[Instruction]:
    """Yields the instructions and, after each, those of the computations that it calls, at any depth; each computation
    once."""
    seen: set[int] = set()
    stack = [iter(instructions)]
    while stack:
        instruction = next(stack[-1], None)
        if instruction is None:
            stack.pop()
            continue
        yield instruction
        for callee in reversed(instruction.called()) if instruction.attributes else ():
            if id(callee) not in seen:
                seen.add(id(callee))
                stack.append(iter(callee.instructions))


def walk(
    roots: Iterable[Instruction], stops: Callable[[Instruction], bool] = lambda instruction: False
) -> Iterator[Instruction]:
    """Yields each instruction that the roots depend on once, the roots included, depth first from the last root and the
    last operand on. The walk does not continue to the operands of an instruction for which `stops` returns True."""
    seen: set[Instruction] = set()
    stack = list(roots)
    while stack:
        instruction = stack.pop()
        if instruction not in seen:
            seen.add(instruction)
            yield instruction
            if not stops(instruction):
                stack.extend(instruction.operands)


def reachable(roots: Iterable[Instruction]) -> set[Instruction]:
    """All instructions that the roots depend on, the roots included."""
    return set(walk(roots))


def map_module(module: Module, change: Callable[[Instruction], Instruction]) -> Module:
    """The module with each instruction replaced by `change(instruction)`, callees first; the same object if nothing
    changes.

    The operands and called computations of the instructions passed to `change` have already been replaced.
    """
    done: dict[int, Computation] = {}
    for computation in module.computations():
        mapped: dict[Instruction, Instruction] = {}
        instructions = []
        for instruction in computation.instructions:
            current = change(instruction.replaced(mapped, done))
            if current is not instruction:
                mapped[instruction] = current
            instructions.append(current)
        if mapped:
            parameters = [mapped.get(p, p) for p in computation.parameters]
            root = mapped.get(computation.root, computation.root)
            done[id(computation)] = Computation(computation.name, parameters, instructions, root)
    return module.with_entry(done[id(module.entry)]) if id(module.entry) in done else module

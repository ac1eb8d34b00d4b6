"""A device's part of a program, divided into the steps that the host runs in sequence: segments without sends and
receives, each a separate program, the sends and receives between them, and loops and branches that contain such. GPUs
and the tasks of a cluster run their parts this way. In a program that several GPUs run together, collectives separate
segments in the same way.

Values are identified by their keys (`partition.key_of`): an instruction, or an element of the tuple that a loop, a
branch or a parameter is. Tuples themselves exist inside segments only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

import numpy as np

from hloom.compiler.fusibility import is_control
from hloom.compiler.placement.partition import Key, is_cheap, key_of, leaf_keys
from hloom.ir.build import Builder
from hloom.ir.interpret import evaluate
from hloom.ir.module import Computation, Instruction, Module, below
from hloom.ir.ops.programs.transfer import TRANSFERS
from hloom.ir.records import field, record
from hloom.ir.rewrite import has_effects
from hloom.ir.types import Shape


@record(eq=False)
class Segment:
    """Instructions between transfers as a program.

    given, made: keys of its arguments and results. dying: positions of the arguments that nothing reads afterwards, so
    that results may reuse their memory. compiled: its executable, once there is one.
    """

    given: list[Key]
    made: list[Key]
    dying: frozenset[int]
    module: Module
    compiled: Any = field(default=None, repr=False)


@record(eq=False)
class Transfer:
    """A send, a receive or a collective. given: the sent values. last: the same, where nothing reads it afterwards."""

    instruction: Instruction
    given: list[Key]
    last: set[Key] = field(default_factory=set)


@record(eq=False)
class Count:
    """The trip count of a loop, computed by the host so that it need not wait for the GPU in each step.

    numbers: positions in the state of the integers that decide whether the loop continues. condition, following:
    computations of these integers: whether it continues, and their next values.
    """

    numbers: list[int]
    condition: Computation
    following: Computation


@record(eq=False)
class Loop:
    """A `while` with transfers in it. given: its initial state. last: keys of it that nothing reads afterwards."""

    instruction: Instruction
    given: list[Key]
    condition: Level | Count
    body: Level
    last: set[Key] = field(default_factory=set)


@record(eq=False)
class Choice:
    """A `conditional` with transfers in it. given: the selector, then the operands of the branches in order."""

    instruction: Instruction
    given: list[Key]
    branches: list[Level]
    last: set[Key] = field(default_factory=set)


Part = Segment | Transfer | Loop | Choice


@record(eq=False)
class Level:
    """A computation: the keys of its parameters' arrays, its parts in order, the keys of its results."""

    parameters: list[Key]
    parts: list[Part]
    results: list[Key]

    def segments(self) -> Iterator[Segment]:
        """The segments of all levels."""
        for part in self.parts:
            if isinstance(part, Segment):
                yield part
            for level in inner_levels(part):
                yield from level.segments()


def inner_levels(part: Part) -> list[Level]:
    if isinstance(part, Loop):
        return [part.body] if isinstance(part.condition, Count) else [part.condition, part.body]
    return part.branches if isinstance(part, Choice) else []


def whole(module: Module, donated: Set[int], cuts: Set[str] = frozenset(TRANSFERS)) -> Level:
    """The program of an executor. donated: the parameters whose memory may be overwritten. cuts: opcodes of the
    operations between segments."""
    kept = {p for p in module.entry.parameters if p["index"] not in donated}
    return _Cutter(module.name, cuts).level(module.entry, kept)


def _is_made_anywhere(instruction: Instruction) -> bool:
    """Whether each segment that reads it computes it: a constant, an iota, or one value repeated."""
    if instruction.opcode == "broadcast":
        return _is_made_anywhere(instruction.operands[0])
    return instruction.opcode in ("constant", "iota")


class _Cutter:
    def __init__(self, name: str, cuts: Set[str]):
        self.name, self.cuts, self.count = name, cuts, 0

    def is_stepped(self, instruction: Instruction) -> bool:
        """Whether the host runs a loop or a branch, as there are cuts in it at some depth."""
        inner = below([instruction])
        return is_control(instruction) and any(i.opcode in self.cuts for i in inner if i is not instruction)

    def level(self, computation: Computation, kept: Set[Key]) -> Level:
        """kept: parameters that this computation may not overwrite."""
        parameters = [key for key, _ in leaf_keys(computation.parameters)]
        parts = self._parts(computation)
        results = [key for key, _ in leaf_keys(_results(computation))]
        needed: dict[Key, int] = {}
        for number, part in enumerate(parts):
            needed |= dict.fromkeys(_taken(part), number)
        needed |= dict.fromkeys(results, len(parts))
        made: list[Part] = []
        for number, part in enumerate(parts):
            if isinstance(part, list):
                made += self._segment(part, number, needed, kept, set(parameters))
            else:
                part.last = {k for k in part.given if needed[k] == number and k not in kept}
                made.append(part)
        return Level(parameters, made, results)

    def _parts(self, computation: Computation) -> list[list[Instruction] | Transfer | Loop | Choice]:
        """In execution order; segments as lists."""
        host_tuples = self._tuples_of_the_host(computation)
        parts: list = []
        for instruction in computation.instructions:
            if instruction.opcode == "parameter" or instruction in host_tuples:
                continue
            if instruction.opcode in self.cuts:
                parts.append(Transfer(instruction, [key_of(o) for o in instruction.operands]))
            elif self.is_stepped(instruction):
                parts.append(self._control(instruction))
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(instruction)
            else:
                parts.append([instruction])
        return parts

    def _tuples_of_the_host(self, computation: Computation) -> set[Instruction]:
        """Tuples, and elements of tuples, that no segment computes: their arrays are identified by their keys."""
        users: dict[Instruction, list[Instruction]] = {}
        for instruction in computation.instructions:
            for operand in instruction.operands:
                users.setdefault(operand, []).append(instruction)

        found: set[Instruction] = set()
        for instruction in computation.instructions:
            if instruction.opcode == "tuple":
                if all(self.is_stepped(user) for user in users.get(instruction, ())):
                    found.add(instruction)
            elif instruction.opcode == "get-tuple-element":
                maker = instruction.operands[0]
                if maker.opcode == "parameter" or maker.opcode in self.cuts or self.is_stepped(maker):
                    found.add(instruction)
        return found

    def _control(self, instruction: Instruction) -> Loop | Choice:
        given = [key for key, _ in leaf_keys(instruction.operands)]
        if instruction.opcode == "while":
            condition = instruction["condition"]
            kept = {key for key, _ in leaf_keys(condition.parameters)}  # the body reads the same state
            goes_on = _count(instruction, self.cuts) or self.level(condition, kept)
            return Loop(instruction, given, goes_on, self.level(instruction["body"], set()))
        branches = [self.level(b, {k for k, _ in leaf_keys(b.parameters)}) for b in instruction["branch_computations"]]
        return Choice(instruction, given, branches)

    def _segment(
        self, part: list[Instruction], number: int, needed: dict[Key, int], kept: Set[Key], parameters: Set[Key]
    ) -> list[Segment]:
        made = {key_of(i): i for i in part if isinstance(i.shape, Shape) and needed.get(key_of(i), -1) > number}
        if not made and not any(has_effects(i) for i in part):
            return []
        # Parameters come first: results take the first memory that fits, and so reuse that of the parameters.
        given = {key_of(o): o for o in sorted(_outside(part), key=lambda value: key_of(value) not in parameters)}
        dying = frozenset(n for n, key in enumerate(given) if needed[key] == number and key not in kept)
        self.count += 1
        computation = _computation(list(given.values()), part, list(made.values()))
        return [Segment(list(given), list(made), dying, Module(f"{self.name}_{self.count}", computation))]


def _results(computation: Computation) -> list[Instruction]:
    return computation.outputs() if computation.root.opcode == "tuple" else [computation.root]


def _outside(part: list[Instruction]) -> list[Instruction]:
    """The operands of a segment in order of first use, except those that it computes itself."""
    inside = set(part)
    found: dict[Instruction, None] = {}
    for instruction in part:
        for operand in instruction.operands:
            if operand not in inside and not _is_made_anywhere(operand):
                found[operand] = None
    return list(found)


def _taken(part: list[Instruction] | Transfer | Loop | Choice) -> list[Key]:
    return [key_of(o) for o in _outside(part)] if isinstance(part, list) else part.given


def _computation(given: list[Instruction], part: list[Instruction], made: list[Instruction]) -> Computation:
    builder = Builder("segment")
    parameters = {key_of(v): builder.parameter(v.shape, v.hint, v.source) for v in given}
    mapped: dict[Instruction, Instruction] = {}

    def inside(value: Instruction) -> Instruction:
        if value not in mapped:
            found = parameters.get(key_of(value)) if value not in inner else None
            mapped[value] = found or builder.add(value.with_operands(tuple([inside(o) for o in value.operands])))
        return mapped[value]

    inner = set(part)
    for instruction in part:
        inside(instruction)
    return builder.finish(builder.tuple([mapped[v] for v in made]))


# --- loops that the host counts -----------------------------------------------------------------------------------


def counted(count: Count, state: Sequence[np.ndarray]) -> Iterator[bool]:
    """Whether a loop continues, step by step. state: the initial integers."""
    while True:
        (goes_on,) = evaluate(count.condition, state)
        yield bool(goes_on)
        state = evaluate(count.following, state)


def _count(loop: Instruction, cuts: Set[str]) -> Count | None:
    """How the host counts a loop; None where that needs more than integers, or values of other devices."""
    condition, body = loop["condition"], loop["body"]
    if any(i.opcode in cuts for i in condition.instructions):
        return None
    results = [key for key, _ in leaf_keys([body.root])]
    goes_on = [key_of(condition.root)]
    found = _integers(condition, goes_on)
    numbers: set[int] = set()
    while found is not None and not found[0] <= numbers:
        numbers |= found[0]
        found = _integers(body, [results[k] for k in sorted(numbers)])
    if found is None:
        return None
    order = sorted(numbers)
    return Count(order, _of_integers(condition, order, goes_on), _of_integers(body, order, [results[k] for k in order]))


def _integers(computation: Computation, keys: list[Key]) -> tuple[set[int], list[Instruction]] | None:
    """The elements of the state and the instructions that values depend on; None where these are not all scalar
    integers."""
    (parameter,) = computation.parameters
    elements: set[int] = set()
    work: set[Instruction] = set()
    waiting = list(keys)
    while waiting:
        key = waiting.pop()
        shape = key[0].shape.elements[key[1]] if isinstance(key, tuple) else key.shape
        if shape.dims or shape.dtype.kind not in "biu":
            return None
        if isinstance(key, tuple):
            if key[0] is not parameter:
                return None
            elements.add(key[1])
        elif not is_cheap(key):
            return None
        elif key not in work:
            work.add(key)
            waiting += [key_of(o) for o in key.operands]
    return elements, [i for i in computation.instructions if i in work]


def _of_integers(computation: Computation, numbers: list[int], keys: list[Key]) -> Computation:
    """The values of keys as a computation on the integers of the state."""
    (parameter,) = computation.parameters
    builder = Builder("count")
    made: dict[Key, Instruction] = {(parameter, k): builder.parameter(parameter.shape.elements[k]) for k in numbers}
    found = _integers(computation, keys)
    assert found is not None  # checked by `_count`
    for instruction in found[1]:
        operands = tuple([made[key_of(o)] for o in instruction.operands])
        made[instruction] = builder.add(instruction.with_operands(operands))
    return builder.finish(builder.tuple([made[key] for key in keys]))

"""Fusion: grouping instructions into kernels.

Consumers first: each instruction joins the group of its consumers if one loop nest can compute both (`group.py` and the
`accepts` of the target's kernel kinds), else starts a new group. An instruction with consumers in several groups, or
that is itself an output, joins one of them as a further output. Then sibling groups over the same domain that share an
input are joined. Finally each group becomes a `fusion` instruction.
"""

from __future__ import annotations

import itertools
from heapq import heapify, heappop, heappush

from hloom.compiler.fusibility import has_expression
from hloom.compiler.passes.fusion.group import MEMBERS, WRITTEN, Facts, Group
from hloom.compiler.passes.fusion.reachability import Reachability
from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations
from hloom.compiler.targets.base import Target
from hloom.ir.build import Builder, tuple_elements
from hloom.ir.module import Computation, Instruction, Module, reachable
from hloom.ir.ops import OPS
from hloom.ir.records import field, record
from hloom.ir.rewrite import has_effects
from hloom.ir.types import Shape, TupleShape

SIBLINGS = 64  # maximum number of failed attempts of a group to join others: more would take quadratic time
SUMS = 4  # maximum size of separate arrays in a kernel of siblings
DEAR = ("contraction", "reduce", "window", "library")  # families whose work is worth overlapping with a transfer
JOINED = 8  # maximum number of consumers that are joined for one instruction


@module_pass("fuse")
def fuse(module: Module, target: Target) -> Module:
    """Groups instructions into kernels: producers, several outputs, siblings, rows, contractions with both ends."""

    def fuse_computation(computation: Computation) -> Computation:
        grouping = Grouping(computation, target)
        grouping.producers()
        grouping.siblings()
        return grouping.build()

    return change_computations(module, fuse_computation)


def _waits(computation: Computation) -> dict[Instruction, frozenset[Instruction]]:
    """The received values that each instruction depends on; empty if the computation receives none."""
    if not any(i.opcode == "recv" for i in computation.instructions):
        return {}
    waits: dict[Instruction, frozenset[Instruction]] = {}
    for instruction in computation.instructions:
        own = frozenset([instruction]) if instruction.opcode == "recv" else frozenset()
        waits[instruction] = own.union(*[waits[o] for o in instruction.operands])
    return waits


@record
class Decision:
    """The reason why an edge was fused or not (`explain`)."""

    producer: Instruction
    consumer: Group
    fused: bool
    reason: str


@record
class Grouping:
    """The groups of one computation."""

    computation: Computation
    target: Target
    groups_of: dict[Instruction, set[Group]] = field(default_factory=dict)
    groups: dict[Group, None] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self):
        self.order = {i: k for k, i in enumerate(self.computation.instructions)}
        self.users = self.computation.users()
        self.facts = Facts(self.computation.instructions, self.users, self.target)
        self.waits = _waits(self.computation)
        self.reachability = Reachability(self.order, self.users, self.groups_of)
        self.made = 0  # groups so far

    # --- producers into consumers ---

    def producers(self) -> None:
        """Visits the instructions from the last to the first."""
        root = self.computation.root
        for instruction in reversed(self.computation.instructions):
            self.groups_of[instruction] = set()
            users = self.users[instruction]
            if self.facts.is_materialized(instruction) or (not users and instruction is not root):
                self.reachability.pass_through(instruction)
                continue
            consumers: dict[Group, None] = {}
            external = instruction is root
            for user in users:
                groups = self.groups_of[user]
                external = external or not groups
                consumers |= dict.fromkeys(sorted(groups, key=lambda g: g.number))
            self._place(instruction, list(consumers), external)

    def _place(self, instruction: Instruction, consumers: list[Group], external: bool) -> None:
        if self._is_taken(instruction, consumers, external):
            return
        if instruction.opcode == "reshape" or (
            instruction.opcode == "bitcast-convert" and not has_expression(instruction)
        ):
            self.reachability.pass_through(instruction)
            return  # free: the same buffer with other dimensions
        group = Group(self.made, instruction, self.facts)
        self.made += 1
        self.groups[group] = None
        self.reachability.add(group)
        self.groups_of[instruction].add(group)

    def _is_taken(self, instruction: Instruction, consumers: list[Group], external: bool) -> bool:
        """Whether the kernels of its consumers compute an instruction, which then needs no separate kernel. external:
        whether it has other readers."""
        if instruction in self.facts.duplicable and consumers:
            accepting = [g for g in consumers if self._accepts(g, instruction)]
            self._add(instruction, accepting)
            return len(accepting) == len(consumers) and not external
        if len(consumers) == 1 and not external:
            if self._accepts(consumers[0], instruction):
                self._add(instruction, consumers)
                return True
            return False
        return bool(consumers) and instruction.opcode != "reshape" and self._joins(instruction, consumers, external)

    def _joins(self, instruction: Instruction, consumers: list[Group], external: bool) -> bool:
        """As `_is_taken`, for an instruction that several kernels read: in the joined kernel, in each of them, or as a
        further output of one."""
        joined = self._joined_consumers(instruction, consumers)
        if not external:
            if joined is not None:
                self._add(instruction, [joined])
                return True
            if self._recompute(instruction, consumers):
                return True
        for group in consumers if joined is None else [joined]:
            if self._accepts(group, instruction, output=True) and self.reachability.add_output(group, instruction):
                self._add(instruction, [group])
                group.outputs.append(instruction)
                return True
        return False

    def _add(self, instruction: Instruction, groups: list[Group]) -> None:
        for group in groups:
            group.add(instruction)
        self.groups_of[instruction] |= set(groups)

    def _recompute(self, instruction: Instruction, consumers: list[Group]) -> bool:
        """Lets each consumer recompute a cheap instruction from an array in memory, if all of them can."""
        if instruction not in self.facts.recomputed or not all(self._accepts(g, instruction) for g in consumers):
            return False
        self._add(instruction, consumers)
        return True

    def _joined_consumers(self, instruction: Instruction, consumers: list[Group]) -> Group | None:
        """The joined group of several consumers over one domain, which avoids reading the instruction from memory; None
        if they are incompatible."""
        if not 2 <= len(consumers) <= JOINED or OPS[instruction.opcode].family != "elementwise":
            return None
        if any(not g.is_loop or g.domain != instruction.dims or g.sibling_key() is None for g in consumers):
            return None
        if not self._fit(consumers) or not self.reachability.together(consumers):
            return None
        if not all(self._accepts(g, instruction, output=True) for g in consumers):
            return None
        pairs = itertools.combinations(consumers, 2)
        if not all(self._independent(a, b) for a, b in pairs):  # and waiting for the same values
            return None
        first, *others = consumers
        for other in others:
            self._merge(first, other)
        return first

    def _accepts(self, group: Group, instruction: Instruction, output: bool = False) -> bool:
        fused, reason = group.can_fuse(instruction, output)
        if fused and self.waits and self._would_wait(group, instruction, output):
            fused, reason = False, "its kernel would wait for another device"
        self.decisions.append(Decision(instruction, group, fused, reason))
        return fused

    def _would_wait(self, group: Group, instruction: Instruction, output: bool) -> bool:
        """Whether fusion would delay an instruction in a kernel that waits for more received values, either as an
        output that another device may wait for, or as work that could overlap with waiting."""
        own, others = self.waits[instruction], self.waits[group.outputs[0]]
        return own != others if output else own != others and OPS[instruction.opcode].family in DEAR

    # --- siblings ---

    def siblings(self) -> None:
        """Joins groups over one domain that read a common large input and do not depend on each other."""
        by_domain: dict[tuple, list[Group]] = {}
        for group in self.groups:
            key = group.sibling_key()
            if key is not None:
                key = (*key, self.reachability.segment(group.outputs[0]))
                by_domain.setdefault(key, []).append(group)
        for groups in by_domain.values():
            if len(groups) > 1:
                self._join_siblings(groups)

    def _join_siblings(self, groups: list[Group]) -> None:
        """For groups over one domain, the last one first: each joins those that share an input with it."""
        place = {group: k for k, group in enumerate(groups)}
        inputs = {group: self._large_inputs(group) for group in groups}
        readers: dict[Instruction, list[Group]] = {}
        for group in groups:
            for instruction in inputs[group]:
                readers.setdefault(instruction, []).append(group)
        left = set(groups)
        for first in reversed(groups):
            if first not in left:
                continue
            left.discard(first)
            waiting = [(place[g], g) for g in {g for i in inputs[first] for g in readers[i]} if g in left]
            heapify(waiting)
            refused, seen = 0, {g for _, g in waiting}
            while waiting and refused < SIBLINGS:
                at, other = heappop(waiting)
                if not (self._fit([first, other]) and self._few_sums(first, other) and self._independent(first, other)):
                    refused += 1
                    continue
                self._merge(first, other)
                left.discard(other)
                # Its inputs may be shared with later groups.
                for instruction in inputs[other] - inputs[first]:
                    for g in readers[instruction]:
                        if g in left and g not in seen and place[g] > at:
                            seen.add(g)
                            heappush(waiting, (place[g], g))
                inputs[first] |= inputs[other]

    def _large_inputs(self, group: Group) -> set[Instruction]:
        """The inputs of a group that are worth sharing between two groups."""
        size = group.domain_size()
        return {
            o
            for m in group.members
            for o in m.operands
            if group not in self.groups_of[o] and isinstance(o.shape, Shape) and o.shape.size * 4 >= size > 1
        }

    @staticmethod
    def _fit(groups: list[Group]) -> bool:
        """Whether the groups together are small enough for one kernel."""
        return sum(len(g.members) for g in groups) < MEMBERS and sum(g.written for g in groups) <= WRITTEN

    @staticmethod
    def _few_sums(a: Group, b: Group) -> bool:
        """Whether the sums of two groups with separate operands fit in vector registers: otherwise each takes many
        times as long as rereading the common input."""
        members = {*a.members, *b.members}
        if sum(m.opcode == "reduce" for m in members) <= SUMS:
            return True
        read = {o for m in members for o in m.operands if isinstance(o.shape, Shape) and o.shape.size > 1}
        return len(read - members) <= SUMS

    def _independent(self, a: Group, b: Group) -> bool:
        if self.waits and self.waits[a.outputs[0]] != self.waits[b.outputs[0]]:
            return False
        return a.reads_with(b.states.items()) and self.reachability.independent(a, b)

    def _merge(self, into: Group, other: Group) -> None:
        self.reachability.join(into, other)
        into.join(other)
        for member in other.members:
            self.groups_of[member].discard(other)
            self.groups_of[member].add(into)
        del self.groups[other]

    # --- the fused computation ---

    def build(self) -> Computation:
        """The computation with a fusion instruction for each group of more than one instruction."""
        builder = Builder(self.computation.name)
        mapped: dict[Instruction, Instruction] = {}
        materialized = {output: group for group in self.groups for output in group.outputs}
        bodies = {id(g): self._body(g) for g in self.groups}
        for parameter in self.computation.parameters:
            mapped[parameter] = builder.add(parameter)
            builder.parameters.append(parameter)
        stack = [(i, False) for i in reversed([*self._effects(), *self._apart(materialized), self.computation.root])]
        while stack:
            instruction, ready = stack.pop()
            if instruction in mapped:
                continue
            made_by = materialized.get(instruction)
            needs = bodies[id(made_by)][0] if made_by else list(instruction.operands)
            if not ready:
                stack.append((instruction, True))
                # Kernels that wait for other devices come after those that do not, later sends after earlier ones.
                order = sorted(needs, key=self._last_received) if self.waits else needs
                stack.extend((n, False) for n in reversed(order) if n not in mapped)
                continue
            operands = tuple(mapped[n] for n in needs)
            if made_by is None:
                mapped[instruction] = builder.add(instruction.with_operands(operands))
            else:
                self._emit(builder, made_by, bodies[id(made_by)], operands, mapped)
        return builder.finish(mapped[self.computation.root])

    def _last_received(self, instruction: Instruction) -> int:
        """The last channel that an instruction waits for, in send order; -1 for none."""
        return max((i["channel_id"] for i in self.waits[instruction]), default=-1)

    def _apart(self, materialized: dict[Instruction, Group]) -> list[Instruction]:
        """The work that does not wait for received values, to overlap with the transfers."""
        if not self.waits:
            return []
        return [i for i in self.computation.instructions if i in materialized and not self.waits[i]]

    def _effects(self) -> list[Instruction]:
        """Order constraints of the program. A value is received where it is first needed; an unused one at the end."""
        effects = [i for i in self.computation.instructions if has_effects(i)]
        received = [i for i in effects if i.opcode == "recv"]
        if not received:
            return effects
        others = [i for i in effects if i.opcode != "recv"]
        needed = reachable([*others, self.computation.root])
        return [*others, *(i for i in received if i not in needed)]

    def _body(self, group: Group) -> tuple[list[Instruction], list[Instruction]]:
        """(inputs, members in program order) of a group, as needed by its outputs."""
        inside: set[Instruction] = set()
        inputs: dict[Instruction, None] = {}
        stack = list(group.outputs)
        while stack:
            instruction = stack.pop()
            if instruction in inside:
                continue
            inside.add(instruction)
            for operand in instruction.operands:
                if group in self.groups_of[operand] and not self._free_input(operand, group):
                    stack.append(operand)
                else:
                    inputs[operand] = None
        members = sorted(inside, key=self.order.__getitem__)
        ordered = [o for m in members for o in m.operands if o in inputs]
        return list(dict.fromkeys(ordered)), members

    def _free_input(self, instruction: Instruction, group: Group) -> bool:
        """A reshape of a value outside of the group: read as an input with the new dimensions, at no cost."""
        return instruction.opcode == "reshape" and group not in self.groups_of[instruction.operands[0]]

    def _emit(self, builder, group, body, operands, mapped) -> None:
        inputs, members = body
        root = group.outputs[0]
        if len(members) == 1:
            mapped[root] = builder.add(root.with_operands(tuple(mapped[o] for o in root.operands)))
            return
        inner = Builder(f"fused_{root.opcode.replace('-', '_')}")
        copies: dict[Instruction, Instruction] = {}
        for instruction in inputs:
            copies[instruction] = inner.parameter(
                instruction.shape, f"p_{instruction.hint}" if instruction.hint else ""
            )
        inner.add_copies(members, copies)
        # A reduction of several operands has one output per operand.
        outputs = [element for o in group.outputs for element in tuple_elements(inner, copies[o])]
        calls = inner.finish(outputs[0] if len(outputs) == 1 else inner.tuple(outputs))
        builder.source, builder.made_by = root.source, (*root.made_by, "fuse")
        fusion = builder.emit(
            "fusion", *operands, kind=group.kind.fusion_kind, calls=calls, hint=f"{root.hint or root.opcode}_fusion"
        )
        if len(group.outputs) == 1:
            mapped[root] = fusion
            return
        k = 0
        for output in group.outputs:
            count = len(output.shape.elements) if isinstance(output.shape, TupleShape) else 1
            elements = [builder.emit("get-tuple-element", fusion, index=k + e, hint=output.hint) for e in range(count)]
            k += count
            mapped[output] = builder.tuple(elements) if isinstance(output.shape, TupleShape) else elements[0]


def explain(computation: Computation, target: Target) -> list[str]:
    """For each considered edge: producer, consumer, whether it was fused, and the reason."""
    grouping = Grouping(computation, target)
    grouping.producers()
    lines = []
    for decision in grouping.decisions:
        producer, root = decision.producer, decision.consumer.outputs[0]
        verdict = "fused into" if decision.fused else "kept apart from"
        lines.append(f"{producer.hint or producer.opcode} {verdict} {root.hint or root.opcode}: {decision.reason}")
    return lines

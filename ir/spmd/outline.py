"""Converts XLA's sharding custom calls to hloom's ops.

`Sharding` becomes a sharding-constraint. Instructions between `SPMDFullToShardShape` and `SPMDShardToFullShape` are
computed on each device's part: they become the body of a manual-computation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hloom.ir.build import Builder, tuple_elements
from hloom.ir.errors import UnsupportedError
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.records import replace
from hloom.ir.spmd.sharding import Sharding
from hloom.ir.spmd.tiles import Placed

CONSTRAINT, ENTER, LEAVE = "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"
_OPEN = re.compile(r"unspecified_dims=\[([0-9,\s]*)\]")


def outlined(module: Module, placed: Mapping[Instruction, Placed], configs: Mapping[Instruction, str]) -> Module:
    """The module without these custom calls. placed: their shardings. configs: their backend configs, which may name
    dimensions that propagation may split further."""
    done: dict[int, Computation] = {}
    for computation in module.computations():
        if any(_target(i) for i in computation.instructions) or any(
            id(c) in done for i in computation.instructions for c in i.called()
        ):
            done[id(computation)] = _Outline(computation, placed, configs, done).result()
    return module.with_entry(done.get(id(module.entry), module.entry))


def _target(instruction: Instruction) -> str:
    if instruction.opcode != "custom-call":
        return ""
    target = instruction["custom_call_target"]
    return target if target in (CONSTRAINT, ENTER, LEAVE) else ""


class _Region:
    """The instructions of a manual computation, and its entry and exit calls."""

    def __init__(self, calls: set[Instruction]):
        self.calls = calls


class _Outline:
    def __init__(self, computation: Computation, placed, configs, done: dict[int, Computation]):
        self.computation, self.placed, self.configs, self.done = computation, placed, configs, done
        self.users = computation.users()
        self.builder = Builder(computation.name)
        self.builder.parameters = list(computation.parameters)
        self.regions = self._regions()
        self.mapped: dict[Instruction, Instruction] = {}

    def result(self) -> Computation:
        for instruction in self.computation.instructions:
            if instruction not in self.regions:
                self._value(instruction)
        return self.builder.finish(self._value(self.computation.root))

    # --- regions ---

    def _regions(self) -> dict[Instruction, _Region]:
        """The region of each instruction that is reachable from entry calls."""
        found: dict[Instruction, _Region] = {}
        if not self.placed:  # a program for one device
            return found
        for instruction in self.computation.instructions:
            if _target(instruction) == ENTER:
                self._join(found, [instruction])
                continue
            inside = [o for o in instruction.operands if o in found and _target(o) != LEAVE]
            if inside:
                self._join(found, [instruction, *inside])
            elif _target(instruction) == LEAVE:  # for values that depend on no argument
                self._join(found, [instruction, *self._cone(instruction.operands[0], found)])
        return found

    def _join(self, found: dict[Instruction, _Region], members: list[Instruction]) -> None:
        region = _Region(set(members))
        for member in members:
            if member in found:
                region.calls |= found[member].calls
        for member in region.calls:
            found[member] = region

    def _cone(self, root: Instruction, known) -> list[Instruction]:
        """The instructions that a value depends on, if none is an argument. Raises UnsupportedError."""
        cone: list[Instruction] = []
        stack = [root]
        while stack:
            one = stack.pop()
            if one in cone:
                continue
            if one.opcode == "parameter" or _target(one) in (ENTER, LEAVE):
                raise UnsupportedError(
                    f"a manual computation between {ENTER} and {LEAVE} uses a value from outside of it",
                    f"{one!r}",
                    f"pass it through {ENTER}",
                    one.source,
                )
            cone.append(one)
            stack += one.operands
        return cone

    # --- outside of regions ---

    def _value(self, instruction: Instruction) -> Instruction:
        """The replacement of an instruction, emitted on first use."""
        if instruction not in self.mapped:
            if instruction in self.regions:
                self._region(self.regions[instruction])
            else:
                operands = {o: self._value(o) for o in instruction.operands}
                self.mapped[instruction] = self._copied(self.builder, instruction, operands)
        return self.mapped[instruction]

    def _copied(self, builder: Builder, instruction: Instruction, operands) -> Instruction:
        """An instruction on other operands, in a builder."""
        if _target(instruction) and (_target(instruction) == CONSTRAINT or not self.placed):
            return self._constraint(builder, instruction, operands[instruction.operands[0]])
        return builder.add(instruction.replaced(operands, self.done))

    def _constraint(self, builder: Builder, instruction: Instruction, operand: Instruction) -> Instruction:
        found = self.placed.get(instruction)
        if not isinstance(found, Placed):
            return operand
        sharding = self._opened(instruction, found)
        opened = len(sharding.open) == sharding.rank
        if (opened and not sharding.axes) or (found.manual and not sharding.axes and not sharding.unreduced):
            return operand
        source, builder.source = builder.source, instruction.source
        made = builder.emit("sharding-constraint", operand, sharding=sharding, hint=instruction.hint)
        builder.source = source
        made.sharding = sharding if instruction.sharding is not None else None
        return made

    def _opened(self, instruction: Instruction, found: Placed) -> Sharding:
        match = _OPEN.search(self.configs.get(instruction, ""))
        dims = tuple(int(d) for d in match[1].split(",") if d.strip()) if match else ()
        return replace(found.sharding, open=tuple(d for d in dims if d < found.sharding.rank))

    # --- a region ---

    def _region(self, region: _Region) -> None:
        """Emits the manual computation of a region."""
        order = [i for i in self.computation.instructions if i in region.calls]
        entered = [i for i in order if _target(i) == ENTER]
        left = [i for i in order if _target(i) == LEAVE]
        given = []
        manual: tuple[str, ...] = ()
        for call in entered:
            sharding, axes = self._handed_in(call)
            given.append(sharding)
            manual = manual or axes
        results = []
        for call in left:
            found = self.placed[call]
            manual = manual or self._left_axes(call)
            results.append(self._opened(call, found))
        operands = [self._value(call.operands[0]) for call in entered]
        body = self._body(order, entered, left)
        self.builder.source = left[0].source if left else None
        made = self.builder.emit(
            "manual-computation", *operands, to_apply=body, in_shardings=tuple(given), out_shardings=tuple(results),
            manual_axes=manual,
        )  # fmt: skip
        for call, element, sharding in zip(left, tuple_elements(self.builder, made), results, strict=True):
            self.mapped[call] = element
            element.sharding = sharding if call.sharding is not None else None

    def _body(self, order: list[Instruction], entered: list[Instruction], left: list[Instruction]) -> Computation:
        """The computation of a region, from its inputs to its outputs."""
        inner = Builder("manual")
        known = {call: inner.parameter(call.shape, call.hint, call.source) for call in entered}
        for instruction in order:
            if instruction in known or _target(instruction) == LEAVE:
                continue
            for operand in instruction.operands:
                if operand not in known:  # a constant from outside
                    cone = set(self._cone(operand, known))
                    for one in [i for i in self.computation.instructions if i in cone and i not in known]:
                        known[one] = self._copied(inner, one, known)
            known[instruction] = self._copied(inner, instruction, known)
        return inner.finish(inner.tuple([known[call.operands[0]] for call in left]))

    def _handed_in(self, call: Instruction) -> tuple[Sharding, tuple[str, ...]]:
        """(the sharding of a region's input, the axes that become manual), from the constraint before the call."""
        inside = self.placed.get(call)
        before = call.operands[0]
        outside = self.placed.get(before) if _target(before) == CONSTRAINT else None
        if inside is None or outside is None:
            raise UnsupportedError(
                f"{ENTER} of an array whose sharding is not known", f"{before!r}",
                "let a custom call 'Sharding' say how it is split", call.source,
            )  # fmt: skip
        axes = tuple(n for n in inside.manual if n not in outside.manual)
        return self._opened(call, outside), axes

    def _left_axes(self, call: Instruction) -> tuple[str, ...]:
        before = call.operands[0]
        inside, outside = self.placed.get(before), self.placed[call]
        return tuple(n for n in inside.manual if n not in outside.manual) if inside else outside.sharding.mesh.names


__all__ = ["outlined"]

"""A plan for many sizes at some of them: its numbers, and places in the arena.

Expressions are evaluated once for each plan; launches that several steps share stay shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hloom.compiler.kernels.launch import Launch
from hloom.compiler.schedule.buffer_assignment import Buffer, allocated
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import HostStep, Place, Step
from hloom.ir.ops.specialize import Specialization
from hloom.ir.records import asdict, replace
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.types import Shape

__all__ = ["plan_at"]


def plan_at(plan: Plan, sizes: Mapping[str, int]) -> Plan:
    """The plan for sizes of its dimensions, by name. Raises ShapeError for sizes that give a negative one."""
    return _AtSizes(plan, sizes).plan()


class _AtSizes:
    def __init__(self, open_plan: Plan, sizes: Mapping[str, int]):
        self.open, self.sizes = open_plan, sizes
        self.specialization = Specialization(sizes)
        self._numbers: dict[SizeExpression, int] = {}
        self._launches: dict[int, Launch] = {}
        self._places: dict[Place, Place] = {}
        self._offsets: list[int] = []  # of the buffers of an open arena

    def number(self, size: Any) -> Any:
        """The number of a size; anything else is itself."""
        if not isinstance(size, SizeExpression):
            return size
        found = self._numbers.get(size)
        if found is None:
            found = self._numbers[size] = size.at(self.sizes)
        return found

    def plan(self) -> Plan:
        plan = self.open
        arena_bytes, guards = plan.arena_bytes, plan.guards
        if plan.arena:
            buffers = [Buffer(self.number(b.bytes), None, b.first, b.last, swap=b.swap) for b in plan.arena]
            arena_bytes, guards = allocated(buffers, plan.guarded)
            self._offsets = [b.assigned.number for b in buffers]
        return replace(
            plan, steps=[self.step(s) for s in plan.steps], prepared=[self.step(s) for s in plan.prepared],
            arena_bytes=arena_bytes, guards=guards, arena=(), kept_bytes=self.number(plan.kept_bytes),
            input_shapes=[self.shape(s) for s in plan.input_shapes],
            output_shapes=[self.shape(s) for s in plan.output_shapes],
        )  # fmt: skip

    def shape(self, shape: Shape) -> Shape:
        return self.specialization.shape(shape) if shape.is_open else shape

    def place(self, place: Place) -> Place:
        found = self._places.get(place)
        if found is None:
            waits = place.kind == "arena" and self._offsets
            number = self._offsets[place.number] if waits else self.number(place.number)
            found = self._places[place] = replace(place, number=number)
        return found

    def launch(self, launch: Launch) -> Launch:
        found = self._launches.get(id(launch))
        if found is None:
            found = self._launches[id(launch)] = launch.at(self.number)
        return found

    def step(self, step: Step) -> Step:
        made = replace(step, **{name: self._field(value) for name, value in asdict(step).items()})
        if isinstance(made, HostStep):
            made.instruction = self.specialization.alone(made.instruction)
        return made

    def _field(self, value: Any) -> Any:
        """A field of a step: the numbers, places and launches in it."""
        if isinstance(value, Place):
            return self.place(value)
        if isinstance(value, Launch):
            return self.launch(value)
        if isinstance(value, list):
            return [self._field(one) for one in value]
        if isinstance(value, dict):
            return {name: self._field(one) for name, one in value.items()}
        return self.number(value)

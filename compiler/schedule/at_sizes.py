"""Plans for open sizes: with sizes computed at each call (`plan_over`), or specialized (`plan_at`).

Launches shared by several steps remain shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hloom.compiler.kernels.launch import Launch
from hloom.compiler.schedule.buffer_assignment import Buffer, allocate_apart, allocated, allocated_slots, shared_slots
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import HostStep, Place, Step
from hloom.ir.ops.specialize import Specialization
from hloom.ir.records import asdict, replace
from hloom.ir.sizes.evaluation import number_of
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.sizes.numbers import Node, Nodes, Number
from hloom.ir.sizes.terms import Terms
from hloom.ir.types import Shape

__all__ = ["plan_at", "plan_over"]


def plan_at(plan: Plan, sizes: Mapping[str, int]) -> Plan:
    """The plan for given sizes of its dimensions, by name. Raises ShapeError if a resulting size is negative."""
    specialization = Specialization(sizes)

    def shape(shape: Shape) -> Shape:
        return specialization.shape(shape) if shape.is_open else shape

    made = _WithNumbers(plan, lambda size: size.at(sizes), specialization).plan(allocated)
    return replace(made, input_shapes=[*map(shape, plan.input_shapes)], output_shapes=[*map(shape, plan.output_shapes)])


def plan_over(plan: Plan, nodes: Nodes) -> Plan | None:
    """The plan with its sizes replaced by nodes; None if there are Python steps, or open sizes in prepared values,
    which need numbers. The shapes of inputs and outputs are unchanged. Buffers with disjoint lifetimes share slots of
    the arena."""
    if any(isinstance(step, HostStep) for step in [*plan.steps, *plan.prepared]):
        return None

    def allocate(buffers: list[Buffer], guarded: bool) -> tuple[Number, list[Number]]:
        return allocate_apart(buffers) if guarded else (allocated_slots(buffers, shared_slots(plan.arena)), [])

    made = _WithNumbers(plan, lambda size: number_of(nodes, size)).plan(allocate)
    return None if any(map(_has_node, made.prepared)) else replace(made, nodes=nodes)


def _has_node(step: Step) -> bool:
    """Whether a call or a copy has a number that is computed at each call."""
    fields = asdict(step)
    launch = fields.pop("launch", None)
    numbers = [*fields.values(), *(fields.get("pointers") or {}).values()]
    extents = (fields.get("extents") or {}).values()
    numbers += [one for nbytes in extents for one in (nbytes if isinstance(nbytes, list) else [nbytes])]
    numbers += [] if launch is None else [*launch.arguments, launch.items, launch.grain, launch.moved]
    return any([isinstance(one.number if isinstance(one, Place) else one, Node) for one in numbers])


class _WithNumbers:
    """Replaces sizes of a plan by numbers. evaluate: the number of a size. specialization: for Python steps."""

    def __init__(
        self,
        open_plan: Plan,
        evaluate: Callable[[SizeExpression], Number],
        specialization: Specialization | None = None,
    ):
        self.open, self.evaluate, self.specialization = open_plan, evaluate, specialization
        self._numbers: dict[Terms, Number] = {}
        self._launches: dict[int, Launch] = {}
        self._places: dict[Place, Place] = {}
        self._offsets: list[Number] = []  # offsets of the buffers of an open arena

    def number(self, size: Any) -> Any:
        """The number of a size; anything else unchanged."""
        if not isinstance(size, SizeExpression):
            return size
        found = self._numbers.get(size.terms)
        if found is None:
            found = self._numbers[size.terms] = self.evaluate(size)
        return found

    def plan(self, allocate: Callable[[list[Buffer], bool], tuple[Any, Any]]) -> Plan:
        """allocate: assigns offsets to buffers: (bytes of the arena, offsets of its guards)."""
        plan = self.open
        arena_bytes, guards = plan.arena_bytes, plan.guards
        if plan.arena:
            buffers = [Buffer(self.number(b.bytes), None, b.first, b.last, swap=b.swap) for b in plan.arena]
            arena_bytes, guards = allocate(buffers, plan.guarded)
            self._offsets = [b.assigned.number for b in buffers]
        return replace(
            plan, steps=[self.step(s) for s in plan.steps], prepared=[self.step(s) for s in plan.prepared],
            arena_bytes=arena_bytes, guards=guards, arena=(), kept_bytes=self.number(plan.kept_bytes),
            shared_bytes=self.number(plan.shared_bytes),
        )  # fmt: skip

    def place(self, place: Place) -> Place:
        found = self._places.get(place)
        if found is None:
            waits = place.kind == "arena" and self._offsets
            number = self._offsets[place.number] if waits else self.number(place.number)
            offsets = None if place.offsets is None else tuple(map(self.number, place.offsets))
            found = self._places[place] = replace(place, number=number, offsets=offsets)
        return found

    def launch(self, launch: Launch) -> Launch:
        found = self._launches.get(id(launch))
        if found is None:
            found = self._launches[id(launch)] = launch.at(self.number)
        return found

    def step(self, step: Step) -> Step:
        made = replace(step, **{name: self._field(value) for name, value in asdict(step).items()})
        if isinstance(made, HostStep) and self.specialization is not None:
            made.instruction = self.specialization.alone(made.instruction)
        return made

    def _field(self, value: Any) -> Any:
        """A field of a step, with its numbers, places and launches replaced."""
        if isinstance(value, Place):
            return self.place(value)
        if isinstance(value, Launch):
            return self.launch(value)
        if isinstance(value, list):
            return [self._field(one) for one in value]
        if isinstance(value, dict):
            return {name: self._field(one) for name, one in value.items()}
        return self.number(value)

"""Prunes a program to the fetches of a run, with the feeds and variables as parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hloom.errors import FeedError
from hloom.ir.build import Builder
from hloom.ir.module import Computation, Instruction
from hloom.ir.records import field, record
from hloom.sessions.graph import (
    Graph,
    HostRecord,
    Node,
    Operation,
    PlaceholderRecord,
    ReadRecord,
    Target,
    Text,
    Update,
    UpdateRecord,
    VariableRecord,
)


@record(eq=False)
class Needed:
    """The dependencies of a set of fetches. instructions: in program order. hosts: the operations that call Python
    after the run, in order."""

    instructions: set[Instruction]
    updates: dict[str, UpdateRecord]
    variables: dict[str, VariableRecord]
    host_values: list[HostRecord]
    hosts: list[Operation]
    operations: list[Operation]
    placeholders: list[PlaceholderRecord] = field(default_factory=list)


def needed(program: Graph, fetches: Iterable[Target], fed: Iterable[Instruction], complete: bool = True) -> Needed:
    """The dependencies of the fetches, given values for the fed instructions.

    complete: raises FeedError for a placeholder that is needed and not fed.
    """
    fed = set(fed)
    found = Needed(set(), {}, {}, [], [], [])
    waiting: list[Any] = list(fetches)
    seen: set[int] = set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, Text) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Operation):
            found.operations.append(item)
            if item.host is not None:
                found.hosts.append(item)
            waiting += item.needs
        elif isinstance(item, Update) and item.record is not None:
            waiting += [item.record, item.instruction]
        elif isinstance(item, Node):
            waiting.append(item.instruction)
        elif isinstance(item, UpdateRecord):
            found.updates[item.name] = item
            found.variables[item.variable] = program.variables[item.variable].record
            waiting += [item.value, *item.needs]
        else:
            found.instructions.add(item)
            if item not in fed:
                waiting += item.operands
                waiting += _source(program, item, found, complete)
                if isinstance(program.sources.get(item), VariableRecord):
                    continue  # its value is fed, regardless of the control dependencies it was made under
                place = program.index(item)
                waiting += [need for begin, end, needs in program.ranges if begin <= place < end for need in needs]
    found.hosts.sort(key=lambda operation: list(program.targets).index(operation.name))
    return found


def _source(program: Graph, instruction: Instruction, found: Needed, complete: bool) -> list:
    """The dependencies of a parameter of the program."""
    source = program.sources.get(instruction)
    if isinstance(source, VariableRecord):
        found.variables[source.name] = source
    elif isinstance(source, ReadRecord):
        found.variables[source.variable] = program.variables[source.variable].record
        return [program.updates[source.update]] if source.update else []
    elif isinstance(source, HostRecord):
        found.host_values.append(source)
    elif isinstance(source, PlaceholderRecord):
        if complete:
            raise FeedError(
                f"a run that needs the placeholder {source.name!r}",
                "it is not fed",
                f"feed it: session.run(..., {{{source.name!r}: array}})",
                instruction.source,
            )
        found.placeholders.append(source)
    return []


@record(eq=False)
class Plan:
    """A run: a computation of (variables, feeds) -> (fetched tensors, new values of variables).

    fetches: for each fetch the index of an output, None for an operation, or a Text. variables, updated: names. feeds:
    the names of the fed tensors; host_values: further parameters, after them. shared: the indices of outputs that are
    also values of variables. owned: the instructions that belong to updates, with the device chosen for the variable.
    devices: those chosen for the variables that are read or updated, '' if none is.
    """

    computation: Computation
    fetches: list[Any]
    variables: list[str]
    updated: list[str]
    feeds: list[str]
    host_values: list[HostRecord]
    hosts: list[tuple[Operation, list[Any]]]
    shared: frozenset[int]
    count: int
    owned: dict[Instruction, str]
    devices: dict[str, str]


def make_plan(program: Graph, fetches: Sequence[Target], feeds: Sequence[Node]) -> Plan:
    """The plan of a run. Raises FeedError for placeholders that are needed and not fed."""
    fed = [feed.instruction for feed in feeds]
    need = needed(program, fetches, fed)
    builder = Builder(program.name)
    env: dict[Instruction, Instruction] = {}
    current: dict[str, Instruction] = {}
    for name in program.variables:  # in the order of the program, so that equal programs have equal plans
        if name in need.variables:
            own = need.variables[name].instruction
            current[name] = builder.parameter(own.shape, own.hint, own.source)
            env.setdefault(own, current[name])
    start = dict(current)
    for node in feeds:
        instruction = node.instruction
        env[instruction] = builder.parameter(instruction.shape, program.name_of(instruction), instruction.source)
    need.host_values.sort(key=lambda value: program.index(value.instruction))
    for value in need.host_values:
        env[value.instruction] = builder.parameter(value.instruction.shape, value.name, value.instruction.source)
    _run_in_order(program, need, env, current, builder)
    outputs: list[Instruction] = []

    def output(target) -> Any:
        if isinstance(target, (Operation, Text)):
            return target if isinstance(target, Text) else None
        outputs.append(env[target.instruction])
        return len(outputs) - 1

    found = [output(target) for target in fetches]
    hosts = [(operation, [output(n) for n in operation.needs]) for operation in need.hosts]
    updated = [name for name in current if current[name] is not start[name]]
    new = [current[name] for name in updated]
    kept = {*start.values(), *new}
    shared = frozenset(k for k, instruction in enumerate(outputs) if instruction in kept)
    count = len(outputs)
    root = builder.tuple([*outputs, *new])
    read = {operand for instruction in builder.instructions for operand in instruction.operands}
    variables = [name for name in start if start[name] in read]  # others are assigned before anybody reads them
    _number_parameters(builder, [p for p in builder.parameters if p in read or p not in start.values()])
    return Plan(
        builder.finish(root), found, variables, updated, [program.name_of(i) for i in fed], need.host_values, hosts,
        shared, count, _owned(program, need, env),
        {name: need.variables[name].instruction.device for name in {*variables, *updated}},
    )  # fmt: skip


def _owned(program: Graph, need: Needed, env: dict[Instruction, Instruction]) -> dict[Instruction, str]:
    return {
        env[instruction]: need.variables[update.variable].instruction.device
        for update in need.updates.values()
        for instruction in update.own
        if instruction in need.instructions and instruction not in program.sources
    }


def _number_parameters(builder: Builder, kept: list[Instruction]) -> None:
    dropped = set(builder.parameters) - set(kept)
    builder.parameters[:] = kept
    builder.instructions[:] = [i for i in builder.instructions if i not in dropped]
    for k, parameter in enumerate(kept):
        parameter.attributes["index"] = k


def _run_in_order(program: Graph, need: Needed, env: dict, current: dict, builder: Builder) -> None:
    """Copies the instructions in, in their order, and updates the variables in between."""
    updates = sorted(need.updates.values(), key=lambda update: update.at)
    pending = iter([*updates, None])
    update = next(pending)
    order = sorted(need.instructions, key=program.index)
    after = dict(current)  # results of updates, by the update's name
    for instruction in [*order, None]:
        place = len(program.instructions) if instruction is None else program.index(instruction)
        while update is not None and update.at <= place:
            current[update.variable] = after[update.name] = env[update.value]
            update = next(pending)
        if instruction is None or instruction in env:
            continue
        source = program.sources.get(instruction)
        if isinstance(source, ReadRecord):
            env[instruction] = after[source.update] if source.update else current[source.variable]
        else:
            env[instruction] = builder.add(instruction.replaced(env, {}))


__all__ = ["Needed", "Plan", "make_plan", "needed"]

"""A run of a program whose variables are on several tasks, cut into stages.

The main stages compute the fetches, and the inputs of updates; they read the current values of other tasks' variables.
The instructions of updates run where the variables are, each task's atomically and on the variable's current value:
steps of several workers interleave, and none is lost. The result of an update may be read by a later main stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hloom.cluster.spec import Task
from hloom.ir.build import Builder
from hloom.ir.module import Computation, Instruction
from hloom.ir.records import record
from hloom.sessions.lowering import Plan


@record(eq=False)
class Stage:
    """home: the task whose variables it updates; None: it is a main stage. computation: of the inputs. inputs:
    parameters of the plan, which are variables and feeds, and results of earlier stages. outputs: instructions of the
    plan that later stages or the fetches read, before the new values. stores: variables and the indices of their new
    values."""

    home: Task | None
    computation: Computation
    inputs: list[Instruction]
    outputs: list[Instruction]
    stores: list[tuple[str, int]]


Key = tuple[int, Task | None]  # of a stage: its position in the order, and its home


def cut(plan: Plan, home_of: Callable[[str], Task]) -> list[Stage]:
    """The stages of a plan, in order. home_of: the task of a variable whose device was chosen like this."""
    computation = plan.computation
    parameters = dict(zip(plan.variables, computation.parameters, strict=False))
    new = dict(zip(plan.updated, computation.root.operands[plan.count :], strict=True))
    homes = {name: home_of(plan.devices[name]) for name in {*plan.variables, *plan.updated}}
    key: dict[Instruction, Key] = {}

    def after(operands: Iterable[Instruction], home: Task | None) -> Key:
        """The first stage of a home in which all operands are known."""
        level = 0 if home is None else 1
        for operand in operands:
            if operand in key:
                found, where = key[operand]
                level = max(level, found if where == home else found + (2 if (where is None) == (home is None) else 1))
        return level, home

    for instruction in computation.instructions:
        if instruction.opcode not in ("parameter", "constant") and instruction is not computation.root:
            home = home_of(plan.owned[instruction]) if instruction in plan.owned else None
            key[instruction] = after(instruction.operands, home)
    stores: dict[Key, list[str]] = {}
    for name, value in new.items():
        made = key.get(value)
        where = made if made is not None and made[1] == homes[name] else after([value], homes[name])
        stores.setdefault(where, []).append(name)
    order = sorted({*key.values(), *stores}, key=lambda k: (k[0], str(k[1] or "")))
    read_by: dict[Instruction, set[Key]] = {}
    for instruction, stage in key.items():
        for operand in instruction.operands:
            read_by.setdefault(operand, set()).add(stage)
    for stage, names in stores.items():
        for name in names:
            read_by.setdefault(new[name], set()).add(stage)
    fetched = set(computation.root.operands[: plan.count])
    variable_of = {parameter: name for name, parameter in parameters.items()}
    return [
        _stage(k, plan, key, new, stores.get(k, []), fetched, read_by, variable_of)
        for k in order
    ]  # fmt: skip


def _stage(stage: Key, plan: Plan, key, new, stores: list[str], fetched, read_by, variable_of) -> Stage:
    own = [i for i in plan.computation.instructions if key.get(i) == stage]
    inside = set(own)
    needed = list(dict.fromkeys([*(o for i in own for o in i.operands), *(new[name] for name in stores)]))
    inputs = [i for i in needed if i not in inside and i.opcode != "constant"]
    builder = Builder(plan.computation.name)
    mapped: dict[Instruction, Instruction] = {}
    for instruction in inputs:
        hint = variable_of.get(instruction, instruction.hint)
        mapped[instruction] = builder.parameter(instruction.shape, hint, instruction.source)
    for instruction in needed:
        if instruction.opcode == "constant":
            mapped[instruction] = builder.add(instruction.with_operands(()))
    for instruction in own:
        operands = tuple([mapped[o] for o in instruction.operands])
        mapped[instruction] = builder.add(instruction.with_operands(operands))
    outputs = [i for i in own if i in fetched or read_by.get(i, set()) - {stage}]
    root = builder.tuple([*(mapped[i] for i in outputs), *(mapped[new[name]] for name in stores)])
    numbers = [(name, len(outputs) + k) for k, name in enumerate(stores)]
    return Stage(stage[1], builder.finish(root), inputs, outputs, numbers)


__all__ = ["Stage", "cut"]

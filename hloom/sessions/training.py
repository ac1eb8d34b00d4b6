"""Gradients and optimizers extend a program: their operations read the nodes that are there already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import hloom.numpy as hnp
from hloom.compiler.passes.cse import StructuralKeys
from hloom.compiler.transforms import vjp as reverse_mode
from hloom.compiler.transforms.inline import inline_calls
from hloom.errors import ArgumentError, DifferentiationError
from hloom.ir.build import Builder
from hloom.ir.module import Computation, Instruction, reachable
from hloom.ir.rewrite import has_effects
from hloom.ir.source import device_scope, on_device
from hloom.ir.types import INEXACT
from hloom.optim import GradientTransformation, apply_updates
from hloom.sessions.graph import Node, Operation, Variable
from hloom.sessions.program import TRAINABLE_VARIABLES, Program, current_program, program_of
from hloom.tracing.trace import resumed
from hloom.tree import pytrees as tree


def gradients(of: Node, wrt: Sequence[Node], cotangent: Any = None) -> list[Node]:
    """The gradients of a tensor (the sum of its elements) with respect to others, such as variables.

    cotangent: an array of the tensor's shape that its elements are weighted with. The gradient with respect to
    independent tensors is zero. Raises DifferentiationError for integers and operations without a derivative.
    """
    program = program_of(of)
    if of.dtype not in INEXACT:
        raise DifferentiationError(
            f"the gradient of {of.name!r}", f"it is {of._shape!r}", "differentiate tensors of floats"
        )
    needed = reachable([of.instruction])
    found: list[Node | None] = [None] * len(wrt)
    with resumed(program.trace):
        start = Node(program.trace, program.trace.node(_start(of, cotangent)).instruction)
        program.names()  # now, as gradients carry the lines of the operations they differentiate
        for group in _groups([x.instruction for x in wrt]):
            reached = [k for k in group if wrt[k].instruction in needed]
            for k, node in zip(reached, _pulled(program, of, [wrt[k] for k in reached], start), strict=True):
                found[k] = node
        return [hnp.zeros(x.shape, x.dtype) if g is None else g for x, g in zip(wrt, found, strict=True)]


def _start(of: Node, cotangent: Any) -> Any:
    return hnp.ones(of.shape, of.dtype) if cotangent is None else hnp.asarray(cotangent, of.dtype)


def _groups(wrt: list[Instruction]) -> list[list[int]]:
    """Groups the nodes: those that depend on none of the others together, each remaining one alone, since the gradient
    with respect to an ancestor of a node does not stop at that node."""
    alone = [k for k, x in enumerate(wrt) if any(y in reachable([x]) for y in wrt if y is not x)]
    together = [k for k in range(len(wrt)) if k not in alone]
    return [together, *([k] for k in alone)]


def _pulled(program: Program, of: Node, wrt: list[Node], start: Node) -> list[Node]:
    """The gradients with respect to nodes that do not depend on each other."""
    if not wrt:
        return []
    for x in wrt:
        if x.dtype not in INEXACT:
            raise DifferentiationError(
                f"the gradient with respect to {x.name!r}", f"it is {x._shape!r}", "leave it out"
            )
    trace = program.trace
    computation, outer = _between(program, of.instruction, [x.instruction for x in wrt])
    pulled = reverse_mode.gradient(inline_calls(computation), range(len(wrt)), by=(0,))
    begin = len(program.instructions)
    found = trace.inline(pulled, [*wrt, *(Node(trace, i) for i in outer), start], {})[1:]
    replaced = _share(program, begin)
    return [Node(trace, replaced.get(g.instruction, g.instruction)) for g in found]


def _between(program: Program, root: Instruction, wrt: list[Instruction]) -> tuple[Computation, list[Instruction]]:
    """The part of the program that leads from some nodes to another, and the other nodes that it reads."""
    needed, chosen = reachable([root]), set(wrt)
    depends = set(chosen)
    inner: list[Instruction] = []
    for instruction in program.instructions:
        if instruction in needed and instruction not in chosen and any(o in depends for o in instruction.operands):
            depends.add(instruction)
            inner.append(instruction)
    known = {*chosen, *inner}
    outer = list(dict.fromkeys(o for i in inner for o in i.operands if o not in known))
    if root not in known:
        outer.append(root)
    builder = Builder(program.name)
    mapped: dict[Instruction, Instruction] = {}
    for instruction in [*wrt, *outer]:
        parameter = builder.parameter(instruction.shape, instruction.hint, instruction.source)
        mapped.setdefault(instruction, parameter)
    for instruction in inner:
        mapped[instruction] = builder.add(instruction.replaced(mapped, {}))
    return builder.finish(builder.tuple([mapped[root]])), outer


def _share(program: Program, begin: int) -> dict[Instruction, Instruction]:
    """Replaces instructions from an index on by equal earlier ones, so that the gradient reuses computed values."""
    keys = StructuralKeys()
    known: dict[Any, Instruction] = {}
    replaced: dict[Instruction, Instruction] = {}
    kept: list[Instruction] = []
    for k, instruction in enumerate(program.instructions):
        current = instruction.replaced(replaced, {}) if k >= begin else instruction
        if instruction.opcode != "parameter" and not has_effects(instruction):
            operands = tuple([id(o) for o in current.operands])
            key = (current.opcode, operands, current.shape, keys.attributes(current), current.device)
            if key in known and k >= begin:
                replaced[instruction] = known[key]
                continue
            known.setdefault(key, current)
        if current is not instruction:
            replaced[instruction] = current
        if k >= begin:
            kept.append(current)
    program.replace_from(begin, kept, "gradients")
    return replaced


def minimize(
    optimizer: GradientTransformation,
    loss: Node,
    variables: Iterable[Variable] | None = None,
    *,
    global_step: Variable | None = None,
    name: str = "train",
) -> Operation:
    """The operation that does a step of an optimizer of `hl.optim`: gradients, new variables, new state.

    variables: by default the trainable ones. global_step: a variable that each step adds 1 to. The optimizer's state
    are variables below `name`, with an initializer.
    """
    chosen = chosen_variables(program_of(loss), variables)
    found = gradients(loss, chosen)
    return apply_gradients(optimizer, list(zip(found, chosen, strict=True)), global_step=global_step, name=name)


def chosen_variables(program: Program, variables: Iterable[Variable] | None) -> list[Variable]:
    """Those that an optimizer changes: by default the trainable ones. Raises ArgumentError if there are none."""
    chosen = program.get_collection(TRAINABLE_VARIABLES) if variables is None else list(variables)
    if not chosen:
        raise ArgumentError(
            f"an optimizer in '{program.name}'", "no trainable variables", "make some: variable('w', initial_value)"
        )
    return chosen


def apply_gradients(
    optimizer: GradientTransformation,
    gradients_and_variables: Sequence[tuple[Any, Variable]],
    *,
    global_step: Variable | None = None,
    name: str = "train",
) -> Operation:
    """The second part of `minimize`: for gradients that are clipped, averaged over towers, or computed elsewhere."""
    program = program_of(gradients_and_variables[0][1])
    variables = {v.name: v for _, v in gradients_and_variables}
    given = {v.name: g for g, v in gradients_and_variables}
    with resumed(program.trace), program.outside_of_controls():
        start = {n: v.initial_value if v.initial_value is not None else hnp.zeros(v.shape, v.dtype)
                 for n, v in variables.items()}  # fmt: skip
        paths, structure = tree.flatten_with_path(optimizer.init(start))
        state = [new_slot(program, f"{name}/{_path(path)}", leaf, _home(path, variables)) for path, leaf in paths]
    begin = len(program.instructions)
    with resumed(program.trace):
        updates, new_state = optimizer.update(given, tree.unflatten(structure, state), variables)
        new = apply_updates(variables, updates)
        colocate(program, begin, [*variables.values(), *state])
        pairs = [*((variables[n], new[n]) for n in variables), *zip(state, tree.leaves(new_state), strict=True)]
        steps: list[Any] = [assigned(program, v, value, begin) for v, value in pairs]
        if global_step is not None:
            steps.append(global_step.assign_add(1))
    return program.group(*steps, name=name)


def _home(path, variables: dict[str, Variable]) -> str:
    """The device of the optimizer's state for a variable: that of the variable; of a count of steps, of the first."""
    keys = [key.key for key in path if isinstance(key, tree.DictKey) and key.key in variables]
    return variables[[*keys, *variables][0]].record.instruction.device


def assigned(program: Program, variable: Variable, value: Any, begin: int) -> Any:
    """The update of a variable to a value, which is computed by the instructions from an index on."""
    return program.update(variable, lambda old: value, "assign", begin)


def new_slot(program: Program, name: str, initial: Any, home: str) -> Variable:
    """A variable of an optimizer's own, on the device of the one that it belongs to."""
    with device_scope(home) if home else nullcontext():
        return program.variable(name, initial, trainable=False, collections=("variables",))


def colocate(program: Program, begin: int, variables: Sequence[Variable]) -> None:
    """Places the instructions from an index on that compute with variables on the variables' devices: of several, on
    that of the largest. Values that depend only on constants go where they are used."""
    home = {v.record.instruction: v.record.instruction.device for v in variables if v.record.instruction.device}
    made = program.instructions[begin:]
    free: set[Instruction] = set()
    users: dict[Instruction, set[str]] = {}
    for instruction in made:
        near = [operand for operand in instruction.operands if operand in home]
        if near:
            home[instruction] = home[max(near, key=lambda operand: operand.shape.size)]
        elif instruction.opcode != "parameter" and all(
            operand in free or operand.opcode == "constant" for operand in instruction.operands
        ):
            free.add(instruction)
    for instruction in reversed(made):
        if instruction in free and len(used := users.get(instruction, set())) == 1:
            (home[instruction],) = used
        if instruction in home:
            instruction.source = on_device(instruction.source, home[instruction])
        for operand in instruction.operands:
            users.setdefault(operand, set()).add(home.get(instruction, ""))


def _path(path) -> str:
    return tree.keystr(path, simple=True, separator="/").replace(":", "_") or "state"


def global_step(program: Program | None = None) -> Variable:
    """The variable that counts steps, an int32 that begins with 0: one in each program."""
    program = program or current_program()
    if "global_step" not in program.variables:
        return program.variable("global_step", hnp.zeros((), "int32"), trainable=False)
    return program.variables["global_step"]


class MovingAverage:
    """Exponential moving averages of variables, in variables that begin with their initial values.

    decay: the retained share of the average. num_updates: a tensor that counts steps; then the decay is at most
    (1 + n) / (10 + n), so that averages are good from the beginning.

        averages = MovingAverage(0.99, step)
        with control_dependencies([train]):
            train = averages.apply(variables)
        averages.average(w)
    """

    def __init__(self, decay: float, num_updates: Any = None):
        self.decay, self.num_updates = decay, num_updates
        self._averages: dict[str, Variable] = {}

    def apply(self, variables: Iterable[Variable] | None = None, name: str = "average") -> Operation:
        """The operation that takes the variables' values into the averages."""
        chosen = current_program().get_collection(TRAINABLE_VARIABLES) if variables is None else list(variables)
        if not chosen:
            raise ArgumentError("averages of variables", "no variables", "pass some")
        program = program_of(chosen[0])
        updates = []
        with resumed(program.trace):
            decay: Any = self.decay
            if self.num_updates is not None:
                n = hnp.asarray(self.num_updates).astype("float32")
                decay = hnp.minimum(decay, (1 + n) / (10 + n))
            for v in chosen:
                if v.name not in self._averages:
                    start = v.initial_value if v.initial_value is not None else hnp.zeros(v.shape, v.dtype)
                    self._averages[v.name] = program.variable(f"{v.name}/{name}", start, trainable=False)
                shadow = self._averages[v.name]
                updates.append(shadow.assign(shadow * decay + v * (1 - decay)))
        return program.group(*updates, name=name)

    def average(self, variable: Variable) -> Variable:
        """The variable with the average of another one. Raises ArgumentError if `apply` did not have it."""
        if variable.name not in self._averages:
            raise ArgumentError(
                f"the average of {variable.name!r}", f"averages of {', '.join(self._averages) or 'nothing'}",
                "pass it to apply()",
            )  # fmt: skip
        return self._averages[variable.name]


__all__ = ["MovingAverage", "apply_gradients", "global_step", "gradients", "minimize"]

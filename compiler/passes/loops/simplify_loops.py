"""simplify-loops: minimizes loop state, hoists loop invariants, and folds branches with known conditions.

For a while loop: its state becomes a flat tuple; unused elements are removed; invariant elements are replaced by their
initial values outside, and, if constant, inside of the body; expensive loop-invariant code is hoisted; loops with a
trip count of zero or one are eliminated.
"""

from __future__ import annotations

from collections.abc import Mapping

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations, replaced
from hloom.compiler.transforms.flat import flat, leaf_shapes, leaves, pack
from hloom.ir.build import Builder, tuple_elements
from hloom.ir.loops import counted_trips
from hloom.ir.module import Computation, Instruction, Module, reachable
from hloom.ir.ops import OPS
from hloom.ir.ops.programs.transfer import has_transfers
from hloom.ir.rewrite import has_effects, sweep
from hloom.ir.types import Shape, TupleShape

DEAR_FAMILIES = frozenset(("contraction", "reduce", "library", "window", "control"))
DEAR_FLOPS = 8.0  # minimum cost of an element-wise op that exceeds reading its result in each step


@module_pass("simplify-loops", "while", "conditional")
def simplify_loops(module: Module) -> Module:
    """Removes dead, constant and loop-invariant state; folds known branches."""
    return change_computations(module, _simplified)


def _simplified(computation: Computation) -> Computation:
    if not any(map(_is_loop_or_branch, computation.instructions)):
        return computation
    computation = sweep(computation)
    users = computation.users()

    def make(builder: Builder, instruction: Instruction, original: Instruction) -> Instruction | None:
        used = _used(original, users, computation.root)
        return _MADE[instruction.opcode](builder, instruction, used)

    return replaced(computation, "simplify-loops", _is_loop_or_branch, make)


def _is_loop_or_branch(instruction: Instruction) -> bool:
    return instruction.opcode in _MADE


# --- while --------------------------------------------------------------------------------------------------------


def _used(instruction: Instruction, users, root: Instruction) -> set[int] | None:
    """The elements of a flat result that are read; None for all."""
    if instruction is root or any(u.opcode != "get-tuple-element" for u in users[instruction]):
        return None
    return {u["index"] for u in users[instruction]}


def _while(builder: Builder, loop: Instruction, used: set[int] | None) -> Instruction | None:
    """The simplified loop as a tuple of its results; None if there is nothing to do."""
    is_flat = _is_flat(loop.shape)
    is_plain = is_flat and loop.operands[0].opcode == "tuple"
    trips = counted_trips(loop) if is_plain else None
    if trips == 0:
        return loop.operands[0]
    if trips == 1:
        return builder.inline(loop["body"], loop.operands)
    body, condition = flat(loop["body"]), flat(loop["condition"])
    outputs, initial = body.outputs(), leaves(builder, loop.operands[0])
    count = len(initial)
    if not is_flat or used is None:
        used = set(range(count))
    kept = {k for k in range(count) if outputs[k] is body.parameters[k]}
    constants = {k: initial[k] for k in kept if _is_constant(initial[k])}
    live = _live(body, condition, used - kept)
    hoisted = _hoisted(body, kept, live)
    state = [k for k in range(count) if k in live and k not in constants]
    if is_plain and len(state) == count and not hoisted:
        return None
    if not state and not hoisted and not has_effects(loop):
        return pack(builder, loop.shape, list(initial))
    before = _before(builder, body, kept, initial, hoisted)
    start = builder.tuple([*(initial[k] for k in state), *before])
    made = builder.emit(
        "while",
        start,
        condition=_over_state(condition, start.shape, state, [], constants, is_body=False),
        body=_over_state(body, start.shape, state, hoisted, constants, is_body=True),
        hint=loop.hint,
    )
    elements = tuple_elements(builder, made)
    results = list(initial)
    for position, k in enumerate(state):
        results[k] = elements[position]
    return pack(builder, loop.shape, results)


def _over_state(
    computation: Computation,
    shape: TupleShape,
    state: list[int],
    hoisted: list[Instruction],
    constants: Mapping[int, Instruction],
    is_body: bool,
) -> Computation:
    """A loop's body or condition as a function of a tuple: the elements `state` of the loop's state, then hoisted
    values. Constants are copied into it."""
    inner = Builder(computation.name)
    given = tuple_elements(inner, inner.parameter(shape, "state"))
    mapped = dict(zip([computation.parameters[k] for k in state], given, strict=False))
    mapped |= dict(zip(hoisted, given[len(state) :], strict=False))
    for k, value in constants.items():
        mapped[computation.parameters[k]] = _copied_constant(inner, value)
    wanted = [computation.outputs()[k] for k in state] if is_body else computation.outputs()[:1]
    needed = reachable(wanted) | _effects(computation)
    inner.add_copies([i for i in computation.instructions if i in needed], mapped)
    results = [mapped[w] for w in wanted]
    if not is_body:
        return sweep(inner.finish(results[0]))
    return sweep(inner.finish(inner.tuple([*results, *given[len(state) :]])))


def _effects(computation: Computation) -> set[Instruction]:
    return reachable([i for i in computation.instructions if has_effects(i)])


def _live(body: Computation, condition: Computation, used: set[int]) -> set[int]:
    """The elements that the condition, an effect or a used result depends on, now or in a later step."""
    number = {p: k for k, p in enumerate(body.parameters)}
    needed = _effects(body)
    live = {number[p] for p in body.parameters if p in needed}
    needed = reachable([condition.outputs()[0]]) | _effects(condition)
    live |= {k for k, p in enumerate(condition.parameters) if p in needed}
    waiting = sorted(live | used)
    live = set(waiting)
    seen: set[Instruction] = set()
    outputs = body.outputs()
    while waiting:
        stack = [outputs[waiting.pop()]]
        while stack:
            instruction = stack.pop()
            if instruction in seen:
                continue
            seen.add(instruction)
            stack.extend(instruction.operands)
            k = number.get(instruction)
            if k is not None and k not in live:
                live.add(k)
                waiting.append(k)
    return live


def _is_constant(value: Instruction) -> bool:
    if value.opcode == "broadcast":
        value = value.operands[0]
        return value.opcode == "constant" and not value.dims
    return value.opcode == "iota" or (value.opcode == "constant" and value.shape.size <= 1)


def _copied_constant(builder: Builder, value: Instruction) -> Instruction:
    operands = tuple([_copied_constant(builder, o) for o in value.operands])
    return builder.add(value.with_operands(operands))


def _hoisted(body: Computation, kept: set[int], live: set[int]) -> list[Instruction]:
    """The expensive loop-invariant instructions that are read by variant ones."""
    same: set[Instruction] = {body.parameters[k] for k in kept}
    dear: set[Instruction] = set()
    found: dict[Instruction, None] = {}
    needed = reachable([body.outputs()[k] for k in live]) | _effects(body)
    for instruction in body.instructions:
        if instruction not in needed or instruction.opcode == "parameter":
            continue
        operands = instruction.operands
        movable = instruction.opcode != "custom-call" and not has_effects(instruction)
        if movable and all(o in same for o in operands) and (operands or instruction.opcode in ("constant", "iota")):
            same.add(instruction)
            if any(o in dear for o in operands) or (operands and _is_dear(instruction)):
                dear.add(instruction)
            continue
        found |= dict.fromkeys(o for o in operands if o in dear and isinstance(o.shape, Shape))
        # An element of an expensive tuple is hoisted itself.
    for output in body.outputs():
        if output in dear:
            found[output] = None
    return list(found)


def _is_dear(instruction: Instruction) -> bool:
    entry = OPS[instruction.opcode]
    return (entry.family in DEAR_FAMILIES or entry.flops >= DEAR_FLOPS) and instruction.shape.bytes > 0


def _before(builder: Builder, body: Computation, kept, initial, hoisted) -> list[Instruction]:
    """The hoisted instructions, computed before the loop."""
    if not hoisted:
        return []
    mapped = {body.parameters[k]: initial[k] for k in kept}
    needed = reachable(hoisted)
    builder.add_copies([i for i in body.instructions if i in needed], mapped)
    return [mapped[i] for i in hoisted]


# --- conditional --------------------------------------------------------------------------------------------------


def _conditional(builder: Builder, instruction: Instruction, used: set[int] | None) -> Instruction | None:
    """The branch selected by a constant; or the conditional with flat tuples, without unused results, and with
    constants copied into the branches; None if there is nothing to do."""
    selector, *arguments = instruction.operands
    branches = instruction["branch_computations"]
    chosen = _chosen_branch(instruction)
    if chosen is not None:
        return builder.inline(branches[chosen], [arguments[chosen]])
    is_flat = all(_is_flat(s) for s in (instruction.shape, *(a.shape for a in arguments)))
    given = [leaves(builder, a) if not is_flat else tuple_elements(builder, a) for a in arguments]
    shapes = leaf_shapes(instruction.shape)
    wanted = sorted(used) if is_flat and used is not None else list(range(len(shapes)))
    bodies = [flat(branch) for branch in branches]
    taken = [_taken(body, values, wanted) for body, values in zip(bodies, given, strict=True)]
    if is_flat and len(wanted) == len(shapes):
        if all(len(t) == len(g) or a.opcode != "tuple" for t, g, a in zip(taken, given, arguments, strict=True)):
            return None
    new_arguments = [builder.tuple([values[k] for k in places]) for values, places in zip(given, taken, strict=True)]
    new_branches = [
        _over_taken(body, argument.shape, values, places, wanted)
        for body, argument, values, places in zip(bodies, new_arguments, given, taken, strict=True)
    ]
    made = builder.emit(
        "conditional", selector, *new_arguments, branch_computations=tuple(new_branches), hint=instruction.hint
    )
    found = dict(zip(wanted, tuple_elements(builder, made), strict=True))
    results = [found[k] if k in found else builder.splat(0, s) for k, s in enumerate(shapes)]
    return pack(builder, instruction.shape, results)


def _chosen_branch(instruction: Instruction) -> int | None:
    """The index of the branch that a conditional takes, if known.

    A branch that sends or receives remains a branch: other devices, which may not know the condition, execute theirs as
    a branch, and its channels are allocated for one.
    """
    selector, count = instruction.operands[0], len(instruction["branch_computations"])
    if (selector.opcode != "constant" and count > 1) or has_transfers(instruction):
        return None
    if count == 1:
        return 0
    value = selector["value"]
    if value.dtype == bool:
        return 0 if value else 1
    return int(value) if 0 <= int(value) < count else count - 1


def _taken(body: Computation, values: list[Instruction], wanted: list[int]) -> list[int]:
    """The arguments that a branch needs: non-constant ones read for the used results."""
    needed = reachable([body.outputs()[k] for k in wanted]) | _effects(body)
    pairs = enumerate(zip(body.parameters, values, strict=True))
    return [k for k, (p, v) in pairs if p in needed and not _is_constant(v)]


def _over_taken(
    body: Computation, shape: TupleShape, values: list[Instruction], taken: list[int], wanted: list[int]
) -> Computation:
    """A branch as a function of a tuple of its needed arguments, with the used results. Constants are copied into
    it."""
    inner = Builder(body.name)
    elements = tuple_elements(inner, inner.parameter(shape, "operands"))
    mapped = dict(zip([body.parameters[k] for k in taken], elements, strict=True))
    outputs = [body.outputs()[k] for k in wanted]
    needed = reachable(outputs) | _effects(body)
    for parameter, value in zip(body.parameters, values, strict=True):
        if parameter in needed and parameter not in mapped:
            mapped[parameter] = _copied_constant(inner, value)
    inner.add_copies([i for i in body.instructions if i in needed], mapped)
    return inner.finish(inner.tuple([mapped[o] for o in outputs]))


def _is_flat(shape) -> bool:
    return isinstance(shape, TupleShape) and all(isinstance(e, Shape) for e in shape.elements)


_MADE = {"while": _while, "conditional": _conditional}

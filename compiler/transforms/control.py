"""Derivatives and batching of while and conditional; those of scan are in `scan`."""

from __future__ import annotations

from collections.abc import Mapping

from hloom.compiler.transforms.batch import batch
from hloom.compiler.transforms.flat import (
    carried,
    elements,
    flat,
    flat_flags,
    flat_tangents,
    flat_values,
    instructions,
    lasting,
    leaves,
    nested,
    pack,
    place,
    unflat,
    values,
    with_tangents,
    zeros,
)
from hloom.compiler.transforms.jvp import has_tangent
from hloom.compiler.transforms.loops import scan
from hloom.compiler.transforms.loops.residuals import with_few_residuals
from hloom.compiler.transforms.vjp import linearize, transposed
from hloom.ir.build import Builder, Value
from hloom.ir.errors import DifferentiationError
from hloom.ir.loops import counted_trips
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops.programs.control import RULES
from hloom.ir.rewrite import sweep
from hloom.ir.types import PRED, Shape, TupleShape

# --- while --------------------------------------------------------------------------------------------------------


def while_batch(build, instruction, operands, mapped):
    builder, size = build.builder, build.size
    body, condition = flat(instruction["body"]), flat(instruction["condition"])
    state = flat_values(builder, operands[0])
    own = flat_flags(mapped[0], instruction.operands[0].shape)
    unchanged = [o is p for o, p in zip(body.outputs(), body.parameters, strict=True)]
    flags = list(own)
    while True:
        _, out = batch(body, flags, size, None, build.axis_name)
        _, (differs,) = batch(condition, flags, size, None, build.axis_name)
        grown = [f or o for f, o in zip(flags, out, strict=True)]
        if differs:
            # Batch elements end at different steps, so all variant state differs between them.
            grown = [g or not u for g, u in zip(grown, unchanged, strict=True)]
        if grown == flags:
            break
        flags = grown
    state = [v if m or not f else build.spread(v) for v, m, f in zip(state, own, flags, strict=True)]
    made, _ = batch(body, flags, size, flags, build.axis_name)
    test, _ = batch(condition, flags, size, [differs], build.axis_name)
    shapes = [v.shape for v in state]
    if differs:
        made, test = _until_all_end(made, test, shapes, unchanged, size)
    shape = TupleShape(shapes)
    loop = builder.emit(
        "while",
        builder.tuple(instructions(state)),
        condition=nested(test, shape, Shape(PRED)),
        body=nested(made, shape, shape),
    )
    found = [v if f else build.unmapped(v) for v, f in zip(elements(builder, loop), flags, strict=True)]
    return _marked(build, instruction.shape, found)


def _until_all_end(body: Computation, condition: Computation, shapes, unchanged, size: int):
    """(body, condition) of a loop that runs until all elements have finished; finished ones keep their values."""
    inner = Builder(body.name)
    before = [inner.parameter(s) for s in shapes]
    (runs,) = values(inner, place(inner, condition, before))
    after = []
    for old, new, u in zip(before, place(inner, body, before), unchanged, strict=True):
        if u:
            after.append(old)
        else:
            mask = runs if old.dims == (size,) else runs.broadcast(old.dims, (0,))
            after.append(mask.where(Value(inner, new), Value(inner, old)).instruction)
    test = Builder(condition.name)
    (runs,) = values(test, place(test, condition, [test.parameter(s) for s in shapes]))
    some = runs.reduce("or", False, (0,))
    return inner.finish(inner.tuple(after)), test.finish(test.tuple([some.instruction]))


def _marked(build, shape, found: list):
    return unflat(shape, found) if isinstance(shape, TupleShape) else found[0]


def while_jvp(build, instruction, primals, tangents):
    builder = build.builder
    body, condition = flat(instruction["body"]), flat(instruction["condition"])
    state = values(builder, leaves(builder, primals[0].instruction))
    given = flat_tangents(tangents[0], instruction.operands[0].shape)
    active = carried(body, [t is not None for t in given], 0, len(state))
    if not any(active):
        return None
    trips = counted_trips(instruction) if build.linear else None
    if trips is not None:
        return _counted_jvp(build, instruction, body, state, given, trips)
    made, _ = with_tangents(body, active, active)
    pushed = [
        t if t is not None else zeros(builder, p.shape) for t, p, a in zip(given, state, active, strict=True) if a
    ]
    both = [*state, *pushed]
    shape = TupleShape([v.shape for v in both])
    inner = Builder(condition.name)
    test_parameters = [inner.parameter(s) for s in shape.elements]
    root = inner.tuple(place(inner, condition, test_parameters[: len(state)]))
    loop = builder.emit(
        "while",
        builder.tuple(instructions(both)),
        condition=nested(inner.finish(root), shape, Shape(PRED)),
        body=nested(made, shape, shape),
        hint=instruction.hint,
    )
    results = elements(builder, loop)
    # Tangents to be transposed come from a separate loop, on which nothing else may depend.
    if not build.linear:
        build.replace(instruction, _rebuilt(builder, instruction.shape, results[: len(state)]))
    found = iter(results[len(state) :])
    return _marked(build, instruction.shape, [next(found) if a else None for a in active])


def _counted_jvp(build, instruction: Instruction, body: Computation, state, given, trips: int):
    """The tangents of a loop with a known trip count: those of a scan, which can be transposed."""
    attributes = {"body": body, "num_consts": 0, "num_carry": len(state), "length": trips, "reverse": False}
    shape = TupleShape([v.shape for v in state])
    loop = Instruction(
        "scan", tuple(instructions(state)), shape, attributes, instruction.hint, instruction.source, instruction.made_by
    )
    found = scan.scan_jvp(build, loop, state, given)
    results = values(build.builder, build.replaced.pop(loop).operands)
    build.replace(instruction, _rebuilt(build.builder, instruction.shape, results))
    return _marked(build, instruction.shape, found)


def _rebuilt(builder: Builder, shape, found: list[Value]):
    """Values of the elements of a shape; nested tuples are packed."""
    if not isinstance(shape, TupleShape):
        return found[0]
    arrays = instructions(found)
    return [Value(builder, pack(builder, element, arrays)) for element in shape.elements]


def _name(instruction: Instruction) -> str:
    return instruction.hint or instruction["body"].name.removesuffix("_jvp")


def while_transpose(build, instruction, cotangent, operands):
    raise DifferentiationError(
        f"reverse-mode differentiation of the while_loop '{_name(instruction)}' was asked for",
        "a loop without a bound on its steps, whose values on the way cannot be kept",
        "give max_steps= to while_loop, use fori_loop or scan with static bounds, or forward mode (jvp, jacfwd)",
        source=instruction.source,
    )


# --- conditional --------------------------------------------------------------------------------------------------


def _chosen(selector: Value, results: list[list[Value]]) -> list[Value]:
    """For each output a select among the branches' results, for a selector with a value per batch element."""
    found = results[-1]
    for k in reversed(range(len(results) - 1)):
        hit = selector if selector.dtype == PRED else selector.compare("EQ", k)
        chosen = []
        for a, b in zip(results[k], found, strict=True):
            mask = hit if hit.dims in ((), a.dims) else hit.broadcast(a.dims, (0,))
            chosen.append(mask.where(a, b))
        found = chosen
    return found


def conditional_batch(build, instruction, operands, mapped):
    builder, size = build.builder, build.size
    branches = [flat(b) for b in instruction["branch_computations"]]
    given = [flat_values(builder, o) for o in operands[1:]]
    flags = [flat_flags(m, o.shape) for m, o in zip(mapped[1:], instruction.operands[1:], strict=True)]
    selector, differs = operands[0], mapped[0]
    count = len(branches[0].outputs())
    if differs:
        results = []
        for branch, own, f in zip(branches, given, flags, strict=True):
            made, _ = batch(branch, f, size, [True] * count, build.axis_name)
            results.append(values(builder, place(builder, made, instructions(own))))
        return _marked(build, instruction.shape, _chosen(selector, results))
    out = [False] * count
    for branch, f in zip(branches, flags, strict=True):
        _, differ = batch(branch, f, size, None, build.axis_name)
        out = [a or b for a, b in zip(out, differ, strict=True)]
    many = [batch(branch, f, size, out, build.axis_name)[0] for branch, f in zip(branches, flags, strict=True)]
    chosen = _conditional(builder, selector, many, [instructions(g) for g in given])
    found = [v if f else build.unmapped(v) for v, f in zip(chosen, out, strict=True)]
    return _marked(build, instruction.shape, found)


def _conditional(builder: Builder, selector: Value, branches, operands) -> list[Value]:
    """Emits a conditional of flat computations on flat operands; its results."""
    result = branches[0].shape
    made, tuples = [], []
    known: dict[tuple, Instruction] = {}
    for branch, own in zip(branches, operands, strict=True):
        key = tuple(own)
        if key not in known:
            known[key] = builder.tuple(own)
        tuples.append(known[key])
        made.append(nested(branch, tuples[-1].shape, result))
    return elements(
        builder, builder.emit("conditional", selector.instruction, *tuples, branch_computations=tuple(made))
    )


def conditional_jvp(build, instruction, primals, tangents):
    builder = build.builder
    branches = [flat(b) for b in instruction["branch_computations"]]
    given = [values(builder, leaves(builder, p.instruction)) for p in primals[1:]]
    shapes = [o.shape for o in instruction.operands[1:]]
    pushed = [flat_tangents(t, s) for t, s in zip(tangents[1:], shapes, strict=True)]
    active = [[t is not None for t in ts] for ts in pushed]
    count = len(branches[0].outputs())
    wanted = [False] * count
    for branch, a in zip(branches, active, strict=True):
        _, present = with_tangents(branch, a)
        wanted = [w or p for w, p in zip(wanted, present, strict=True)]
    if not any(wanted):
        return None
    if build.linear:
        found = _conditional_split(build, instruction, branches, primals[0], given, pushed, wanted)
    else:
        made = [with_tangents(b, a, wanted)[0] for b, a in zip(branches, active, strict=True)]
        operands = [
            instructions([*own, *(t for t in ts if t is not None)]) for own, ts in zip(given, pushed, strict=True)
        ]
        results = _conditional(builder, primals[0], made, operands)
        build.replace(instruction, _rebuilt(builder, instruction.shape, results[:count]))
        found = iter(results[count:])
    return _marked(build, instruction.shape, [next(found) if w else None for w in wanted])


def _conditional_split(build, instruction, branches, selector, given, pushed, wanted):
    """The conditional that also returns the residuals, and the conditional of the tangents; returns the tangents."""
    builder = build.builder
    count = len(wanted)
    forwards, linears = [], []
    slots: list[Shape] = []  # shapes of the residuals that the branches return; shared between branches
    needed: list[list[tuple]] = []  # for each branch and residual: ('own', position) or ('slot', number)
    for branch, own, ts in zip(branches, given, pushed, strict=True):
        lasts = lasting(builder, branch, instructions(own))
        forward, linear = linearize(branch, [k for k, t in enumerate(ts) if t is not None], lasts)
        forward, linear = with_few_residuals(forward, linear, count, lasts)
        forwards.append(forward)
        linears.append(linear)
        places, used = [], set()
        for residual in forward.outputs()[count:]:
            if residual in forward.parameters:
                places.append(("own", forward.parameters.index(residual)))
                continue
            number = next((n for n, s in enumerate(slots) if s is residual.shape and n not in used), None)
            if number is None:
                number = len(slots)
                slots.append(residual.shape)
            used.add(number)
            places.append(("slot", number))
        needed.append(places)
    made = []
    for forward, places in zip(forwards, needed, strict=True):
        inner = Builder(forward.name)
        inner.parameters, inner.instructions = list(forward.parameters), list(forward.instructions)
        outputs, residuals = forward.outputs()[:count], forward.outputs()[count:]
        filled = {number: r for r, (kind, number) in zip(residuals, places, strict=True) if kind == "slot"}
        extra = [filled[n] if n in filled else inner.splat(0, s) for n, s in enumerate(slots)]
        made.append(sweep(inner.finish(inner.tuple([*outputs, *extra]))))
    results = _conditional(builder, selector, made, [instructions(g) for g in given])
    build.replace(instruction, _rebuilt(builder, instruction.shape, results[:count]))
    kept = results[count:]
    operands, bodies = [], []
    for linear, places, own, ts in zip(linears, needed, given, pushed, strict=True):
        kept_here = [own[n] if kind == "own" else kept[n] for kind, n in places]
        operands.append(instructions([*kept_here, *(t for t in ts if t is not None)]))
        bodies.append(_picked(linear, branches[0], wanted))
    return iter(_conditional(builder, selector, bodies, operands))


def _picked(linear: Computation, like: Computation, wanted) -> Computation:
    """The linear part of a branch with the requested tangents only: it returns those of all inexact outputs."""
    inner = Builder(linear.name)
    inner.parameters, inner.instructions = list(linear.parameters), list(linear.instructions)
    inexact = [k for k, o in enumerate(like.outputs()) if has_tangent(o.shape)]
    by_output = dict(zip(inexact, linear.outputs(), strict=True))
    return sweep(inner.finish(inner.tuple([by_output[k] for k, w in enumerate(wanted) if w])))


def conditional_transpose(build, instruction, cotangent, operands):
    """Transposes each branch. `build.linear` contains the linear instructions: a branch's operand is a tuple of linear
    and other values."""
    branches = [flat(b) for b in instruction["branch_computations"]]
    given = [leaves(build, o) for o in instruction.operands[1:]]
    linear = [[v in build.linear for v in own] for own in given]
    slots = list(
        dict.fromkeys(v for own, ls in zip(given, linear, strict=True) for v, l in zip(own, ls, strict=True) if l)
    )
    flat_cotangents = flat_tangents(cotangent, instruction.shape)
    # Each branch adds to the sums so far, in place where it reads a few elements.
    sums = {v: so_far for v in slots if (so_far := build.take_cotangent(v)) is not None}
    made, handed = [], []
    for branch, own, ls in zip(branches, given, linear, strict=True):
        plain = [v for v, l in zip(own, ls, strict=True) if not l]
        owners = [v for v, l in zip(own, ls, strict=True) if l]
        made.append(_transposed_branch(branch, ls, plain, owners, flat_cotangents, slots, sums, build.repeated))
        handed.append([*plain, *instructions([c for c in flat_cotangents if c is not None])])
        handed[-1] += instructions(list(sums.values()))
    selector = Value(build, instruction.operands[0])
    by_slot = dict(zip(slots, _conditional(build, selector, made, handed), strict=True))
    given_back = []
    for own, operand in zip(given, instruction.operands[1:], strict=True):
        given_back.append(unflat(operand.shape, [by_slot.pop(v, None) for v in own]))
    return [None, *given_back]


def _transposed_branch(
    branch: Computation, linear, plain, owners, cotangents, slots, sums: Mapping[Instruction, Value], repeated: bool
) -> Computation:
    """(other operands, cotangents of the results that have one, sums so far) -> the cotangents of the slots.

    owners: the linear operands, any of which may be there twice.
    """
    summed = [v in sums and v not in owners[:k] for k, v in enumerate(owners)]
    back = transposed(branch, linear, summed, repeated)
    inner = Builder(back.name)
    plain_parameters = [inner.parameter(v.shape) for v in plain]
    passed = []
    for c, output in zip(cotangents, branch.outputs(), strict=True):
        if has_tangent(output.shape):
            passed.append(inner.splat(0, output.shape) if c is None else inner.parameter(output.shape))
    before = {v: inner.parameter(v.shape) for v in sums}
    mine = [before[v] for v, s in zip(owners, summed, strict=True) if s]
    found = place(inner, back, [*plain_parameters, *passed, *mine])
    totals = {v: b for v, b in before.items() if v not in owners}
    for v, f in zip(owners, found, strict=True):
        totals[v] = inner.emit("add", totals[v], f) if v in totals else f
    results = [totals[v] if v in totals else inner.splat(0, v.shape) for v in slots]
    return sweep(inner.finish(inner.tuple(results)))


RULES.update(
    {
        "while_jvp": while_jvp,
        "while_transpose": while_transpose,
        "while_batch": while_batch,
        "conditional_jvp": conditional_jvp,
        "conditional_transpose": conditional_transpose,
        "conditional_batch": conditional_batch,
    }
)

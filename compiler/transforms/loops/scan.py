"""Derivatives and batching of scan.

Reverse mode: the body is split in two. The first part computes the values, and stacks the residuals as additional ys;
the second is linear in the tangents. It is transposed and run in reverse.
"""

from __future__ import annotations

from hloom.compiler.transforms.batch import batch
from hloom.compiler.transforms.flat import (
    carried,
    elements,
    flat,
    instructions,
    lasting,
    place,
    values,
    with_tangents,
    zeros,
)
from hloom.compiler.transforms.jvp import has_tangent
from hloom.compiler.transforms.loops.residuals import Counter, counters, invariant, sources, unchanged, worth_stacking
from hloom.compiler.transforms.vjp import linearize, transposed
from hloom.ir.build import Builder, Value
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops.programs.control import RULES, split_scan
from hloom.ir.rewrite import sweep
from hloom.ir.types import Shape


def _scan(builder: Builder, body: Computation, consts, carry, xs, like: Instruction, opposite=False) -> list[Value]:
    """Emits a scan with the same number of steps as another one, in the same or the opposite direction; returns all
    results."""
    made = builder.emit(
        "scan",
        *instructions([*consts, *carry, *xs]),
        body=body,
        num_consts=len(consts),
        num_carry=len(carry),
        length=like["length"],
        reverse=bool(like.attributes.get("reverse", False)) != opposite,
    )
    return elements(builder, made)


def _parts(attributes, given):
    """(consts, carry, xs) of a list."""
    return split_scan(attributes, list(given))


def scan_batch(build, instruction, operands, mapped):
    attributes, builder, size = instruction.attributes, build.builder, build.size
    body = flat(instruction["body"])
    consts, carry, xs = _parts(attributes, operands)
    c_flags, k_flags, x_flags = _parts(attributes, mapped)
    count = len(carry)
    while True:
        _, out = batch(body, [*c_flags, *k_flags, *x_flags], size, None, build.axis_name)
        grown = [a or b for a, b in zip(k_flags, out[:count], strict=True)]
        if grown == k_flags:
            break
        k_flags = grown
    kept = [False] * (len(out) - count)
    made, out = batch(body, [*c_flags, *k_flags, *x_flags], size, [*k_flags, *kept], build.axis_name)
    first = len(consts)
    carry = [
        v if m or not f else build.spread(v)
        for v, m, f in zip(carry, mapped[first : first + count], k_flags, strict=True)
    ]
    xs = [_swapped(x) if m else x for x, m in zip(xs, x_flags, strict=True)]
    results = _scan(builder, made, consts, carry, xs, instruction)
    found = [v if f else build.unmapped(v) for v, f in zip(results[:count], k_flags, strict=True)]
    found += [_swapped(v) if f else build.unmapped(v) for v, f in zip(results[count:], out[count:], strict=True)]
    return found


def _swapped(value: Value) -> Value:
    """Exchanges the first two dimensions: the steps of a loop and the batch."""
    return value.transpose((1, 0, *range(2, len(value.dims))))


def scan_jvp(build, instruction, primals, tangents):
    attributes, builder = instruction.attributes, build.builder
    body = flat(instruction["body"])
    first, count = attributes["num_consts"], attributes["num_carry"]
    active = carried(body, [t is not None for t in tangents], first, count)
    if build.linear:
        return _scan_split(build, instruction, body, primals, tangents, active)
    _, carry_active, _ = _parts(attributes, active)
    total = len(body.outputs())
    made, present = with_tangents(body, active, [*carry_active, *[False] * (total - count)])
    given = [
        t if t is not None else zeros(builder, p.shape) if a else None
        for t, p, a in zip(tangents, primals, active, strict=True)
    ]
    # The body takes consts and their tangents, carry and its tangents, xs and their tangents.
    groups = [_parts(attributes, primals), _parts(attributes, given)]
    joined = [[*p, *(t for t in ts if t is not None)] for p, ts in zip(*groups, strict=True)]
    inner = Builder(made.name)
    own = _parts(attributes, body.parameters)
    theirs = _parts(attributes, active)
    primal_parameters, tangent_parameters = [], []
    for parameters, flags in zip(own, theirs, strict=True):
        primal_parameters += [inner.parameter(p.shape) for p in parameters]
        tangent_parameters += [inner.parameter(p.shape) for p, f in zip(parameters, flags, strict=True) if f]
    results = place(inner, made, [*primal_parameters, *tangent_parameters])
    outputs, made_tangents = results[:total], results[total:]
    split = sum(carry_active)
    inner_root = inner.tuple([*outputs[:count], *made_tangents[:split], *outputs[count:], *made_tangents[split:]])
    consts, carry, xs = joined
    found = _scan(builder, inner.finish(inner_root), consts, carry, xs, instruction)
    new_carry, rest = found[: count + split], found[count + split :]
    ys = rest[: total - count]
    build.replace(instruction, [*new_carry[:count], *ys])
    pushed = iter([*new_carry[count:], *rest[total - count :]])
    return [next(pushed) if p else None for p in present]


def _scan_split(build, instruction, body: Computation, primals, tangents, active):
    """The scan that also stacks the residuals, and the scan of the tangents, which is linear in them."""
    attributes, builder = instruction.attributes, build.builder
    count = attributes["num_carry"]
    total = len(body.outputs())
    _, carry_active, _ = _parts(attributes, active)
    _, present = with_tangents(body, active, [*carry_active, *[False] * (total - count)])
    constant = [*range(attributes["num_consts"]), *unchanged(body, attributes)]
    lasts = lasting(builder, body, instructions(primals)) & {body.parameters[k] for k in constant}
    forward, linear = linearize(body, [k for k, a in enumerate(active) if a], lasts)
    residuals = forward.outputs()[total:]
    consts, carry, xs = _parts(attributes, primals)
    _, own_carry, own_xs = _parts(attributes, forward.parameters)
    # Loop-invariant residuals are computed once, outside; slices of xs and counters are known; the rest is stacked.
    readable = {forward.parameters[k] for k in constant if body.parameters[k] in lasts}
    fixed = {forward.parameters[k]: primals[k].instruction for k in constant}
    counted = counters(forward, own_carry, carry, instruction)
    outside = {**fixed, **invariant(builder, forward, fixed, residuals)}
    at_xs = dict(zip(own_xs, xs, strict=True))
    stacked = worth_stacking(forward, residuals, {*outside, *at_xs, *counted}, readable)
    shortened = Builder(forward.name)
    shortened.parameters, shortened.instructions = list(forward.parameters), list(forward.instructions)
    kept = sweep(shortened.finish(shortened.tuple([*forward.outputs()[:total], *stacked])))
    results = _scan(builder, kept, consts, carry, xs, instruction)
    build.replace(instruction, results[:total])
    by_step = at_xs | dict(zip(stacked, results[total:], strict=True))

    needed = sources(residuals, {*outside, *by_step, *counted})
    same, moving = ([s for s in needed if s in group] for group in (outside, by_step))
    counted = {s: counted[s] for s in needed if s in counted}
    starts = [counter.start for counter in counted.values()]
    given = [
        t if t is not None else zeros(builder, p.shape) if a else None
        for t, p, a in zip(tangents, primals, active, strict=True)
    ]
    t_consts, t_carry, t_xs = ([v for v in part if v is not None] for part in _parts(attributes, given))
    step = _linear_body(body, forward, linear, present, same, counted, moving, len(t_consts) + len(t_carry))
    numbers = [
        Value(builder, builder.emit("iota", shape=Shape(s.dtype, (attributes["length"],)), iota_dimension=0))
        for s in starts
    ]
    consts = [*values(builder, [*(outside[s] for s in same), *starts]), *t_consts]
    xs = [*numbers, *(by_step[s] for s in moving), *t_xs]
    found = iter(_scan(builder, step, consts, t_carry, xs, instruction))
    return [next(found) if p else None for p in present]


def _linear_body(
    body: Computation,
    forward: Computation,
    linear: Computation,
    present: list[bool],
    fixed: list[Instruction],
    counted: dict[Instruction, Counter],
    moving: list[Instruction],
    before: int,
) -> Computation:
    """The step of a scan of tangents: (invariant values, starts of the counters, the first `before` tangents, numbers
    of steps for the counters, values of the step, the other tangents) -> the tangents of the outputs that have one.

    fixed, moving: the instructions of `forward` whose values are given; the other residuals are computed from them.
    """
    residuals = forward.outputs()[len(present) :]
    tangents = linear.parameters[len(residuals) :]
    inner = Builder(linear.name)

    def own(given: list[Instruction]) -> list[Instruction]:
        return [inner.parameter(i.shape, i.hint, i.source) for i in given]

    same, starts, first = own(fixed), own(list(counted)), own(tangents[:before])
    numbers, varying, rest = own(list(counted)), own(moving), own(tangents[before:])
    known = dict(zip([*fixed, *moving], [*same, *varying], strict=True))
    for (parameter, counter), start, number in zip(counted.items(), starts, numbers, strict=True):
        known[parameter] = counter.at(Value(inner, start), Value(inner, number)).instruction
    again = invariant(inner, forward, known, residuals)
    outputs = place(inner, linear, [*(again[r] for r in residuals), *first, *rest])
    inexact = [k for k, o in enumerate(body.outputs()) if has_tangent(o.shape)]
    by_output = dict(zip(inexact, outputs, strict=True))
    return sweep(inner.finish(inner.tuple([by_output[k] for k in range(len(present)) if present[k]])))


def scan_transpose(build, instruction, cotangent, operands):
    attributes = instruction.attributes
    body = flat(instruction["body"])
    first, count = attributes["num_consts"], attributes["num_carry"]
    linear = _linear_parameters(body, [o is None for o in operands], first, count)
    consts, carry, xs = _parts(attributes, operands)
    l_consts, l_carry, l_xs = _parts(attributes, linear)
    plain_consts = [v for v, l in zip(consts, l_consts, strict=True) if not l]
    plain_xs = [v for v, l in zip(xs, l_xs, strict=True) if not l]
    # Non-linear carried values (counters) are stacked by a separate loop.
    steps: list[Value] = []
    if not all(l_carry):
        steps = _plain_carry(build, instruction, body, linear, plain_consts, carry, plain_xs)
    outputs, ct_ys = body.outputs(), cotangent[count:]
    known = [has_tangent(o.shape) and c is not None for o, c in zip(outputs[count:], ct_ys, strict=True)]
    step = _transposed_step(body, linear, attributes, plain_consts, [*steps, *plain_xs], known)
    # The sum of a constant's cotangents goes on in the loop; its steps would otherwise start from an array of zeros.
    start = []
    for operand, is_linear in zip(instruction.operands[:first], l_consts, strict=True):
        if is_linear:
            so_far = build.take_cotangent(operand)
            start.append(zeros(build, operand.shape) if so_far is None else so_far)
    for is_linear, output, given in zip(l_carry, outputs[:count], cotangent[:count], strict=True):
        if is_linear:
            start.append(zeros(build, output.shape) if given is None else given)
    walked = [*steps, *plain_xs, *(c for c, k in zip(ct_ys, known, strict=True) if k)]
    made = iter(_scan(build, step, plain_consts, start, walked, instruction, True))
    back = [next(made) if l else None for l in linear]
    # A non-linear initial value (a constant zero) has no cotangent.
    return [b if o is None else None for b, o in zip(back, operands, strict=True)]


def _transposed_step(
    body: Computation, linear: list[bool], attributes, plain_consts: list[Value], walked: list[Value], known: list[bool]
) -> Computation:
    """A step of the transposed scan: (non-linear constants; sums of the cotangents of linear constants, and cotangents
    of the linear carry; rows of `walked`, known cotangents of ys)."""
    count = attributes["num_carry"]
    l_consts, l_carry, _ = _parts(attributes, linear)
    made = transposed(body, linear, [True] * sum(l_consts), repeated=True)
    outputs = body.outputs()
    shapes = [p.shape for p, l in zip(body.parameters, linear, strict=True) if l]
    inner = Builder(made.name)
    consts = [inner.parameter(v.shape) for v in plain_consts]
    sums = [inner.parameter(s) for s in shapes[: sum(l_consts)]]
    ct_carry = [inner.parameter(s) for s in shapes[len(sums) : len(sums) + sum(l_carry)]]
    rows = [inner.parameter(v.shape.with_dims(v.dims[1:])) for v in walked]
    ct_ys = [inner.parameter(o.shape) if k else None for o, k in zip(outputs[count:], known, strict=True)]
    given = iter(ct_carry)
    own = [*(next(given) if l else None for l in l_carry), *ct_ys]
    cotangents = [
        c if c is not None else inner.splat(0, o.shape)
        for o, c in zip(outputs, own, strict=True)
        if has_tangent(o.shape)
    ]
    return sweep(inner.finish(inner.tuple(place(inner, made, [*consts, *rows, *cotangents, *sums]))))


def _linear_parameters(body: Computation, start: list[bool], first: int, count: int) -> list[bool]:
    linear = list(start)
    while True:
        reached = {p for p, l in zip(body.parameters, linear, strict=True) if l}
        for instruction in body.instructions:
            if not reached.isdisjoint(instruction.operands):
                reached.add(instruction)
        outputs = body.outputs()[:count]
        grown = [l or o in reached for l, o in zip(linear[first : first + count], outputs, strict=True)]
        if grown == linear[first : first + count]:
            return linear
        linear[first : first + count] = grown


def _plain_carry(build, instruction, body, linear, consts, carry, xs) -> list[Value]:
    """The values before each step of the non-linear carried values."""
    attributes = instruction.attributes
    first, count = attributes["num_consts"], attributes["num_carry"]
    plain = [k for k in range(count) if not linear[first + k]]
    inner = Builder(f"{body.name}_plain")
    mapped = {}
    for parameter, l in zip(body.parameters, linear, strict=True):
        mapped[parameter] = None if l else inner.parameter(parameter.shape)
    for one in body.instructions:
        if one not in mapped and one is not body.root:
            given = [mapped[o] for o in one.operands]
            mapped[one] = None if None in given else inner.add(one.with_operands(tuple(given)))
    before = [mapped[body.parameters[first + k]] for k in plain]
    root = inner.tuple([*(mapped[body.outputs()[k]] for k in plain), *before])
    step = sweep(inner.finish(root))
    results = _scan(build, step, consts, [carry[k] for k in plain], xs, instruction)
    return results[len(plain) :]


RULES.update({"scan_jvp": scan_jvp, "scan_transpose": scan_transpose, "scan_batch": scan_batch})

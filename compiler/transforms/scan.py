"""Derivatives and batching of scan.

Reverse mode: the body is split in two. The first part computes the values, and stacks the residuals as additional ys;
the second is linear in the tangents. It is transposed and run in reverse.
"""

from __future__ import annotations

from hloom.compiler.transforms.batch import batch
from hloom.compiler.transforms.flat import carried, elements, flat, instructions, place, values, with_tangents, zeros
from hloom.compiler.transforms.jvp import has_tangent
from hloom.compiler.transforms.vjp import linearize, transposed
from hloom.ir.build import Builder, Value
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops import OPS
from hloom.ir.ops.programs.control import RULES, split_scan
from hloom.ir.rewrite import sweep


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
    forward, linear = linearize(body, [k for k, a in enumerate(active) if a])
    residuals = forward.outputs()[total:]
    consts, carry, xs = _parts(attributes, primals)
    own_consts, _, own_xs = _parts(attributes, forward.parameters)
    # Loop-invariant residuals are computed once, outside; slices of xs are read again; the rest is stacked.
    outside = _invariant(builder, forward, dict(zip(own_consts, instructions(consts), strict=True)), residuals)
    at_xs = dict(zip(own_xs, xs, strict=True))
    stacked = _worth_stacking(forward, residuals, {*outside, *at_xs})
    shortened = Builder(forward.name)
    shortened.parameters, shortened.instructions = list(forward.parameters), list(forward.instructions)
    kept = sweep(shortened.finish(shortened.tuple([*forward.outputs()[:total], *stacked])))
    results = _scan(builder, kept, consts, carry, xs, instruction)
    build.replace(instruction, results[:total])
    by_step = at_xs | dict(zip(stacked, results[total:], strict=True))

    fixed = [k for k, r in enumerate(residuals) if r in outside]
    moving = [k for k, r in enumerate(residuals) if r in by_step]
    given = [
        t if t is not None else zeros(builder, p.shape) if a else None
        for t, p, a in zip(tangents, primals, active, strict=True)
    ]
    t_consts, t_carry, t_xs = ([v for v in part if v is not None] for part in _parts(attributes, given))
    step = _linear_body(body, forward, linear, present, fixed, moving, len(t_consts) + len(t_carry))
    same = values(builder, [outside[residuals[k]] for k in fixed])
    xs = [*(by_step[residuals[k]] for k in moving), *t_xs]
    found = iter(_scan(builder, step, [*same, *t_consts], t_carry, xs, instruction))
    return [next(found) if p else None for p in present]


def _linear_body(body: Computation, forward: Computation, linear: Computation, present, fixed, moving, before: int):
    """The step of a scan of tangents: (invariant residuals, the first `before` tangents, varying residuals, the other
    tangents) -> the tangents of the outputs that have one.

    fixed, moving: the number of invariant and varying residuals.
    """
    total, residuals = len(present), forward.outputs()[len(present) :]
    parameters, tangents = linear.parameters, linear.parameters[len(residuals) :]
    order = [
        *(parameters[k] for k in fixed),
        *tangents[:before],
        *(parameters[k] for k in moving),
        *tangents[before:],
    ]
    inner = Builder(linear.name)
    own = {p: inner.parameter(p.shape, p.hint, p.source) for p in order}
    again = _invariant(inner, forward, {residuals[k]: own[parameters[k]] for k in (*fixed, *moving)}, residuals)
    outputs = place(inner, linear, [*(again[r] for r in residuals), *(own[p] for p in tangents)])
    inexact = [k for k, o in enumerate(body.outputs()) if has_tangent(o.shape)]
    by_output = dict(zip(inexact, outputs, strict=True))
    return sweep(inner.finish(inner.tuple([by_output[k] for k in range(total) if present[k]])))


CHEAP = 4.0  # flops below which a value is recomputed rather than stacked for each step
STEPS = 12  # maximum number of operations for recomputation


def _worth_stacking(forward: Computation, residuals, given: set[Instruction]) -> list[Instruction]:
    """The residuals that are not available anyway and cannot be recomputed from the others in a few cheap steps.

    An LSTM needs i, 1 - i, i (1 - i), tanh c, 1 - tanh^2 c, ...: half of them suffice.
    """
    places = {i: k for k, i in enumerate(forward.instructions)}
    known = set(residuals)
    stacked = [r for r in dict.fromkeys(residuals) if r not in given]
    for residual in sorted(stacked, key=places.__getitem__, reverse=True):
        if _is_cheap_again(residual, known - {residual}):
            stacked.remove(residual)
    return stacked


def _is_cheap_again(wanted: Instruction, known: set[Instruction]) -> bool:
    """Whether cheap element-wise operations on known values compute the wanted one. Known ones precede it."""
    seen: set[Instruction] = set()
    stack = [wanted]
    while stack:
        one = stack.pop()
        if one in known or one in seen:
            continue
        op = OPS[one.opcode]
        movement = one.opcode in ("broadcast", "constant", "iota")
        if one.opcode == "parameter" or not (movement or (op.family == "elementwise" and op.flops < CHEAP)):
            return False
        seen.add(one)
        if len(seen) > STEPS:
            return False
        stack += one.operands
    return True


def _invariant(builder: Builder, computation: Computation, given: dict, wanted) -> dict[Instruction, Instruction]:
    """Emits the wanted instructions that depend only on given ones."""
    same: set[Instruction] = set(given)
    for instruction in computation.instructions:
        if instruction.opcode != "parameter" and all(o in same for o in instruction.operands):
            same.add(instruction)
    needed = {w for w in wanted if w in same}
    for instruction in reversed(computation.instructions):
        if instruction in needed and instruction not in given:
            needed.update(instruction.operands)
    mapped = dict(given)
    builder.add_copies([i for i in computation.instructions if i in needed], mapped)
    return {w: mapped[w] for w in wanted if w in same}


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
    start = [zeros(build, p.shape) for p, l in zip(body.parameters[:first], l_consts, strict=True) if l]
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
    made = transposed(body, linear, summed=sum(l_consts))
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
